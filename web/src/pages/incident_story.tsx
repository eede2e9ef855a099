// The chain at the top: from the run that broke it to the test that told.
import { useState } from "react";
import type { Schemas } from "../api/client";
import { Breakable, DatasetLink, JobLink, RunLink, Time } from "../components/basics";
import { testName } from "../words/names";
import { count } from "../words/numbers";
import { folded, story, type Link as Step } from "../words/story";
import { KINDS } from "./incident_evidence";

type Detail = Schemas["IncidentDetail"];
type Candidate = Schemas["CandidateTold"];

const A_LINE = 5;

/** The sentence: this run wrote this version, these passed it on, this one wrote what the test read. */
export function WhatHappened({ one }: { one: Detail }) {
  const [isWhole, setWhole] = useState(false);
  const chain = story(one);
  const { links, hidden } = isWhole ? { links: chain, hidden: [] } : folded(chain, A_LINE);
  const root = one.candidates[0];
  return (
    <section className="card" aria-label="What happened">
      <header>
        <h2>What happened</h2>
        <span className="soft small">each read the version that the one before it wrote</span>
      </header>
      <ol className="chain">
        {links.flatMap((link, place) => {
          const before = links[place - 1];
          const isAfterFold = hidden.length > 0 && place === 1;
          return [
            ...(isAfterFold
              ? [
                  <li key="more" className="more">
                    <button type="button" className="button small" onClick={() => setWhole(true)}>
                      … {count(hidden.length, "more run")}
                    </button>
                  </li>,
                ]
              : []),
            ...(before ? [<Arrow key={`a${place}`} of={isAfterFold ? (hidden.at(-1) ?? before) : before} />] : []),
            <ChainLink key={place} link={link} one={one} root={root} isAlone={links.length === 1} isDirect={place === links.length - 2} />,
          ];
        })}
      </ol>
    </section>
  );
}

function Arrow({ of }: { of: Step }) {
  return (
    <li className="arrow">
      <b aria-hidden>→</b>
      {of.wrote ? (
        <span className="breaks">
          <span className="hidden-visually">wrote </span>
          <DatasetLink urn={of.wrote} />
          {of.at && <> <br className="hide-narrow" /><Time at={of.at} as="clock" /></>}
        </span>
      ) : (
        <span>nothing came</span>
      )}
    </li>
  );
}

const ROLES = { root: "Root cause", passed: "Passed it on", direct: "Direct cause", failed: "Test failed" } as const;

function ChainLink({ link, one, root, isAlone, isDirect }: { link: Step; one: Detail; root: Candidate | undefined; isAlone: boolean; isDirect: boolean }) {
  const isRoot = link.role === "root";
  const candidate = one.candidates.find((each) => each.run_id !== null && each.run_id === link.runId);
  const isKnown = isRoot && root !== undefined && root.evidence.length > 0;
  const role = link.role === "failed" && one.kind === "run" ? "Run failed" : isRoot && !isKnown ? "Wrote it" : isRoot && isDirect ? "Root and direct cause" : ROLES[link.role];
  const words = isRoot
    ? root?.evidence.map((each) => KINDS[each.kind]?.changed ?? each.kind)
    : link.role === "passed" || link.role === "direct"
      ? [candidate?.reasons[0] ?? "nothing of its own changed"]
      : [];
  return (
    <li className={`link ${isKnown ? "root" : link.role === "failed" ? "failed" : ""}`}>
      <span className="role">
        {role}
        {isKnown && <span title="Strength of evidence; no probability"> · {Math.round(root.score * 100)} of 100</span>}
        {link.role === "failed" && link.at && <> · <Time at={link.at} as="clock" /></>}
      </span>
      <span className="strong breaks">
        {link.role === "failed" && one.test ? <Breakable text={testName(one.test)} /> : link.job ? <JobLink job={link.job} className="quiet breaks" /> : "unknown"}
      </span>
      <span className="small soft">
        {link.runId ? <RunLink id={link.runId} /> : "no run: it should have been there"}
        {link.state && ` · ${link.state}`}
        {link.at && link.role !== "failed" && <> <Time at={link.at} as="clock" /></>}
      </span>
      {link.role === "failed" ? (
        <span className="small breaks">{one.test?.message ?? one.timeline.find((each) => each.kind === "failed")?.sentence}</span>
      ) : (
        <span className={`small ${isKnown ? "red strong" : "soft"}`}>{words?.length ? words.join(", ") : isAlone ? "" : "nothing odd is known of it"}</span>
      )}
    </li>
  );
}

// One screen that tells the story: which run broke it, what changed, who is hurt. Everything below is its proof.
import { useQuery } from "@tanstack/react-query";
import { Suspense, lazy, useEffect, useRef, useState, type ReactNode } from "react";
import { Link, useParams } from "react-router";
import type { Schemas } from "../api/client";
import { amounts, incident, job, run } from "../api/queries";
import { AssignMenu, MuteMenu, ResolveMenu, useActions, useMay, type Deed } from "../components/actions";
import { Badge, Breakable, Card, Crumbs, DatasetLink, JobLink, Owner, Problem, RunLink, Skeleton, State, Strength, Time } from "../components/basics";
import { Diff } from "../components/diff";
import { Plot } from "../components/plot";
import { useKeys } from "../components/use_keys";
import { useTitle } from "../components/use_title";
import { commitLink, datasetName, jobName, ownerName, pathOf, testName } from "../words/names";
import { bytes, count, exact, short } from "../words/numbers";
import { folded, story, type Link as Step } from "../words/story";
import { duration, moment } from "../words/time";

type Detail = Schemas["IncidentDetail"];
type Candidate = Schemas["CandidateTold"];
type Evidence = Schemas["EvidenceTold"];

const ImpactGraph = lazy(() => import("../graph/impact_graph"));
const A_LINE = 5;

export function Incident() {
  const { id = "" } = useParams();
  const found = useQuery(incident(id));
  useTitle(found.data ? titleOf(found.data) : "Incident");
  if (found.isError && !found.data) return <Problem error={found.error} retry={() => void found.refetch()} />;
  if (!found.data) {
    return (
      <div className="stack">
        <Skeleton lines={1} height="4rem" />
        <Skeleton lines={1} height="9rem" />
        <Skeleton lines={1} height="24rem" />
      </div>
    );
  }
  const one = found.data;
  const root = one.candidates[0];
  return (
    <>
      <Head one={one} />
      <div className="stack">
        <WhatHappened one={one} />
        <div className="columns story">
          <div className="stack">
            {root ? <Why one={one} root={root} /> : <NoProducer one={one} />}
            {one.candidates.length > 1 && <Others candidates={one.candidates.slice(1)} />}
            <Impact one={one} />
          </div>
          <div className="stack">
            <Hurt one={one} />
            <Timeline one={one} />
            {one.children.length > 0 && <SameRoot one={one} />}
            <SeenBefore one={one} />
          </div>
        </div>
      </div>
    </>
  );
}

function titleOf(one: Detail): string {
  return one.test ? `${testName(one.test)} failed on ${one.dataset?.name ?? "?"}` : `${jobName(one.test_run.job.name)} failed`;
}

function Head({ one }: { one: Detail }) {
  const { act, isBusy } = useActions();
  const mayAct = useMay("act");
  const does = (deed: Deed) => void act([one], deed);
  const isOver = one.status === "resolved";
  useKeys(mayAct && one.status === "open" ? { a: () => does({ action: "acknowledge" }) } : {});
  const acted = one.timeline.find((said) => said.kind === "acknowledge");
  return (
    <>
      <Crumbs>
        <Link to="/incidents">Incidents</Link> ›{" "}
        <Link to={`/incidents${one.status === "open" ? "" : `?status=${one.status}`}`}>{one.status}</Link> ›{" "}
        {one.dataset ? datasetName(one.dataset.urn) : jobName(one.test_run.job.name)}
      </Crumbs>
      {one.root_id && (
        <p className="banner">
          <strong>A consequence.</strong>
          <span>
            What failed here was made of what failed before: <Link to={pathOf.incident(one.root_id)}>see the root incident</Link>.
          </span>
        </p>
      )}
      <header className="incident-head">
        <h1 className="breaks">
          {one.test ? (
            <>
              <code title={one.test.name}><Breakable text={testName(one.test)} /></code> failed on{" "}
              {one.dataset ? (
                <Link className="quiet" to={pathOf.dataset(one.dataset.urn)} title={one.dataset.urn}>
                  <code><Breakable text={one.dataset.name} /></code>
                </Link>
              ) : (
                "a dataset that is not named"
              )}
            </>
          ) : (
            <>
              <Link className="quiet" to={pathOf.job(one.test_run.job)}><code><Breakable text={one.test_run.job.name} /></code></Link> failed
            </>
          )}
        </h1>
        {mayAct && (
          <div className="actions">
            {one.muted_until ? (
              <button type="button" className="button" disabled={isBusy} onClick={() => does({ action: "unmute" })}>
                Unmute
              </button>
            ) : (
              <MuteMenu does={does} />
            )}
            {!isOver && (
              <>
                <AssignMenu does={does} assignee={one.assignee} />
                <ResolveMenu does={does} />
                {acted && one.status === "acknowledged" ? null : (
                  <button type="button" className="button primary" disabled={isBusy} onClick={() => does({ action: "acknowledge" })}>
                    Acknowledge
                  </button>
                )}
              </>
            )}
            {isOver && one.resolved_by === "person" && (
              <button type="button" className="button" disabled={isBusy} onClick={() => does({ action: "reopen" })}>
                Reopen
              </button>
            )}
          </div>
        )}
        <div className="meta">
          <State word={one.severity} />
          <State word={one.status} />
          <span>
            since <Time at={one.opened_at} /> (<Time at={one.opened_at} as="age" />)
          </span>
          {one.test?.actual && (
            <span>
              expected <strong>{one.test.expected || "?"}</strong>, got <strong className="red">{one.test.actual}</strong>
            </span>
          )}
          {one.failures > 1 && <span>failed <strong>{exact(one.failures)}</strong> times</span>}
          {one.owner && <span>owner <strong>{ownerName(one.owner)}</strong></span>}
          {one.assignee && <span>assigned to <strong>{ownerName(one.assignee)}</strong></span>}
          {one.muted_until && <span>muted until <Time at={one.muted_until} /></span>}
          {one.resolved_at && <span>over since <Time at={one.resolved_at} />, by {one.resolved_by === "pass" ? "a later pass" : "a person"}</span>}
          {one.children.length > 0 && <span>+{count(one.children.length, "failure")} with the same root</span>}
        </div>
        {one.test?.message && !one.test.actual && <p className="breaks">{one.test.message}</p>}
      </header>
    </>
  );
}

/** The sentence: this run wrote this version, these passed it on, this one wrote what the test read. */
function WhatHappened({ one }: { one: Detail }) {
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

/** What each kind of evidence is called, as a tag and in the chain. */
const KINDS: Record<string, { tag: string; tone: "red" | "amber" | "grey"; changed: string }> = {
  run_failed: { tag: "run failed", tone: "red", changed: "run failed" },
  missing_run: { tag: "missing run", tone: "red", changed: "run missing" },
  late_run: { tag: "late run", tone: "red", changed: "late" },
  schema: { tag: "schema", tone: "red", changed: "schema changed" },
  code: { tag: "code", tone: "amber", changed: "new code" },
  engine: { tag: "engine", tone: "amber", changed: "new engine" },
  parameter: { tag: "parameter", tone: "amber", changed: "parameter changed" },
  volume: { tag: "volume", tone: "red", changed: "rows far off" },
  nulls: { tag: "nulls", tone: "red", changed: "more nulls" },
  values: { tag: "values", tone: "red", changed: "values moved" },
  unchanged: { tag: "unchanged", tone: "amber", changed: "nothing new" },
  duration: { tag: "duration", tone: "grey", changed: "took longer" },
};

function Why({ one, root }: { one: Detail; root: Candidate }) {
  const step = one.upstream.find((each) => each.run_id !== null && each.run_id === root.run_id);
  const hasVolume = root.evidence.some((each) => each.kind === "volume");
  const good = one.timeline.find((each) => each.kind === "passed" && each.at < one.opened_at);
  return (
    <Card
      place={1}
      title={
        <span className="row wrap">
          Why <JobLink job={root.job} className="quiet breaks" /> {root.evidence.length > 0 && <Strength score={root.score} />}
        </span>
      }
      aside={good ? <>against its run before the last good result, <Time at={good.at} /></> : "no good result is known to compare with"}
    >
      <Place job={root.job} runId={root.run_id} owner={root.owner} />
      {root.evidence.map((each, place) => (
        <EvidenceCard key={place} evidence={each} candidate={root} urn={step?.urn} until={step?.wrote_at ?? one.opened_at} />
      ))}
      {root.evidence.length === 0 && (
        <p>
          It wrote what the test read. Nothing odd is known of it or of anything above it: no change of code, schema,
          engine or amount was told. What no event says cannot be known; see what its producer could report under{" "}
          <Link to="/status">Health</Link>.
        </p>
      )}
      {!hasVolume && step && <AsUsual urn={step.urn} until={step.wrote_at} />}
      {root.reasons.length > 0 && <p className="soft small">{sentence(root.reasons.join("; "))}</p>}
    </Card>
  );
}

/** Where the run stands: under which DAG, in which namespace, and whose it is. */
function Place({ job: of, runId, owner }: { job: { namespace: string; name: string }; runId: string | null; owner: string | null }) {
  const found = useQuery({ ...run(runId ?? ""), enabled: runId !== null });
  const told = found.data?.run;
  const parents = [told?.root, told?.parent].flatMap((each) => (each && each.job.name !== of.name ? [each] : []));
  const chain = parents.filter((each, place) => parents.findIndex((other) => other.job.name === each.job.name) === place);
  return (
    <p className="row wrap small soft">
      <span>{of.namespace}</span>
      {chain.map((each) => (
        <span key={each.job.name} className="row gap-s">
          › <JobLink job={each.job} /> {each.id && <RunLink id={each.id} />}
        </span>
      ))}
      <span>› {jobName(of.name)}</span>
      {runId && <RunLink id={runId} />}
      {told?.ended_at && told.started_at && <span>took {duration((new Date(told.ended_at).getTime() - new Date(told.started_at).getTime()) / 1000)}</span>}
      {owner && <Owner name={owner} />}
    </p>
  );
}

interface EvidenceProps {
  evidence: Evidence;
  candidate: Candidate;
  urn: string | undefined;
  until: string;
}

function EvidenceCard({ evidence, candidate, urn, until }: EvidenceProps) {
  const kind = KINDS[evidence.kind] ?? { tag: evidence.kind, tone: "grey" as const, changed: evidence.kind };
  return (
    <article className="evidence">
      <header>
        <Badge tone={kind.tone}>{kind.tag}</Badge>
        <h3 className="breaks">{sentence(evidence.sentence)}</h3>
        <span className="soft small mono breaks">{jobName(evidence.subject)}</span>
      </header>
      <Proof evidence={evidence} candidate={candidate} urn={urn} until={until} />
    </article>
  );
}

function Proof({ evidence, candidate, urn, until }: EvidenceProps): ReactNode {
  const { before, after, kind } = evidence;
  switch (kind) {
    case "volume":
      return urn ? <Amount urn={urn} until={until} isBytes={evidence.sentence.includes("bytes")} /> : <BeforeAfter before={before} after={after} />;
    case "schema":
      return <SchemaDiff before={before ?? ""} after={after ?? ""} />;
    case "code":
      return <Code before={before ?? ""} after={after ?? ""} job={candidate.job} />;
    case "unchanged":
      return null;
    default:
      return <BeforeAfter before={before} after={after} />;
  }
}

function BeforeAfter({ before, after }: { before: string | null; after: string | null }) {
  if (before === null && after === null) return null;
  return (
    <p className="before-after">
      {before !== null && (
        <>
          <span className="soft">was</span> <del>{before || "nothing"}</del>
        </>
      )}
      {after !== null && (
        <>
          <span aria-hidden>→</span> <span className="soft">is</span> <ins>{after || "nothing"}</ins>
        </>
      )}
    </p>
  );
}

function SchemaDiff({ before, after }: { before: string; after: string }) {
  const lines = (text: string) => text.split(", ").filter(Boolean).join("\n");
  return <Diff before={lines(before)} after={lines(after)} label="Schema before and after" />;
}

const LOOKS_LIKE_TEXT = /[\s(]/;

function Code({ before, after, job: of }: { before: string; after: string; job: { namespace: string; name: string } }) {
  const isText = LOOKS_LIKE_TEXT.test(before + after);
  const found = useQuery(job(of.namespace, of.name));
  const place = found.data?.job.facets.sourceCodeLocation as { repoUrl?: string; url?: string; path?: string } | undefined;
  const link = isText ? null : commitLink(place?.repoUrl, after, place?.path);
  return (
    <>
      {isText ? <Diff before={before} after={after} label="Code before and after" /> : <BeforeAfter before={before} after={after} />}
      {(link ?? place?.url) && (
        <p className="small">
          <a href={safe(link ?? place?.url ?? "")} target="_blank" rel="noreferrer">
            {place?.path ?? "in its repository"} ↗
          </a>
        </p>
      )}
    </>
  );
}

/** Events may hold any text as a URL; only those of the web are links. */
function safe(url: string): string | undefined {
  return /^https?:\/\//.test(url) ? url : undefined;
}

function Amount({ urn, until, isBytes = false }: { urn: string; until: string; isBytes?: boolean }) {
  const found = useQuery(amounts(urn, until));
  if (!found.data) return <Skeleton lines={1} height="7rem" />;
  const { items, usual_rows: usualRows, usual_bytes: usualBytes } = found.data.amounts;
  const points = items.flatMap((each) => {
    const value = isBytes ? each.bytes : each.rows;
    return value === null ? [] : [{ at: each.at, value }];
  });
  return <Plot points={points} usual={isBytes ? usualBytes : usualRows} unit={isBytes ? "bytes" : "rows"} format={isBytes ? bytes : short} />;
}

/** Ruling out is half of the work: what is as usual is said too. */
function AsUsual({ urn, until }: { urn: string; until: string | null }) {
  const found = useQuery(amounts(urn, until ?? undefined));
  const last = found.data?.amounts.items.at(-1);
  const usual = found.data?.amounts.usual_rows;
  if (last?.rows == null || !usual || last.rows < usual.low || last.rows > usual.high) return null;
  return (
    <article className="evidence">
      <header>
        <Badge>volume</Badge>
        <h3>Rows as usual: {exact(last.rows)}</h3>
        <span className="soft small mono">{datasetName(urn)}</span>
      </header>
      <Amount urn={urn} until={last.at} />
    </article>
  );
}

function NoProducer({ one }: { one: Detail }) {
  return (
    <Card title="No producer is known" place={1}>
      <p>
        Nobody is known to write <code className="breaks">{one.dataset?.urn ?? "what was tested"}</code>, so there is no run to blame. Usually the test
        and the writer call one table by two names.{" "}
        <Link to="/status#orphans">Health has suggestions for a pattern that joins them</Link>.
      </p>
    </Card>
  );
}

function Others({ candidates }: { candidates: Candidate[] }) {
  const [isAll, setAll] = useState(false);
  const shown = isAll ? candidates : candidates.slice(0, 4);
  return (
    <Card place={3} title="Other candidates" aside="and why they rank lower">
      <ol className="candidates">
        {shown.map((each) => (
          <li key={each.rank}>
            <span className="soft">{each.rank}</span>
            <span className="breaks">
              <span className="strong"><JobLink job={each.job} className="quiet breaks" /></span>{" "}
              <span className="soft">
                {each.distance === 0 ? "wrote it" : `${count(each.distance, "job")} up`}
                {each.run_id && <> · <RunLink id={each.run_id} /></>}
              </span>
              <br />
              <span className="small">
                {sentence([...each.evidence.map((evidence) => evidence.sentence), ...each.reasons].join("; ")) || "Nothing of it changed."}
              </span>
            </span>
            <span className="strength"><Strength score={each.score} /></span>
          </li>
        ))}
      </ol>
      {candidates.length > shown.length && (
        <button type="button" className="button small plain" onClick={() => setAll(true)}>
          Show all {candidates.length}
        </button>
      )}
    </Card>
  );
}

function Hurt({ one }: { one: Detail }) {
  const [isAll, setAll] = useState(false);
  const { affected, at_risk: risks, truncated } = one.impact;
  const hurt = new Map(affected.map((each) => [each.urn, each]));
  const owners = new Set([...affected, ...risks].flatMap((each) => (each.owner ? [each.owner] : [])));
  const all = [...hurt.values()].sort((a, b) => a.at.localeCompare(b.at));
  const rows = isAll ? all : all.slice(0, 6);
  const atRisk = isAll ? risks : risks.slice(0, Math.max(0, 6 - rows.length));
  const more = all.length + risks.length - rows.length - atRisk.length;
  return (
    <Card place={2} title="Who is hurt" aside={truncated ? "more than are counted" : undefined}>
      <div className="figures">
        <div><b className={hurt.size ? "red" : ""}>{exact(hurt.size)}</b><span>affected</span></div>
        <div><b className={risks.length ? "amber" : ""}>{exact(risks.length)}</b><span>at risk next run</span></div>
        <div><b>{exact(owners.size)}</b><span>{owners.size === 1 ? "owner" : "owners"}</span></div>
      </div>
      {hurt.size + risks.length === 0 && <p className="soft">Nobody is known to have read what failed, or to read it next.</p>}
      <ul className="hurt">
        {rows.map((each) => (
          <li key={each.urn}>
            <Badge tone="red"><Time at={each.at} as="clock" /></Badge>
            <span>
              <DatasetLink urn={each.urn} />
              {each.columns && <span className="soft small breaks"> {each.columns.length > 0 ? `column ${each.columns.join(", ")}` : "none of its columns, as far as is told"}</span>}
            </span>
            <span className="soft small">{each.owner ? ownerName(each.owner) : ""}</span>
          </li>
        ))}
        {atRisk.map((each) => (
          <li key={each.urn}>
            <Badge tone="amber">{each.declared ? "declared" : "at risk"}</Badge>
            <DatasetLink urn={each.urn} />
            <span className="soft small">{each.owner ? ownerName(each.owner) : ""}</span>
          </li>
        ))}
      </ul>
      <p className="row wrap">
        {more > 0 && (
          <button type="button" className="button small plain" onClick={() => setAll(true)}>
            Show all {exact(all.length + risks.length)}
          </button>
        )}
        {one.dataset && <Link to={`${pathOf.lineage(`dataset:${one.dataset.urn}`)}&direction=down`}>open in lineage →</Link>}
      </p>
    </Card>
  );
}

/** Drawn when somebody gets there: the page is read before a graph is needed. */
function Impact({ one }: { one: Detail }) {
  const [isNear, setNear] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const watcher = new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && setNear(true), { rootMargin: "200px" });
    if (place.current) watcher.observe(place.current);
    return () => watcher.disconnect();
  }, []);
  if (!one.dataset || one.impact.affected.length + one.impact.at_risk.length === 0) return null;
  return (
    <Card place={4} title="How far it goes" aside="the same as the list of who is hurt, as a graph">
      <div ref={place} className="impact">
        {isNear && (
          <Suspense fallback={<Skeleton lines={1} height="20rem" />}>
            <ImpactGraph
              urn={one.dataset.urn}
              affected={one.impact.affected.map((each) => each.urn)}
              atRisk={one.impact.at_risk.map((each) => each.urn)}
            />
          </Suspense>
        )}
      </div>
    </Card>
  );
}

const DOTS: Record<string, string> = { failed: "bad", passed: "ok", resolve: "ok", acknowledge: "warn", mute: "warn" };

function Timeline({ one }: { one: Detail }) {
  const [note, setNote] = useState("");
  const { act, isBusy } = useActions();
  const mayAct = useMay("act");
  const root = one.candidates[0];
  const wrote = one.upstream.find((each) => each.run_id !== null && each.run_id === root?.run_id);
  const moments = [
    ...one.timeline,
    ...(wrote?.wrote_at && root ? [{ at: wrote.wrote_at, kind: "root", sentence: `${jobName(root.job.name)} wrote ${datasetName(wrote.urn)}`, run_id: root.run_id }] : []),
    ...one.impact.affected.slice(0, 1).map((each) => ({ at: each.at, kind: "harm", sentence: `${datasetName(each.urn)} was made of it`, run_id: each.run_id })),
  ].sort((a, b) => a.at.localeCompare(b.at)) as Schemas["Moment"][];
  return (
    <Card place={5} title="Timeline">
      <ol className="timeline">
        {moments.map((each, place) => (
          <li key={place}>
            <span className={`dot ${DOTS[each.kind] ?? (each.kind === "root" ? "bad" : each.kind === "harm" ? "warn" : "")}`} aria-hidden />
            <span className="breaks">
              <span className="soft small mono"><Time at={each.at} /></span>{" "}
              {each.kind === "failed" || each.kind === "passed" ? <Result moment={each} /> : each.kind === "comment" ? `${each.actor ?? ""} wrote` : each.sentence}
              {each.note && <span className="note" role="note">{each.note}</span>}
            </span>
          </li>
        ))}
      </ol>
      {mayAct && (
        <form
          className="row"
          onSubmit={(event) => {
            event.preventDefault();
            if (note.trim()) void act([one], { action: "comment", note: note.trim() }).then(() => setNote(""));
          }}
        >
          <input className="field grow" aria-label="Comment" placeholder="Write a comment" value={note} onChange={(event) => setNote(event.target.value)} />
          <button type="submit" className="button small" disabled={isBusy || !note.trim()}>
            Comment
          </button>
        </form>
      )}
    </Card>
  );
}

function Result({ moment: each }: { moment: Schemas["Moment"] }) {
  const message = /: (.+)$/.exec(each.sentence)?.[1];
  return (
    <>
      {each.kind === "passed" ? "passed" : "failed"}
      {each.run_id && <> in <RunLink id={each.run_id} /></>}
      {each.kind === "failed" && message && `: ${message}`}
    </>
  );
}

function SameRoot({ one }: { one: Detail }) {
  return (
    <Card place={6} title="Failed with it" aside={count(one.children.length, "consequence")}>
      <ul className="stack gap-s">
        {one.children.slice(0, 20).map((id) => (
          <Child key={id} id={id} />
        ))}
      </ul>
    </Card>
  );
}

function Child({ id }: { id: string }) {
  const found = useQuery({ ...incident(id), refetchInterval: false });
  const child = found.data;
  return (
    <li className="breaks">
      <Link to={pathOf.incident(id)} className="mono">{child?.test ? testName(child.test) : child ? jobName(child.test_run.job.name) : id}</Link>
      {child?.dataset && <span className="soft"> on {datasetName(child.dataset.urn)}</span>}
    </li>
  );
}

function SeenBefore({ one }: { one: Detail }) {
  if (one.similar.length === 0) {
    return (
      <Card place={7} title="Seen before">
        <p className="soft">No incident of this test, dataset or cause is known from before.</p>
      </Card>
    );
  }
  return (
    <Card place={7} title="Seen before">
      <ul className="stack gap-s">
        {one.similar.slice(0, 6).map((each) => (
          <li key={each.id}>
            <div className="row between">
              <span className="row gap-s wrap">
                <Badge tone={each.outcome === "open" ? "red" : "green"}>{each.outcome.replaceAll("_", " ")}</Badge>
                <Link to={pathOf.incident(each.id)}>{moment(each.opened_at)}</Link>
                <span className="soft small">{each.likeness.join(", ")}</span>
              </span>
              <span className="soft small nowrap">{each.took_s === null ? "" : duration(each.took_s)}</span>
            </div>
            {each.note && <p className="note">{each.note}</p>}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function sentence(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

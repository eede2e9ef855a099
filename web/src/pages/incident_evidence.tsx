// Why it is this run and no other: before and after, side by side, and what is as usual.
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Link } from "react-router";
import type { Schemas } from "../api/client";
import { amounts, job, run } from "../api/queries";
import { Badge, Card, JobLink, Owner, RunLink, Skeleton, Strength, Time } from "../components/basics";
import { Diff } from "../components/diff";
import { Plot } from "../components/plot";
import { commitLink, datasetName, jobName } from "../words/names";
import { bytes, count, exact, short } from "../words/numbers";
import { duration } from "../words/time";

type Detail = Schemas["IncidentDetail"];
type Candidate = Schemas["CandidateTold"];
type Evidence = Schemas["EvidenceTold"];

/** What each kind of evidence is called, as a tag and in the chain. */
export const KINDS: Record<string, { tag: string; tone: "red" | "amber" | "grey"; changed: string }> = {
  run_failed: { tag: "run failed", tone: "red", changed: "run failed" },
  missing_run: { tag: "missing run", tone: "red", changed: "run missing" },
  late_run: { tag: "late run", tone: "red", changed: "late" },
  test_failed: { tag: "test failed", tone: "red", changed: "test failed before" },
  unfinished_run: { tag: "unfinished run", tone: "red", changed: "never ended" },
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

export function Why({ one, root }: { one: Detail; root: Candidate }) {
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

export function NoProducer({ one }: { one: Detail }) {
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

export function Others({ candidates }: { candidates: Candidate[] }) {
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

function sentence(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

// How well things are: whether anything was lost, how far behind the facts are, and what does not fit.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link, useLocation } from "react-router";
import { get, post, type Schemas } from "../api/client";
import { LIVE, lag, ledger, statistics } from "../api/queries";
import { quarterAgo, useMay } from "../components/actions";
import { Badge, Card, DatasetLink, JobLink, Num, Owner, Problem, RunLink, Skeleton, Strength, Time, Wide } from "../components/basics";
import { Raw } from "../components/facets";
import { Paged } from "../components/paged";
import { useToasts } from "../components/toasts";
import { useTitle } from "../components/use_title";
import { producerName } from "../words/names";
import { bytes, count, exact } from "../words/numbers";
import { duration } from "../words/time";

export function Health() {
  useTitle("Health");
  const { hash } = useLocation();
  useEffect(() => {
    if (hash) document.getElementById(hash.slice(1))?.scrollIntoView();
  }, [hash]);
  return (
    <>
      <div className="page-head">
        <h1>Health</h1>
        <AsOf />
      </div>
      <div className="stack">
        <Ledger />
        <div className="columns even">
          <div className="stack">
            <Orphans />
            <Rejects />
            <TimesTaken />
          </div>
          <div className="stack">
            <MissingRuns />
            <Contradictions />
          </div>
        </div>
        <Producers />
      </div>
    </>
  );
}

function AsOf() {
  const found = useQuery(lag).data;
  const facts = found?.readers.find((reader) => reader.reader === "facts");
  if (!found) return null;
  return (
    <p className="soft">
      facts as of <Time at={found.facts_as_of} />, {facts?.events ? `${count(facts.events, "event")} wait` : "nothing waits"}
    </p>
  );
}

/** received = stored + duplicate + rejected, for each source, always. */
function Ledger() {
  const found = useQuery(ledger);
  const behind = useQuery(lag).data;
  if (found.isError) return <Problem error={found.error} />;
  if (!found.data) return <Skeleton lines={1} height="10rem" />;
  const { received, pipeline } = found.data;
  const lost = (one: Schemas["Received"]) => one.received - one.stored - one.duplicates - one.rejected;
  return (
    <Card title="The ledger" aside="what came in is stored, known already, or rejected with a reason: nothing else can happen to it">
      <Wide>
        <table>
          <thead>
            <tr>
              <th>Source</th>
              <th className="number">Received</th>
              <th className="number">Stored</th>
              <th className="number">Duplicates</th>
              <th className="number">Rejected</th>
              <th className="number">Lost</th>
            </tr>
          </thead>
          <tbody>
            {received.map((one) => (
              <tr key={one.source}>
                <td className="mono">{one.source}</td>
                <td className="number"><Num value={one.received} /></td>
                <td className="number"><Num value={one.stored} /></td>
                <td className="number"><Num value={one.duplicates} /></td>
                <td className={one.rejected ? "number amber" : "number"}><Num value={one.rejected} /></td>
                <td className={lost(one) ? "number red strong" : "number green"}><Num value={lost(one)} /></td>
              </tr>
            ))}
            {received.length === 0 && (
              <tr>
                <td colSpan={6} className="soft">
                  No event has come over HTTP yet. <Link to="/welcome">Send the first one</Link>.
                </td>
              </tr>
            )}
          </tbody>
        </table>
      </Wide>
      <h3 className="sub">The pipeline</h3>
      <Wide>
        <table>
          <thead>
            <tr>
              <th>Source</th>
              <th className="number">Batches</th>
              <th className="number">Read</th>
              <th className="number">Applied</th>
              <th className="number">Duplicates</th>
              <th className="number">Rejected</th>
              <th className="number">Last took</th>
              <th>Last batch</th>
            </tr>
          </thead>
          <tbody>
            {pipeline.map((one) => (
              <tr key={one.source}>
                <td className="mono breaks">{one.source}</td>
                <td className="number"><Num value={one.batches} /></td>
                <td className="number"><Num value={one.read} /></td>
                <td className="number"><Num value={one.applied} /></td>
                <td className="number"><Num value={one.duplicates} /></td>
                <td className="number"><Num value={one.rejected} /></td>
                <td className="number">{duration(one.last_batch_seconds)}</td>
                <td className="soft"><Time at={one.last_batch_at} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      {pipeline.length === 0 && <p className="soft">It has not merged anything yet: start it with <code>correlator up</code>.</p>}
      {behind && (
        <p className="soft small">
          {behind.readers.map((reader) => `${reader.reader} of ${reader.source}: ${reader.events ? `${count(reader.events, "event")} and ${duration(reader.seconds)} behind` : "up to date"}`).join("; ")}.
        </p>
      )}
    </Card>
  );
}

function Orphans() {
  const found = useQuery({ queryKey: ["orphans"], queryFn: () => get("/api/v1/health/orphans", { query: { limit: 20 } }) });
  const client = useQueryClient();
  const isAdmin = useMay("admin");
  const { say, complain } = useToasts();
  const accept = useMutation({
    mutationFn: (one: Schemas["Suggestion"]) => post("/api/v1/health/orphans/accept", { body: { pattern: one.pattern, target: one.target } }),
    onSuccess: (made, one) => {
      say(`${one.pattern} now means ${one.target}; it explains ${count(one.explains, "dataset")}. It stands under Settings.`);
      void client.invalidateQueries();
      return made;
    },
    onError: complain,
  });
  return (
    <section className="card" id="orphans">
      <header>
        <h2>Tested, and nobody is known to write it</h2>
      </header>
      {found.isError && <Problem error={found.error} />}
      {found.data?.items.length === 0 && <p className="soft">None: of everything that is tested a writer is known.</p>}
      <ul className="stack">
        {(found.data?.items ?? []).map((orphan) => (
          <li key={orphan.urn} className="stack gap-s">
            <p>
              <DatasetLink urn={orphan.urn} whole /> <span className="soft small">{count(orphan.tests, "test")}</span> {orphan.failing > 0 && <Badge tone="red">{orphan.failing} failing</Badge>}
            </p>
            {orphan.suggestions.length === 0 && <p className="soft small">No name that somebody writes looks like it. A pattern can be set up by hand under <Link to="/settings">Settings</Link>.</p>}
            {orphan.suggestions.map((one) => (
              <div key={one.pattern + one.target} className="suggestion">
                <div className="breaks">
                  <code>{one.pattern}</code> means <code>{one.target}</code>
                </div>
                <p className="soft small">{one.reasons.join("; ")}. It would explain {count(one.explains, "dataset")}.</p>
                <div className="row wrap between">
                  <Strength score={one.score} />
                  {isAdmin && (
                    <button type="button" className="button small" disabled={accept.isPending} onClick={() => accept.mutate(one)}>
                      Accept
                    </button>
                  )}
                </div>
              </div>
            ))}
          </li>
        ))}
      </ul>
    </section>
  );
}

function MissingRuns() {
  const found = useQuery({ queryKey: ["missing"], queryFn: () => get("/api/v1/health/missing-runs"), refetchInterval: 4 * LIVE });
  const [isAll, setAll] = useState(false);
  const items = found.data?.items ?? [];
  return (
    <Card title="Runs that are missing" aside="by each job's own rhythm">
      {found.isError && <Problem error={found.error} />}
      {found.data && items.length === 0 && <p className="soft">None: every job has run when it usually does.</p>}
      <Wide>
        <table>
          <tbody>
            {items.slice(0, isAll ? undefined : 8).map((one) => (
              <tr key={`${one.namespace}/${one.name}`}>
                <td><JobLink job={one} /></td>
                <td className="soft nowrap">every {duration(one.interval_s)}</td>
                <td className="amber nowrap">due <Time at={one.due_at} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      {!isAll && items.length > 8 && (
        <button type="button" className="button small plain" onClick={() => setAll(true)}>Show all {items.length}</button>
      )}
    </Card>
  );
}

function Rejects() {
  const found = useQuery({ queryKey: ["rejects", "health"], queryFn: () => get("/api/v1/health/rejects"), refetchInterval: 2 * LIVE });
  const isAdmin = useMay("admin");
  const [isListed, setListed] = useState(false);
  const told = found.data;
  return (
    <Card title="Rejected events" aside={told && `${exact(told.kept)} kept, ${bytes(told.kept_bytes)}${told.capped ? `; ${exact(told.capped)} removed for want of room` : ""}`}>
      {found.isError && <Problem error={found.error} />}
      {told?.reasons.length === 0 && <p className="soft">None that was not driven in again.</p>}
      <Wide>
        <table>
          <tbody>
            {(told?.reasons ?? []).map((one, place) => (
              <tr key={place}>
                <td className="number">{exact(one.events)}</td>
                <td><code>{one.rule}</code><div className="small breaks">{one.example}</div></td>
                <td className="soft small breaks">{one.producer ?? "no producer is named"}</td>
                <td className="soft nowrap"><Time at={one.last_at} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      {isAdmin && !!told?.kept && !isListed && (
        <button type="button" className="button" onClick={() => setListed(true)}>Look at each, and drive in again</button>
      )}
      {isListed && <RejectList />}
    </Card>
  );
}

function RejectList() {
  const client = useQueryClient();
  const { say, complain } = useToasts();
  const redrive = useMutation({
    mutationFn: (ids: number[]) => post("/api/v1/rejects/redrive", { body: { ids } }),
    onSuccess: (answer) => {
      const taken = answer.items.filter((one) => one.accepted).length;
      const refused = answer.items.find((one) => !one.accepted);
      say(`${count(taken, "event")} taken${answer.items.length > taken ? `, ${answer.items.length - taken} still refused: ${refused?.problems[0]?.message ?? ""}` : ""}.`);
      void client.invalidateQueries({ queryKey: ["rejects"] });
      void client.invalidateQueries({ queryKey: ["ledger"] });
    },
    onError: complain,
  });
  return (
    <Paged name={["rejects", "list"]} ask={(cursor, signal) => get("/api/v1/rejects", { query: { not_redriven: true, limit: 50, ...(cursor && { cursor }) }, signal })} empty={<p className="soft">None is left.</p>}>
      {(rejects: Schemas["RejectBrief"][]) => (
        <>
          <p>
            <button type="button" className="button small" disabled={redrive.isPending} onClick={() => redrive.mutate(rejects.map((one) => one.id))}>
              Judge these {rejects.length} again
            </button>
          </p>
          <ul className="stack gap-s">
            {rejects.map((one) => (
              <li key={one.id}>
                <details>
                  <summary>
                    <span className="soft small"><Time at={one.rejected_at} /> · layer {one.layer} · {one.source}</span> <span className="breaks">{one.sentence}</span>
                  </summary>
                  <RejectDetail id={one.id} />
                  <button type="button" className="button small" disabled={redrive.isPending} onClick={() => redrive.mutate([one.id])}>Judge it again</button>
                </details>
              </li>
            ))}
          </ul>
        </>
      )}
    </Paged>
  );
}

function RejectDetail({ id }: { id: number }) {
  const found = useQuery({ queryKey: ["rejects", id], queryFn: () => get("/api/v1/rejects/{id}", { path: { id } }) });
  if (!found.data) return <Skeleton lines={1} />;
  return (
    <>
      <ul>
        {found.data.problems.map((problem, place) => (
          <li key={place} className="breaks"><code>{problem.path || "the event"}</code> {problem.message}</li>
        ))}
      </ul>
      <Raw value={found.data.event} />
    </>
  );
}

/** What a report on a producer may hold; a server tells as much as it knows. */
interface Producer {
  producer: string | null;
  name?: string | null;
  version?: string | null;
  jobs: number;
  failing_jobs: number;
  integrations: string[];
  last_event_at: string | null;
  events?: number;
  warned_events?: number;
  warnings?: { rule: string; events: number; example: string }[];
  rejected_events?: number;
  rejects?: { rule: string; events: number; example: string }[];
  jobs_without_start?: number;
  jobs_without_end?: number;
  unmatched_names?: { urn: string; means: string | null }[];
}

function Producers() {
  const found = useQuery({ queryKey: ["producers"], queryFn: () => get("/api/v1/health/producers") });
  const items = (found.data?.items ?? []) as Producer[];
  return (
    <Card title="Producers" aside="who sends, and what they could tell better">
      {found.isError && <Problem error={found.error} />}
      {found.data && items.length === 0 && <p className="soft">Nobody has sent anything yet.</p>}
      <Wide>
        <table>
          <thead>
            <tr>
              <th>Producer</th>
              <th className="number">Jobs</th>
              <th className="number">Failing</th>
              <th>What could be better</th>
              <th>Last heard of</th>
            </tr>
          </thead>
          <tbody>
            {items.map((one) => (
              <tr key={one.producer ?? ""}>
                <td className="breaks" title={one.producer ?? ""}>
                  <span className="strong">{one.name ? producerName(one.name).name : one.producer ? producerName(one.producer).name : "none is named"}</span>{" "}
                  <span className="soft">{one.version ?? producerName(one.producer ?? "").version}</span>
                  <div className="soft small">{one.producer}</div>
                </td>
                <td className="number"><Num value={one.jobs} /></td>
                <td className={one.failing_jobs ? "number red" : "number"}><Num value={one.failing_jobs} /></td>
                <td className="small"><Advice of={one} /></td>
                <td className="soft nowrap">{one.last_event_at && <Time at={one.last_event_at} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
    </Card>
  );
}

function Advice({ of }: { of: Producer }) {
  const told = [
    ...(of.rejects ?? []).map((one) => `${count(one.events, "event")} rejected: ${one.example}`),
    ...(of.warnings ?? []).map((one) => `${count(one.events, "event")} warned: ${one.example}`),
    ...(of.jobs_without_start ? [`${count(of.jobs_without_start, "job")} never said START`] : []),
    ...(of.jobs_without_end ? [`${count(of.jobs_without_end, "job")} never said how it ended`] : []),
    ...(of.unmatched_names ?? []).map((one) => `nobody writes ${one.urn}${one.means ? `; ${one.means} is probably meant` : ""}`),
  ];
  if (told.length === 0) return <span className="soft">nothing that is known of</span>;
  return (
    <ul>
      {told.slice(0, 3).map((words) => (
        <li key={words} className="breaks">{words}</li>
      ))}
      {told.length > 3 && <li className="soft">and {told.length - 3} more</li>}
    </ul>
  );
}

function Contradictions() {
  return (
    <Card title="Contradictions" aside="what runs said that cannot all be true">
      <Paged name={["contradictions"]} ask={(cursor, signal) => get("/api/v1/health/contradictions", { query: { limit: 10, ...(cursor && { cursor }) }, signal })} empty={<p className="soft">None.</p>}>
        {(items: Schemas["ContradictingRun"][]) => (
          <ul className="stack gap-s">
            {items.map((one) => (
              <li key={one.id + one.kind} className="breaks">
                <JobLink job={one} /> <RunLink id={one.id} /> <span className="soft small"><Time at={one.at} /></span>
                <div className="small">{one.sentence}</div>
              </li>
            ))}
          </ul>
        )}
      </Paged>
    </Card>
  );
}

function TimesTaken() {
  const found = useQuery(statistics(quarterAgo()));
  const told = found.data?.statistics;
  const time = (seconds: number | null) => (seconds === null ? <span className="soft">–</span> : duration(seconds));
  return (
    <Card title="Time to acknowledge and resolve" aside="medians of 90 days">
      {found.isError && <Problem error={found.error} />}
      <Wide>
        <table>
          <thead>
            <tr>
              <th>Owner</th>
              <th className="number">Incidents</th>
              <th className="number">To acknowledge</th>
              <th className="number">To resolve</th>
            </tr>
          </thead>
          <tbody>
            {told && (
              <tr className="strong">
                <td>all</td>
                <td className="number">{exact(told.all.incidents)}</td>
                <td className="number">{time(told.all.median_to_acknowledge_s)}</td>
                <td className="number">{time(told.all.median_to_resolve_s)}</td>
              </tr>
            )}
            {(told?.owners ?? []).map(({ owner, times }) => (
              <tr key={owner ?? ""}>
                <td><Owner name={owner} /></td>
                <td className="number">{exact(times.incidents)}</td>
                <td className="number">{time(times.median_to_acknowledge_s)}</td>
                <td className="number">{time(times.median_to_resolve_s)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
    </Card>
  );
}

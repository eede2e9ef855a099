import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";
import type { Schemas } from "../api/client";
import { run as runQuery } from "../api/queries";
import { Badge, Breakable, Card, Crumbs, DatasetLink, JobLink, Num, Problem, RunLink, Skeleton, State, Time, Wide } from "../components/basics";
import { FacetList } from "../components/facets";
import { useTitle } from "../components/use_title";
import { jobName, pathOf, producerName, testName } from "../words/names";
import { bytes, count, exact } from "../words/numbers";
import { duration, secondsBetween } from "../words/time";

type Detail = Schemas["RunDetail"];

export function Run() {
  const { id = "" } = useParams();
  const found = useQuery(runQuery(id));
  const run = found.data?.run;
  useTitle(run?.job ? `Run of ${jobName(run.job.name)}` : "Run");
  if (found.isError) return <Problem error={found.error} retry={() => void found.refetch()} />;
  if (!run) return <Skeleton lines={3} height="8rem" />;
  return (
    <>
      <Crumbs>
        <Link to="/jobs">Jobs</Link>
        {run.root && run.root.job.name !== run.parent?.job.name && <> › <JobLink job={run.root.job} /> {run.root.id && <RunLink id={run.root.id} />}</>}
        {run.parent && <> › <JobLink job={run.parent.job} /> {run.parent.id && <RunLink id={run.parent.id} />}</>}
        {run.job && <> › <JobLink job={run.job} /></>}
      </Crumbs>
      <div className="page-head">
        <h1 className="breaks">
          Run of <span className="mono"><Breakable text={run.job ? jobName(run.job.name) : "a job that only others name"} /></span> {run.state && <State word={run.state} />}
        </h1>
        <Link className="button" to={pathOf.lineage(`run:${run.id}`)}>Lineage of this run</Link>
      </div>
      {run.error_message && (
        <section className="card problem">
          <h2>What it said when it failed</h2>
          <pre className="breaks">{run.error_message}</pre>
        </section>
      )}
      <div className="columns">
        <div className="stack">
          <Uses title="Wrote" uses={run.outputs} />
          <Uses title="Read" uses={run.inputs} />
          {run.results.length > 0 && <Results run={run} />}
          {run.children.length > 0 && <Children run={run} />}
          <Card title="Facets" aside="of this run alone">
            <FacetList facets={run.facets} />
          </Card>
        </div>
        <div className="stack">
          <Card title="About">
            <dl className="facts">
              <dt>id</dt>
              <dd className="mono breaks">{run.run_id ?? run.id}</dd>
              {run.started_at && (
                <>
                  <dt>started</dt>
                  <dd><Time at={run.started_at} /></dd>
                </>
              )}
              {run.ended_at && (
                <>
                  <dt>ended</dt>
                  <dd><Time at={run.ended_at} />{run.started_at && <span className="soft"> after {duration(secondsBetween(run.started_at, run.ended_at))}</span>}</dd>
                </>
              )}
              {run.nominal_time && (
                <>
                  <dt>for</dt>
                  <dd><Time at={run.nominal_time} /></dd>
                </>
              )}
              {run.integration && (
                <>
                  <dt>kind</dt>
                  <dd>{[run.integration, run.job_type, run.processing_type].filter(Boolean).join(" ").toLowerCase()}</dd>
                </>
              )}
              <dt>told by</dt>
              <dd className="breaks" title={run.producer ?? ""}>{run.producer ? Object.values(producerName(run.producer)).join(" ") : "others only"}</dd>
            </dl>
          </Card>
          <Card title="States">
            <ol className="timeline">
              {run.state_history.map((change, place) => (
                <li key={place}>
                  <span className={`dot ${change.state === "FAIL" || change.state === "ABORT" ? "bad" : change.state === "COMPLETE" ? "ok" : ""}`} aria-hidden />
                  <span><span className="soft small mono"><Time at={change.at} /></span> {change.state}</span>
                </li>
              ))}
            </ol>
            {run.contradictions.map((said, place) => (
              <p key={place} className="amber">{said.sentence}</p>
            ))}
          </Card>
        </div>
      </div>
    </>
  );
}

function Uses({ title, uses }: { title: string; uses: Detail["inputs"] }) {
  if (uses.length === 0) return <Card title={title}><p className="soft">Nothing that is known of.</p></Card>;
  return (
    <Card title={title} aside={count(uses.length, "dataset")}>
      <Wide>
        <table>
          <thead>
            <tr>
              <th>Dataset</th>
              <th className="number">Rows</th>
              <th className="number">Bytes</th>
              <th className="hide-narrow">When</th>
            </tr>
          </thead>
          <tbody>
            {uses.map((use) => (
              <tr key={use.urn}>
                <td>
                  <DatasetLink urn={use.urn} /> {use.lifecycle_change && <Badge>{use.lifecycle_change.toLowerCase()}</Badge>}
                  {use.version && <span className="soft small mono breaks"> version {use.version}</span>}
                </td>
                <td className="number">{use.rows === null ? <span className="soft">?</span> : <Num value={use.rows} />}</td>
                <td className="number soft" title={use.bytes === null ? "" : exact(use.bytes)}>{use.bytes === null ? "?" : bytes(use.bytes)}</td>
                <td className="soft hide-narrow">{use.used_at ? <Time at={use.used_at} /> : "not written"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
    </Card>
  );
}

function Results({ run }: { run: Detail }) {
  return (
    <Card title="Tested" aside={count(run.results.length, "result")}>
      <Wide>
        <table>
          <tbody>
            {run.results.map((result) => (
              <tr key={result.test_id}>
                <td><State word={result.status} /></td>
                <td className="mono breaks"><Breakable text={testName(result)} /></td>
                <td className="breaks">{result.message || (result.actual && `${result.actual}, expected ${result.expected}`)}</td>
                <td>{result.dataset && <DatasetLink urn={result.dataset} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
    </Card>
  );
}

function Children({ run }: { run: Detail }) {
  return (
    <Card title="Runs that it started" aside={count(run.children.length, "run")}>
      <Wide>
        <table>
          <tbody>
            {run.children.map((child) => (
              <tr key={child.id}>
                <td><State word={child.state} /></td>
                <td><JobLink job={child.job} /></td>
                <td><RunLink id={child.id} /></td>
                <td className="soft"><Time at={child.started_at} as="clock" /></td>
                <td className="number soft">{child.ended_at && duration(secondsBetween(child.started_at, child.ended_at))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
    </Card>
  );
}

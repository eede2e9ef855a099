import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";
import { get, type Schemas } from "../api/client";
import { LIVE, job as jobQuery } from "../api/queries";
import { Breakable, Card, Crumbs, Empty, JobLink, Owner, Problem, Skeleton, State, Time, Wide } from "../components/basics";
import { FacetList } from "../components/facets";
import { Paged } from "../components/paged";
import { RunsPlot } from "../components/runs_plot";
import { useTitle } from "../components/use_title";
import { jobName, pathOf } from "../words/names";
import { count } from "../words/numbers";
import { duration, secondsBetween } from "../words/time";
import { nameOf } from "./incidents";

export function Job() {
  const { namespace = "", name = "" } = useParams();
  const found = useQuery({ ...jobQuery(namespace, name), refetchInterval: 2 * LIVE });
  useTitle(jobName(name));
  if (found.isError) return <Problem error={found.error} retry={() => void found.refetch()} />;
  if (!found.data) return <Skeleton lines={3} height="8rem" />;
  const { job } = found.data;
  return (
    <>
      <Crumbs>
        <Link to="/jobs">Jobs</Link> › {job.namespace}
      </Crumbs>
      <div className="page-head">
        <h1 className="mono breaks"><Breakable text={job.name} /></h1>
        <span className="row wrap">
          <Link className="button" to={pathOf.lineage(`job:${job.namespace}/${job.name}`)}>Lineage</Link>
          <Link className="button" to={`/incidents?status=all&job=${encodeURIComponent(`${job.namespace}/${job.name}`)}`}>Incidents</Link>
        </span>
      </div>
      <div className="columns">
        <div className="stack">
          <Card title="Runs" aside="how long each took; a bar leads to its run">
            <RunHistory namespace={namespace} name={name} />
          </Card>
          {job.children.length > 0 && (
            <Card title="What runs under it" aside={count(job.children.length, "job")}>
              <Wide>
                <table>
                  <tbody>
                    {job.children.map((child) => (
                      <tr key={`${child.namespace}/${child.name}`}>
                        <td><JobLink job={child} /></td>
                        <td>{child.last_run && <State word={child.last_run.state} />}</td>
                        <td className="soft">{child.last_run && <Time at={child.last_run.started_at} />}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </Wide>
            </Card>
          )}
          <Card title="Facets" aside="as they stand, the latest statement of each">
            <FacetList facets={job.facets} />
          </Card>
        </div>
        <div className="stack">
          <Card title="About">
            <dl className="facts">
              <dt>owner</dt>
              <dd>{job.owners.length > 0 ? job.owners.map((owner) => <Owner key={owner.name} name={owner.name} />) : "nobody says"}</dd>
              {job.parents.length > 0 && (
                <>
                  <dt>runs under</dt>
                  <dd>{job.parents.map((parent) => <JobLink key={parent.name} job={parent} />)}</dd>
                </>
              )}
              <dt>first heard of</dt>
              <dd>{job.first_event_at ? <Time at={job.first_event_at} /> : "never by itself"}</dd>
              <dt>last heard of</dt>
              <dd>{job.last_event_at ? <Time at={job.last_event_at} /> : "never by itself"}</dd>
            </dl>
          </Card>
          <OfJob id={`${job.namespace}/${job.name}`} />
        </div>
      </div>
    </>
  );
}

function RunHistory({ namespace, name }: { namespace: string; name: string }) {
  return (
    <Paged
      name={["runs", namespace, name]}
      ask={(cursor, signal) => get("/api/v1/jobs/{namespace}/{name}/runs", { path: { namespace, name }, query: { limit: 60, ...(cursor && { cursor }) }, signal })}
      empty={<p className="soft">No run of it is known: others name it as their parent, or it was only declared.</p>}
    >
      {(runs: Schemas["RunBrief"][]) => (
        <div className="stack">
          <RunsPlot runs={runs} />
          <Wide>
            <table>
              <thead>
                <tr>
                  <th>Run</th>
                  <th>State</th>
                  <th>Started</th>
                  <th className="hide-narrow">For</th>
                  <th className="number">Took</th>
                </tr>
              </thead>
              <tbody>
                {runs.slice(0, runs.length > 60 ? undefined : 12).map((run) => (
                  <tr key={run.id}>
                    <td><Link to={pathOf.run(run.id)} className="mono" title={run.run_id}>…{run.run_id.slice(-8)}</Link></td>
                    <td><State word={run.state} /></td>
                    <td><Time at={run.started_at} /></td>
                    <td className="soft hide-narrow">{run.nominal_time && <Time at={run.nominal_time} />}</td>
                    <td className="number soft">{run.ended_at ? duration(secondsBetween(run.started_at, run.ended_at)) : "runs"}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Wide>
        </div>
      )}
    </Paged>
  );
}

function OfJob({ id }: { id: string }) {
  const found = useQuery({ queryKey: ["incidents", "of job", id], queryFn: () => get("/api/v1/incidents", { query: { job: id, limit: 6 } }) });
  return (
    <Card title="Incidents around it" aside="its own, and of what it writes">
      {found.data?.items.length === 0 && <Empty title="None so far" />}
      <ul className="stack gap-s">
        {(found.data?.items ?? []).map((one) => (
          <li key={one.id} className="breaks">
            <State word={one.status} /> <Link to={pathOf.incident(one.id)} className="mono">{nameOf(one)}</Link> <span className="soft small"><Time at={one.opened_at} /></span>
          </li>
        ))}
      </ul>
    </Card>
  );
}


import { useState } from "react";
import { Link, useSearchParams } from "react-router";
import { get } from "../api/client";
import { Breakable, Empty, State, Time, Wide } from "../components/basics";
import { Paged } from "../components/paged";
import { useSoon } from "../components/use_soon";
import { useTitle } from "../components/use_title";
import { pathOf } from "../words/names";
import { duration, secondsBetween } from "../words/time";
import { GettingStarted } from "./welcome";

/** What is typed, kept in the URL. */
export function useWords(): [string, (text: string) => void, string] {
  const [parameters, setParameters] = useSearchParams();
  const [text, setText] = useState(parameters.get("q") ?? "");
  const soon = useSoon(text);
  return [
    text,
    (next) => {
      setText(next);
      setParameters(next ? { q: next } : {}, { replace: true });
    },
    soon.trim(),
  ];
}

export function Jobs() {
  useTitle("Jobs");
  const [text, setText, q] = useWords();
  return (
    <>
      <div className="page-head">
        <h1>Jobs</h1>
      </div>
      <div className="filters" role="search">
        <input className="field search" type="search" aria-label="Search jobs" placeholder="words of the name, each at least its beginning" value={text} onChange={(event) => setText(event.target.value)} />
      </div>
      <Paged name={["jobs", q]} ask={(cursor, signal) => get("/api/v1/jobs", { query: { limit: 100, ...(q && { q }), ...(cursor && { cursor }) }, signal })} empty={q ? <Empty title="No job is called so" /> : <GettingStarted />}>
        {(jobs) => (
          <Wide isCard>
            <table>
              <thead>
                <tr>
                  <th>Job</th>
                  <th className="hide-narrow">Namespace</th>
                  <th>Last run</th>
                  <th className="hide-narrow">Started</th>
                  <th className="number hide-narrow">Took</th>
                </tr>
              </thead>
              <tbody>
                {jobs.map((job) => (
                  <tr key={`${job.namespace}/${job.name}`}>
                    <td>
                      <Link to={pathOf.job(job)} className="mono breaks">
                        <Breakable text={job.name} />
                      </Link>
                    </td>
                    <td className="soft breaks hide-narrow">{job.namespace}</td>
                    <td>
                      {job.last_run ? (
                        <Link className="quiet" to={pathOf.run(job.last_run.id)}>
                          <State word={job.last_run.state} />
                        </Link>
                      ) : (
                        <span className="soft">never ran</span>
                      )}
                    </td>
                    <td className="soft hide-narrow">{job.last_run && <Time at={job.last_run.started_at} />}</td>
                    <td className="number soft hide-narrow">{job.last_run?.ended_at && duration(secondsBetween(job.last_run.started_at, job.last_run.ended_at))}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Wide>
        )}
      </Paged>
    </>
  );
}

// One screen that tells the story: which run broke it, what changed, who is hurt. Everything below is its proof.
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";
import type { Schemas } from "../api/client";
import { incident } from "../api/queries";
import { AssignMenu, MuteMenu, ResolveMenu, useActions, useMay, type Deed } from "../components/actions";
import { Breakable, Crumbs, Problem, Skeleton, State, Time } from "../components/basics";
import { useKeys } from "../components/use_keys";
import { useTitle } from "../components/use_title";
import { datasetName, jobName, ownerName, pathOf, testName } from "../words/names";
import { count, exact } from "../words/numbers";
import { NoProducer, Others, Why } from "./incident_evidence";
import { Hurt, Impact, SameRoot, SeenBefore, Timeline } from "./incident_people";
import { WhatHappened } from "./incident_story";

type Detail = Schemas["IncidentDetail"];

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

// Who is hurt, what happened when, what people did, and what was known before.
import { useQuery } from "@tanstack/react-query";
import { Suspense, lazy, useEffect, useRef, useState } from "react";
import { Link } from "react-router";
import type { Schemas } from "../api/client";
import { incident } from "../api/queries";
import { useActions, useMay } from "../components/actions";
import { Badge, Card, DatasetLink, RunLink, Skeleton, Time } from "../components/basics";
import { datasetName, jobName, ownerName, pathOf, testName } from "../words/names";
import { count, exact } from "../words/numbers";
import { duration, moment } from "../words/time";

type Detail = Schemas["IncidentDetail"];

const ImpactGraph = lazy(() => import("../graph/impact_graph"));

export function Hurt({ one }: { one: Detail }) {
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
export function Impact({ one }: { one: Detail }) {
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

export function Timeline({ one }: { one: Detail }) {
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

export function SameRoot({ one }: { one: Detail }) {
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

export function SeenBefore({ one }: { one: Detail }) {
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

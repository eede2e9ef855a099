// Where data comes from and where it goes, as of any moment; every state of the page has a link.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Slider } from "radix-ui";
import { Suspense, lazy, useCallback, useMemo, useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";
import { get, type Schemas } from "../api/client";
import { LIVE, search } from "../api/queries";
import { Badge, Card, Empty, Problem, Skeleton, Wide } from "../components/basics";
import { useSoon } from "../components/use_soon";
import { useTitle } from "../components/use_title";
import type { Paint } from "../graph/canvas";
import { picture, type Drawn, type Picture } from "../graph/model";
import { datasetName, pathOf } from "../words/names";
import { count } from "../words/numbers";
import { inUtc, moment } from "../words/time";

const Canvas = lazy(async () => ({ default: (await import("../graph/canvas")).Canvas }));

const DIRECTIONS = { both: "both ways", up: "upstream", down: "downstream" } as const;
const DEPTHS = [1, 2, 3, 5, 10, 20];
const SPANS = { "7": "a week", "30": "30 days", "90": "90 days", "365": "a year" } as const;
const STEPS = 240;

/** What is asked for, kept in the URL. */
function useAsked() {
  const [parameters, setParameters] = useSearchParams();
  const direction = parameters.get("direction");
  const depth = Number(parameters.get("depth") ?? 2);
  return {
    node: parameters.get("node"),
    direction: direction === "up" ? ("up" as const) : direction === "down" ? ("down" as const) : ("both" as const),
    depth: Number.isInteger(depth) && depth > 0 && depth <= 100 ? depth : 2,
    level: parameters.get("level") === "column" ? ("column" as const) : ("table" as const),
    asOf: parameters.get("as_of"),
    from: parameters.get("from"),
    days: parameters.get("days") ?? "30",
    set: (changes: Record<string, string | null>) =>
      setParameters(
        (before) => {
          const next = new URLSearchParams(before);
          for (const [name, value] of Object.entries(changes)) {
            if (value === null) next.delete(name);
            else next.set(name, value);
          }
          return next;
        },
        { replace: true },
      ),
  };
}
type Asked = ReturnType<typeof useAsked>;

export function Lineage() {
  const asked = useAsked();
  useTitle(asked.node ? `Lineage of ${nameOf(asked.node)}` : "Lineage");
  return (
    <>
      <div className="page-head">
        <h1>Lineage</h1>
        {asked.node && <span className="mono breaks">{nameOf(asked.node)}</span>}
      </div>
      <NodeSearch onPick={(node) => asked.set({ node, ...(node.startsWith("column:") ? { level: "column" } : {}) })} />
      {asked.node ? <View asked={asked} node={asked.node} /> : <Begin />}
    </>
  );
}

function nameOf(node: string): string {
  const [, rest = ""] = /^\w+:(.*)$/.exec(node) ?? [];
  return node.startsWith("dataset:") || node.startsWith("column:") ? datasetName(rest) : rest;
}

function NodeSearch({ onPick }: { onPick: (node: string) => void }) {
  const [text, setText] = useState("");
  const asked = useSoon(text, 150);
  const found = useQuery(search(asked));
  const items = asked.trim() ? (found.data?.items ?? []).filter((one) => one.kind !== "test") : [];
  const pick = (one: Schemas["Found"]) => {
    setText("");
    onPick(one.id);
  };
  return (
    <form
      className="node-search"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        if (items[0]) pick(items[0]);
      }}
    >
      <input className="field" type="search" aria-label="Show the lineage of" placeholder="show the lineage of a dataset, job, column or run" value={text} onChange={(event) => setText(event.target.value)} />
      {text.trim() && items.length > 0 && (
        <ul className="popover found" aria-label="What was found">
          {items.map((one) => (
            <li key={one.id} className="choices">
              <button type="button" onClick={() => pick(one)}>
                <span className="mono breaks">{one.name}</span>
                <span className="soft small">{one.kind}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </form>
  );
}

function Begin() {
  const found = useQuery({ queryKey: ["datasets", "first"], queryFn: () => get("/api/v1/datasets", { query: { limit: 24 } }) });
  if (!found.data) return <Skeleton lines={1} height="12rem" />;
  if (found.data.items.length === 0) {
    return (
      <Empty title="No dataset is known yet">
        <p>
          Lineage is drawn from the events of runs. <Link to="/welcome">Send the first one</Link>.
        </p>
      </Empty>
    );
  }
  return (
    <Card title="Begin anywhere" aside="search above, or take one of these">
      <ul className="names">
        {found.data.items.map((one) => (
          <li key={one.urn}>
            <Link className="mono breaks" to={pathOf.lineage(`dataset:${one.called}`)} title={one.urn}>
              {datasetName(one.urn)}
            </Link>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function View({ asked, node }: { asked: Asked; node: string }) {
  const { direction, depth, level, asOf, from } = asked;
  const common = { node, direction, depth, level };
  const graph = useQuery({
    queryKey: ["lineage", common, asOf],
    queryFn: ({ signal }) => get("/api/v1/lineage", { query: { ...common, ...(asOf && { as_of: asOf }) }, signal }),
    placeholderData: keepPreviousData,
    ...(asOf ? {} : { refetchInterval: 4 * LIVE }),
  });
  const difference = useQuery({
    queryKey: ["lineage", "difference", common, from, asOf],
    queryFn: ({ signal }) => get("/api/v1/lineage/diff", { query: { ...common, from: from ?? "", ...(asOf && { to: asOf }) }, signal }),
    enabled: from !== null,
    placeholderData: keepPreviousData,
  });
  const failing = useFailing();
  const changes = from !== null ? (difference.data?.difference ?? null) : null;
  const drawn = useMemo(() => (graph.data ? picture(graph.data.graph, changes) : null), [graph.data, changes]);
  const paint = useCallback((one: Drawn): Paint | null => (failing.has(one.id) ? { className: "failing", words: "failing now" } : null), [failing]);
  return (
    <>
      <div className="lineage-bar">
        <div className="tabs" role="group" aria-label="Direction">
          {Object.entries(DIRECTIONS).map(([key, words]) => (
            <button key={key} type="button" aria-pressed={direction === key} onClick={() => asked.set({ direction: key === "both" ? null : key })}>
              {words}
            </button>
          ))}
        </div>
        <div className="tabs" role="group" aria-label="Level">
          {(["table", "column"] as const).map((key) => (
            <button key={key} type="button" aria-pressed={level === key} onClick={() => asked.set({ level: key === "table" ? null : key })}>
              {key}s
            </button>
          ))}
        </div>
        <label className="row soft small">
          depth
          <select className="field" value={depth} onChange={(event) => asked.set({ depth: event.target.value })}>
            {[...new Set([...DEPTHS, depth])].sort((a, b) => a - b).map((one) => (
              <option key={one} value={one}>
                {count(one, "job")}
              </option>
            ))}
          </select>
        </label>
        <PageOf node={node} />
      </div>
      <TimeBar asked={asked} />
      {graph.isError && <Problem error={graph.error} retry={() => void graph.refetch()} />}
      {difference.isError && <Problem error={difference.error} />}
      {drawn && (
        <>
          {drawn.isCut && (
            <p className="banner">
              <strong>Not all of it.</strong> There is more than one answer may hold: go less deep, or in one direction.
            </p>
          )}
          <Suspense fallback={<div className="canvas"><Skeleton lines={1} height="100%" /></div>}>
            <Canvas picture={drawn} paint={paint} label={`Lineage of ${nameOf(node)}; the list below says the same`} onOpen={(one) => asked.set({ node: one.id })} />
          </Suspense>
          <Legend hasChanges={changes !== null} drawn={drawn} />
          <AsList drawn={drawn} failing={failing} />
        </>
      )}
      {!drawn && !graph.isError && <div className="canvas"><Skeleton lines={1} height="100%" /></div>}
    </>
  );
}

function PageOf({ node }: { node: string }) {
  const [, kind, rest = ""] = /^(\w+):(.*)$/.exec(node) ?? [];
  const urn = kind === "column" ? rest.slice(0, rest.lastIndexOf("#")) : rest;
  const slash = rest.lastIndexOf("/");
  const to = kind === "job" ? pathOf.job({ namespace: rest.slice(0, slash), name: rest.slice(slash + 1) }) : kind === "run" ? pathOf.run(rest) : pathOf.dataset(urn);
  return <Link to={to}>its page →</Link>;
}

/** What has an open incident, by the ids of the graph. */
function useFailing(): Set<string> {
  const found = useQuery({
    queryKey: ["incidents", "failing"],
    queryFn: () => get("/api/v1/incidents", { query: { status: "open", limit: 500 } }),
    refetchInterval: 2 * LIVE,
  });
  return useMemo(
    () =>
      new Set(
        (found.data?.items ?? []).map((one) =>
          one.kind === "run" ? `job:${one.test_run.job.namespace}/${one.test_run.job.name}` : `dataset:${one.dataset?.urn ?? ""}`,
        ),
      ),
    [found.data],
  );
}

/** Slide to see how it stood; compare to see what came and went since. */
function TimeBar({ asked }: { asked: Asked }) {
  const { asOf, from, days, set } = asked;
  // The right end stands for now, as of when the page was opened.
  const [now] = useState(() => Date.now());
  const span = Number(days) * 86_400_000;
  const place = (at: string | null) => (at === null ? STEPS : Math.round(Math.min(1, Math.max(0, 1 - (now - new Date(at).getTime()) / span)) * STEPS));
  const at = (step: number) => (step >= STEPS ? null : new Date(now - span * (1 - step / STEPS)).toISOString());
  const standing = from === null ? [place(asOf)] : [place(from), place(asOf)];
  const [sliding, setSliding] = useState<number[] | null>(null);
  const values = sliding ?? standing;
  const told = values.map(at);
  const commit = (steps: number[]) => {
    setSliding(null);
    const [first = STEPS, second = STEPS] = steps;
    if (from === null) set({ as_of: at(first) });
    else set({ from: at(Math.min(first, STEPS - 1)), as_of: at(second) });
  };
  const words = (moments: (string | null)[]) => moments.map((one) => (one === null ? "now" : moment(one))).join(" and ");
  return (
    <div className="time-bar">
      <span>
        {from === null ? "As of " : "Between "}
        <strong title={told.map((one) => (one ? inUtc(one) : "now")).join(", ")}>{words(told)}</strong>
      </span>
      <Slider.Root className="slider" min={0} max={STEPS} step={1} value={values} onValueChange={setSliding} onValueCommit={commit}>
        <Slider.Track className="slider-track">
          <Slider.Range className="slider-range" />
        </Slider.Track>
        {values.map((_, number) => (
          <Slider.Thumb key={number} className="slider-thumb" aria-label={from === null ? "As of" : number === 0 ? "From" : "To"} aria-valuetext={words([told[number] ?? null])} />
        ))}
      </Slider.Root>
      <span className="row wrap">
        <select className="field" aria-label="How far back" value={days} onChange={(event) => set({ days: event.target.value })}>
          {Object.entries(SPANS).map(([key, name]) => (
            <option key={key} value={key}>
              {name}
            </option>
          ))}
        </select>
        <button type="button" className="button" aria-pressed={from !== null} onClick={() => set({ from: from === null ? at(Math.max(0, place(asOf) - STEPS / 4)) : null })}>
          {from === null ? "Compare" : "Do not compare"}
        </button>
        {asOf && (
          <button type="button" className="button" onClick={() => set({ as_of: null })}>
            Now
          </button>
        )}
      </span>
    </div>
  );
}

function Legend({ hasChanges, drawn }: { hasChanges: boolean; drawn: Picture }) {
  return (
    <div className="legend">
      <span><i /> dataset</span>
      <span><i className="job" /> job</span>
      <span><i className="failing" /> failing now</span>
      <span><i className="declared" /> only declared, not seen in a run</span>
      {hasChanges && (
        <>
          <span><i className="added" /> came since</span>
          <span><i className="removed" /> gone since</span>
        </>
      )}
      <span className="grow" />
      <span>
        {count(drawn.nodes.length, "node")}, {count(drawn.lines.length, "edge")}
        {hasChanges && `; ${count(drawn.nodes.filter((node) => node.change === "added").length, "node")} came, ${drawn.nodes.filter((node) => node.change === "removed").length} gone; ${count(drawn.lines.filter((line) => line.change === "added").length, "edge")} came, ${drawn.lines.filter((line) => line.change === "removed").length} gone`}
      </span>
    </div>
  );
}

const MOST_LISTED = 300;

/** The same answer for who does not see graphs, or wants to copy it. */
function AsList({ drawn, failing }: { drawn: Picture; failing: Set<string> }) {
  const navigate = useNavigate();
  const byDistance = [...drawn.nodes].sort((a, b) => a.distance - b.distance || a.kind.localeCompare(b.kind) || a.name.localeCompare(b.name));
  const where = (distance: number) => (distance === 0 ? "here" : `${Math.abs(distance)} ${distance < 0 ? "up" : "down"}`);
  return (
    <details className="card list-of-nodes">
      <summary>The same as a list</summary>
      <Wide>
        <table>
          <thead>
            <tr>
              <th>where</th>
              <th>kind</th>
              <th>name</th>
              <th />
            </tr>
          </thead>
          <tbody>
            {byDistance.slice(0, MOST_LISTED).map((node) => (
              <tr key={node.id}>
                <td className="nowrap soft">{where(node.distance)}</td>
                <td className="soft">{node.kind}</td>
                <td>
                  <Link to={node.path} className="mono breaks" title={node.title}>{node.name}</Link>
                  {node.columns.length > 0 && <span className="soft small mono breaks"> {node.columns.join(", ")}</span>}{" "}
                  {failing.has(node.id) && <Badge tone="red">failing now</Badge>} {node.change && <Badge tone={node.change === "added" ? "green" : "red"}>{node.change === "added" ? "came since" : "gone since"}</Badge>}
                </td>
                <td className="right">
                  <button type="button" className="button small" onClick={() => void navigate(pathOf.lineage(node.id))}>
                    From here
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      {byDistance.length > MOST_LISTED && <p className="soft">And {count(byDistance.length - MOST_LISTED, "more node")}: go less deep to list them.</p>}
    </details>
  );
}

// What is wrong now, one line for each root, with its cause already named.
import { keepPreviousData, useQueries, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { Link, useLocation, useNavigate, useSearchParams } from "react-router";
import { get, type Schemas } from "../api/client";
import { LIVE, statistics } from "../api/queries";
import { MuteMenu, ResolveMenu, AssignMenu, quarterAgo, useActions, useMay, type Deed } from "../components/actions";
import { Badge, Breakable, DatasetLink, Empty, JobLink, Owner, Problem, Skeleton, State, Time } from "../components/basics";
import { Sparkline } from "../components/sparkline";
import { useKeys } from "../components/use_keys";
import { useSoon } from "../components/use_soon";
import { useTitle } from "../components/use_title";
import { datasetName, jobName, ownerName, pathOf, testName } from "../words/names";
import { count, exact, percent } from "../words/numbers";
import { duration } from "../words/time";
import { GettingStarted } from "./welcome";

type Item = Schemas["IncidentItem"];
type Brief = Schemas["IncidentBrief"];
type Asked = NonNullable<Parameters<typeof get<"/api/v1/incidents">>[1]>["query"];

const STATUSES = ["open", "acknowledged", "muted", "resolved", "all"] as const;
const SORTS = {
  "-opened_at": "newest first",
  opened_at: "oldest first",
  "-last_failed_at": "last failure first",
  last_failed_at: "longest quiet first",
} as const;
const TIMES = { "1": "last 24 hours", "7": "last 7 days", "30": "last 30 days", "90": "last 90 days" } as const;
/** Filters that are a name; `q` and the choices have places of their own. */
const NAMED = ["dataset", "job", "owner", "assignee", "producer"] as const;
const A_PAGE = 50;
/** The causes of so many rows are asked for at once: each takes a while, and the first ones are read first. */
const AT_ONCE = 5;

export function Incidents() {
  useTitle("Incidents");
  const view = useView();
  const counts = useQuery({
    queryKey: ["incidents", "counts", view.filters],
    queryFn: () => get("/api/v1/incidents/counts", { query: { ...view.filters, status: "all", roots: true } }),
    refetchInterval: LIVE,
    placeholderData: keepPreviousData,
  });
  const byStatus = counts.data?.counts.status;
  const isEmptyServer = counts.data?.counts.total === 0 && view.isUnfiltered;
  return (
    <>
      <div className="page-head">
        <h1>Incidents</h1>
        <TimesToResolve />
      </div>
      <nav className="tabs" aria-label="Status">
        {STATUSES.map((status) => (
          <Link key={status} to={view.with({ status: status === "open" ? null : status })} aria-current={status === view.status ? "page" : undefined}>
            {status.charAt(0).toUpperCase() + status.slice(1)}
            {byStatus && <span className="number">{exact(status === "all" ? (counts.data?.counts.total ?? 0) : (byStatus[status] ?? 0))}</span>}
          </Link>
        ))}
      </nav>
      <FilterBar view={view} severities={Object.keys(counts.data?.counts.severity ?? {})} />
      {isEmptyServer ? <Nothing /> : <List key={view.key} view={view} />}
    </>
  );
}

/** What is asked for, kept in the URL, so that any view can be pasted into a chat. */
function useView() {
  const [parameters, setParameters] = useSearchParams();
  return useMemo(() => {
    const status = STATUSES.find((one) => one === parameters.get("status")) ?? "open";
    const sort = (parameters.get("sort") ?? "-opened_at") as keyof typeof SORTS;
    const days = parameters.get("days");
    const kind = parameters.get("kind");
    const filters: NonNullable<Asked> = {
      ...(parameters.get("q") && { q: parameters.get("q") ?? "" }),
      ...(parameters.get("severity") && { severity: parameters.get("severity") ?? "" }),
      ...((kind === "test" || kind === "run") && { kind }),
      ...Object.fromEntries(NAMED.flatMap((name) => (parameters.get(name) ? [[name, parameters.get(name)]] : []))),
      ...(days && Number(days) > 0 && { since: daysAgo(Number(days)) }),
    };
    const change = (changes: Record<string, string | null>) => {
      const next = new URLSearchParams(parameters);
      next.delete("cursor");
      for (const [name, value] of Object.entries(changes)) {
        if (value) next.set(name, value);
        else next.delete(name);
      }
      return next;
    };
    return {
      status, sort: sort in SORTS ? sort : "-opened_at", filters, parameters,
      cursor: parameters.get("cursor") ?? undefined,
      key: parameters.toString(),
      isUnfiltered: Object.keys(filters).length === 0,
      with: (changes: Record<string, string | null>) => `?${change(changes)}`,
      set: (changes: Record<string, string | null>) => setParameters(change(changes), { replace: true }),
    };
  }, [parameters, setParameters]);
}
type View = ReturnType<typeof useView>;

function muteForADay(): Deed {
  return { action: "mute", until: new Date(Date.now() + 86_400_000).toISOString() };
}

/** To the hour, so that the same question has the same words for a while. */
function daysAgo(days: number): string {
  return new Date(Math.floor(Date.now() / 3_600_000) * 3_600_000 - days * 86_400_000).toISOString();
}

function TimesToResolve() {
  const month = useQuery(statistics(daysAgo(30)));
  const before = useQuery(statistics(daysAgo(60), daysAgo(30)));
  const now = month.data?.statistics.all.median_to_resolve_s;
  const then = before.data?.statistics.all.median_to_resolve_s;
  if (!now) return null;
  const change = then ? (now - then) / then : null;
  return (
    <p className="soft">
      median time to resolve, 30 days: <strong>{duration(now)}</strong>{" "}
      {change !== null && Math.abs(change) >= 0.05 && (
        <span className={change < 0 ? "green" : "amber"}>
          {change < 0 ? "▼" : "▲"} {percent(Math.abs(change))}
        </span>
      )}
    </p>
  );
}

function FilterBar({ view, severities }: { view: View; severities: string[] }) {
  const [text, setText] = useState(view.filters.q ?? "");
  const soon = useSoon(text);
  const { set } = view;
  const owners = useQuery(statistics(quarterAgo())).data?.statistics.owners ?? [];
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) isFirst.current = false;
    else set({ q: soon.trim() || null });
    // Only what was typed asks anew; another filter carries its own words.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [soon]);
  const [isMore, setMore] = useState(false);
  const value = (name: string) => view.parameters.get(name) ?? "";
  const choice = (name: string, label: string, choices: [string, string][]) => (
    <select className={value(name) ? "field set" : "field"} aria-label={label} value={value(name)} onChange={(event) => view.set({ [name]: event.target.value || null })}>
      <option value="">{label}</option>
      {choices.map(([key, words]) => (
        <option key={key} value={key}>
          {words}
        </option>
      ))}
    </select>
  );
  return (
    <>
      <div className="filters" role="search">
        <input className="field search" type="search" placeholder="search test, dataset, job, message …" aria-label="Search incidents" value={text} onChange={(event) => setText(event.target.value)} />
        {choice("owner", "any owner", owners.flatMap(({ owner }) => (owner ? [[owner, ownerName(owner)] as [string, string]] : [])))}
        {choice("severity", "any severity", [...new Set([...severities, ...(value("severity") ? [value("severity")] : [])])].map((one) => [one, one]))}
        {choice("kind", "tests and runs", [["test", "failed tests"], ["run", "failed runs"]])}
        {choice("days", "any time", Object.entries(TIMES))}
        <select className="field" aria-label="Order" value={view.sort} onChange={(event) => view.set({ sort: event.target.value === "-opened_at" ? null : event.target.value })}>
          {Object.entries(SORTS).map(([key, words]) => (
            <option key={key} value={key}>
              {words}
            </option>
          ))}
        </select>
        <button type="button" className="button" aria-expanded={isMore} onClick={() => setMore(!isMore)}>
          More filters
        </button>
      </div>
      {isMore && (
        <form
          className="filters"
          onSubmit={(event) => {
            event.preventDefault();
            const said = new FormData(event.currentTarget);
            const text = (name: string) => {
              const given = said.get(name);
              return typeof given === "string" && given.trim() ? given.trim() : null;
            };
            view.set({ dataset: text("dataset"), job: text("job"), producer: text("producer"), assignee: text("assignee") });
          }}
        >
          {(
            [
              ["dataset", "dataset (URN)", "postgres://db:5432/shop.public.orders"],
              ["job", "job (namespace/name)", "airflow-prod/daily.load_orders"],
              ["producer", "producer (a part of it)", "dbt"],
              ["assignee", "assigned to", "ann"],
            ] as const
          ).map(([name, label, example]) => (
            <label key={name} className="labelled grow">
              {label}
              <input className="field" name={name} defaultValue={value(name)} placeholder={example} />
            </label>
          ))}
          <button type="submit" className="button">
            Filter
          </button>
        </form>
      )}
      <div className="chips" hidden={NAMED.every((name) => !value(name))}>
        {NAMED.filter((name) => value(name)).map((name) => (
          <span key={name} className="chip">
            <span className="cut">
              {name}: <span className="mono">{name === "dataset" ? datasetName(value(name)) : value(name)}</span>
            </span>
            <button type="button" aria-label={`Remove the filter ${name}`} onClick={() => view.set({ [name]: null })}>
              ×
            </button>
          </span>
        ))}
      </div>
    </>
  );
}

/** The rows stay where they are while one looks at them; what is new is announced, and comes when it is asked for. */
function useSteady(items: Item[] | undefined) {
  const [shown, setShown] = useState<Item[] | null>(null);
  if (items !== undefined && shown === null) setShown(items);
  const latest = useMemo(() => new Map((items ?? []).map((item) => [item.id, item])), [items]);
  const rows = (shown ?? []).map((item) => latest.get(item.id) ?? item);
  const known = new Set(rows.map((item) => item.id));
  const fresh = (items ?? []).filter((item) => !known.has(item.id));
  return {
    rows,
    fresh: fresh.length,
    gone: new Set(items ? rows.filter((item) => !latest.has(item.id)).map((item) => item.id) : []),
    showFresh: () => setShown(items ?? []),
  };
}

function List({ view }: { view: View }) {
  const navigate = useNavigate();
  const location = useLocation();
  const listed = useQuery({
    queryKey: ["incidents", "list", view.key],
    queryFn: ({ signal }) =>
      get("/api/v1/incidents", {
        signal,
        query: { ...view.filters, status: view.status, sort: view.sort, roots: true, limit: A_PAGE, ...(view.cursor && { cursor: view.cursor }) },
      }),
    refetchInterval: LIVE,
  });
  const { rows, fresh, gone, showFresh } = useSteady(listed.data?.items);
  const briefs = useBriefs(rows);
  const sharing = new Map<string, number>();
  for (const brief of briefs.values()) {
    const run = brief.root_cause?.run_id;
    if (run) sharing.set(run, (sharing.get(run) ?? 0) + 1);
  }
  const [changed, setChanged] = useState<Map<string, Schemas["ActionAnswer"]>>(new Map());
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [at, setAt] = useState(-1);
  const { act, isBusy } = useActions((answers) => setChanged((before) => new Map([...before, ...answers])));
  const mayAct = useMay("act");
  const now = rows.map((item) => {
    const answer = changed.get(item.id);
    return answer ? { ...item, status: answer.status, assignee: answer.assignee } : item;
  });
  const current = now[at];
  const chosen = now.filter((item) => selected.has(item.id));
  const meant = chosen.length > 0 ? chosen : current ? [current] : [];
  const toggle = (id: string) =>
    setSelected((before) => {
      const next = new Set(before);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  const does = (deed: Deed) => {
    setSelected(new Set());
    void act(meant, deed);
  };
  const move = (step: number) => {
    const next = Math.min(Math.max(0, at + step), now.length - 1);
    setAt(next);
    document.getElementById(`incident-${next}`)?.scrollIntoView({ block: "nearest" });
  };
  const guarded = (deed: () => Deed) => () => {
    if (mayAct && meant.length > 0) does(deed());
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: () => {
      if (current) void navigate(pathOf.incident(current.id));
    },
    o: () => {
      if (current) void navigate(pathOf.incident(current.id));
    },
    x: () => {
      if (current) toggle(current.id);
    },
    a: guarded(() => ({ action: "acknowledge" })),
    m: guarded(muteForADay),
    r: guarded(() => ({ action: "resolve", reason: "fixed" })),
    Escape: () => setSelected(new Set()),
  });
  if (listed.isError && rows.length === 0) return <Problem error={listed.error} retry={() => void listed.refetch()} />;
  if (listed.isPending) return <Skeleton lines={6} height="5rem" />;
  const stack = ((location.state as { before?: string[] } | null)?.before ?? []);
  const nextCursor = listed.data?.next_cursor;
  const page = (cursor: string | null, before: string[]) => {
    const next = new URLSearchParams(view.parameters);
    if (cursor) next.set("cursor", cursor);
    else next.delete("cursor");
    void navigate({ search: `?${next}` }, { state: { before } });
    window.scrollTo({ top: 0 });
  };
  const failures = now.reduce((sum, item) => sum + 1 + item.children, 0);
  return (
    <>
      {fresh > 0 && (
        <div className="announce" role="status">
          <button type="button" className="button small" onClick={showFresh}>
            ↑ {count(fresh, "new incident")}: show
          </button>
        </div>
      )}
      {now.length === 0 ? (
        <div className="card">
          <Empty title={view.isUnfiltered && view.status === "open" ? "Nothing is wrong" : "None"}>
            <p>{view.isUnfiltered ? "No incident is " + view.status + "." : "No incident fits these filters. Take one away, or look at all of them."}</p>
            {!view.isUnfiltered && (
              <p>
                <Link to="?">Clear all filters</Link>
              </p>
            )}
          </Empty>
        </div>
      ) : (
        <ul className={selected.size > 0 ? "incidents selecting" : "incidents"} aria-label="Incidents">
          {now.map((item, place) => (
            <li key={item.id} id={`incident-${place}`}>
              <Row
                item={item}
                brief={briefs.get(item.id)}
                sharing={(sharing.get(briefs.get(item.id)?.root_cause?.run_id ?? "") ?? 1) - 1}
                isAt={place === at}
                isDone={gone.has(item.id) || (view.status !== "all" && item.status !== view.status)}
                isSelected={selected.has(item.id)}
                onSelect={mayAct ? () => toggle(item.id) : null}
              />
            </li>
          ))}
        </ul>
      )}
      {chosen.length > 0 && (
        <div className="bulk" role="toolbar" aria-label="What to do with those chosen">
          <span>{exact(chosen.length)} chosen</span>
          <button type="button" className="button small primary" disabled={isBusy} onClick={() => does({ action: "acknowledge" })}>
            Acknowledge
          </button>
          <AssignMenu small does={does} />
          <MuteMenu small does={does} />
          <ResolveMenu small does={does} />
          <button type="button" className="button small plain" onClick={() => setSelected(now.length > chosen.length ? new Set(now.map((item) => item.id)) : new Set())}>
            {now.length > chosen.length ? "Choose all on this page" : "Choose none"}
          </button>
        </div>
      )}
      <div className="list-foot">
        <span>
          {count(now.length, "root")}, {count(failures, "failing test or job", "failing tests or jobs")}
          {(nextCursor ?? view.cursor) ? " on this page" : ""}
        </span>
        {(nextCursor ?? view.cursor) && (
          <span className="row">
            <button type="button" className="button small" disabled={!view.cursor} onClick={() => page(null, [])}>
              First
            </button>
            <button type="button" className="button small" disabled={!view.cursor} onClick={() => (stack.length > 0 ? page(stack.at(-1) ?? null, stack.slice(0, -1)) : page(null, []))}>
              Previous
            </button>
            <button type="button" className="button small" disabled={!nextCursor} onClick={() => nextCursor && page(nextCursor, view.cursor ? [...stack, view.cursor] : [...stack, ""])}>
              Next
            </button>
          </span>
        )}
        <span className="keys" aria-hidden>
          <span><kbd>j</kbd> <kbd>k</kbd> move</span>
          <span><kbd>↵</kbd> open</span>
          {mayAct && (
            <>
              <span><kbd>x</kbd> choose</span>
              <span><kbd>a</kbd> acknowledge</span>
              <span><kbd>m</kbd> mute a day</span>
              <span><kbd>r</kbd> resolve</span>
            </>
          )}
          <span><kbd>/</kbd> search</span>
        </span>
      </div>
    </>
  );
}

function useBriefs(rows: Item[]): Map<string, Brief> {
  const parts = Array.from({ length: Math.ceil(rows.length / AT_ONCE) }, (_, place) =>
    rows.slice(place * AT_ONCE, (place + 1) * AT_ONCE).map((item) => item.id).join(","),
  );
  return useQueries({
    queries: parts.map((ids) => ({
      queryKey: ["incidents", "briefs", ids],
      queryFn: ({ signal }: { signal: AbortSignal }) => get("/api/v1/incidents/briefs", { query: { ids }, signal }),
      staleTime: 60_000,
    })),
    combine: (found) => new Map(found.flatMap((part) => (part.data?.items ?? []).map((brief) => [brief.id, brief] as const))),
  });
}

interface RowProps {
  item: Item;
  brief: Brief | undefined;
  /** How many others on this page have the same root cause. */
  sharing: number;
  isAt: boolean;
  isDone: boolean;
  isSelected: boolean;
  onSelect: (() => void) | null;
}

export function nameOf(item: Pick<Item, "test" | "kind" | "test_run">): string {
  return item.test ? testName(item.test) : item.kind === "run" ? "run failed" : jobName(item.test_run.job.name);
}

function Row({ item, brief, sharing, isAt, isDone, isSelected, onSelect }: RowProps) {
  const isWarning = /^warn/i.test(item.severity);
  const root = brief?.root_cause;
  return (
    <article className={`incident${isAt ? " at" : ""}${isDone ? " done" : ""}`} aria-label={nameOf(item)}>
      <div className="check">
        <span className={`dot ${item.status === "resolved" ? "ok" : isWarning ? "warn" : "bad"}`} title={`${item.severity}, ${item.status}`} />
        {onSelect && <input type="checkbox" aria-label={`Choose ${nameOf(item)}`} checked={isSelected} onChange={onSelect} />}
      </div>
      <div className="what">
        <Link className="name mono breaks" to={pathOf.incident(item.id)} title={item.test?.name ?? ""}>
          <Breakable text={nameOf(item)} />
        </Link>
        <span className="mono small soft breaks">
          {item.kind === "run" ? <Breakable text={`${item.test_run.job.namespace} / ${item.test_run.job.name}`} /> : item.dataset ? <Breakable text={item.dataset.name} /> : "no dataset is named"}
        </span>
        <span className="small breaks">{item.message || (item.actual ? `${item.actual}, expected ${item.expected}` : "")}</span>
        {(isDone || item.status !== "open" || isWarning) && (
          <span className="row gap-s wrap">
            {item.status !== "open" && <State word={item.status} />}
            {isWarning && <Badge tone="amber">{item.severity}</Badge>}
          </span>
        )}
      </div>
      <div className="what why">
        {root ? (
          <>
            <span className="small soft" title="Strength of evidence; no probability">
              {root.why.length > 0 ? `root cause · ${Math.round(root.score * 100)} of 100` : "wrote it; nothing odd is known"}
            </span>
            <span className="strong"><JobLink job={root.job} className="quiet breaks" /></span>
            <span className="small breaks">{root.why.slice(0, 2).join(", ")}</span>
            {sharing > 0 && root.why.length > 0 && <span className="small soft">the same run behind {count(sharing, "other")} here</span>}
          </>
        ) : brief ? (
          <>
            <span className="small soft">root cause</span>
            <span>{brief.sentence}</span>
          </>
        ) : (
          <>
            <span className="small soft">{item.cause ? "written by" : "root cause"}</span>
            <span className="strong">{item.cause ? <JobLink job={item.cause.job} className="quiet breaks" /> : <span className="soft">…</span>}</span>
          </>
        )}
      </div>
      <div className="past">
        <Sparkline ticks={item.history} />
      </div>
      <div className="what who">
        <Owner name={item.assignee ?? item.owner} />
        {brief && (
          <span className="small soft">
            <span className={brief.affected ? "red" : ""}>{exact(brief.affected)}{brief.truncated ? "+" : ""} affected</span> · {exact(brief.at_risk)} at risk
          </span>
        )}
      </div>
      <div className="soft right since">
        <Time at={item.opened_at} as="age" />
      </div>
      {item.children > 0 && <Consequences of={item} />}
    </article>
  );
}

function Consequences({ of }: { of: Item }) {
  const [isOpen, setOpen] = useState(false);
  const found = useQuery({
    queryKey: ["incidents", "of", of.id],
    queryFn: () => get("/api/v1/incidents", { query: { root: of.id, sort: "opened_at", limit: 100 } }),
    enabled: isOpen,
  });
  return (
    <details className="consequences" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{count(of.children, "more failure")} with this root</summary>
      {found.isError && <Problem error={found.error} />}
      <ul>
        {(found.data?.items ?? []).map((child) => (
          <li key={child.id}>
            <State word={child.status} />
            <Link to={pathOf.incident(child.id)} className="mono breaks">
              <Breakable text={nameOf(child)} />
            </Link>
            <span className="soft">on</span>
            {child.dataset ? <DatasetLink urn={child.dataset.urn} /> : <JobLink job={child.test_run.job} />}
            <span className="soft small"><Time at={child.opened_at} /></span>
          </li>
        ))}
      </ul>
    </details>
  );
}

function Nothing() {
  const jobs = useQuery({ queryKey: ["jobs", "any"], queryFn: () => get("/api/v1/jobs", { query: { limit: 1 } }) });
  if (jobs.isPending) return null;
  if (jobs.data?.items.length) {
    return (
      <div className="card">
        <Empty title="Nothing is wrong, and nothing ever was">
          <p>Events come in, and no test or job has failed so far. An incident opens by itself when one does.</p>
        </Empty>
      </div>
    );
  }
  return <GettingStarted />;
}

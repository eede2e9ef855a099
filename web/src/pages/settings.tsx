// What people set up. It takes the scope `admin`.
import { useMutation, useQuery, useQueryClient, type QueryKey } from "@tanstack/react-query";
import { Tabs } from "radix-ui";
import { useState, type ReactNode } from "react";
import { useSearchParams } from "react-router";
import { get, patch, post, remove, send, type Schemas } from "../api/client";
import { useMay } from "../components/actions";
import { Badge, Card, Empty, Problem, Skeleton, Time, Wide } from "../components/basics";
import { useToasts } from "../components/toasts";
import { useTitle } from "../components/use_title";
import { Snippet } from "./welcome";

const PARTS = { keys: "Keys", patterns: "Names", ignored: "Ignored", routes: "Alert routes" } as const;

export function Settings() {
  useTitle("Settings");
  const isAdmin = useMay("admin");
  const [parameters, setParameters] = useSearchParams();
  const part = parameters.get("part") ?? "keys";
  return (
    <>
      <div className="page-head">
        <h1>Settings</h1>
      </div>
      {isAdmin ? (
        <Tabs.Root value={part in PARTS ? part : "keys"} onValueChange={(to) => setParameters({ part: to }, { replace: true })}>
          <Tabs.List className="tabs" aria-label="What is set up">
            {Object.entries(PARTS).map(([key, name]) => (
              <Tabs.Trigger key={key} value={key}>
                {name}
              </Tabs.Trigger>
            ))}
          </Tabs.List>
          <Tabs.Content value="keys"><Keys /></Tabs.Content>
          <Tabs.Content value="patterns"><Patterns /></Tabs.Content>
          <Tabs.Content value="ignored"><Ignored /></Tabs.Content>
          <Tabs.Content value="routes"><Routes /></Tabs.Content>
        </Tabs.Root>
      ) : (
        <div className="card">
          <Empty title="This takes a key with the scope admin">
            <p>Sign out, and sign in with one; or ask who runs this server.</p>
          </Empty>
        </div>
      )}
    </>
  );
}

/** Change something, then read the list again. */
function useChange<V, A>(key: QueryKey, does: (value: V) => Promise<A>, words: (value: V, answer: A) => string, undo?: (value: V, answer: A) => Promise<unknown>) {
  const client = useQueryClient();
  const { say, complain } = useToasts();
  const again = () => void client.invalidateQueries({ queryKey: key });
  return useMutation({
    mutationFn: does,
    onSuccess: (answer, value) => {
      again();
      say(words(value, answer), undo ? () => void undo(value, answer).then(again, complain) : undefined);
    },
    onError: complain,
  });
}

function Listed<T>({ found, children, empty }: { found: { data: { items: T[] } | undefined; error: unknown }; children: (items: T[]) => ReactNode; empty: string }) {
  if (found.error) return <Problem error={found.error} />;
  if (!found.data) return <Skeleton lines={3} height="2.5rem" />;
  if (found.data.items.length === 0) return <p className="soft">{empty}</p>;
  return <Wide>{children(found.data.items)}</Wide>;
}

const SCOPES = [
  ["ingest", "send events"],
  ["read", "look at everything"],
  ["act", "act on incidents"],
  ["admin", "set things up"],
] as const;
type Scope = (typeof SCOPES)[number][0];

function Keys() {
  const found = useQuery({ queryKey: ["keys"], queryFn: () => get("/api/v1/keys") });
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<Scope[]>(["read", "act"]);
  const [made, setMade] = useState<Schemas["MadeKey"] | null>(null);
  const make = useChange(["keys"], (body: Schemas["NewKey"]) => post("/api/v1/keys", { body }), (body) => `The key ${body.name} is made.`);
  const revoke = useChange(["keys"], (one: Schemas["KeyBrief"]) => remove("/api/v1/keys/{id}", { path: { id: one.id } }), (one) => `The key ${one.name} is revoked for good.`);
  return (
    <div className="stack">
      <Card title="Make a key" aside="a server that has had a key takes nobody without one">
        <form
          className="row wrap"
          onSubmit={(event) => {
            event.preventDefault();
            make.mutate({ name: name.trim(), scopes }, { onSuccess: (answer) => { setMade(answer); setName(""); } });
          }}
        >
          <label className="labelled">
            Name
            <input className="field" required maxLength={100} placeholder="airflow" value={name} onChange={(event) => setName(event.target.value)} />
          </label>
          {SCOPES.map(([scope, words]) => (
            <label key={scope} htmlFor={`scope-${scope}`} className="row small">
              <input id={`scope-${scope}`} type="checkbox" checked={scopes.includes(scope)} onChange={(event) => setScopes(event.target.checked ? [...scopes, scope] : scopes.filter((one) => one !== scope))} />
              <code>{scope}</code> {words}
            </label>
          ))}
          <button type="submit" className="button primary" disabled={make.isPending || scopes.length === 0}>
            Make it
          </button>
        </form>
        {made && (
          <div className="stack gap-s" role="status">
            <p>This is the key of <strong>{made.key.name}</strong>. It is shown now and never again:</p>
            <Snippet text={made.secret} />
          </div>
        )}
      </Card>
      <Card title="Keys">
        <Listed found={found} empty="There is none: the server takes anybody who can reach it from this machine.">
          {(items) => (
            <table>
              <thead>
                <tr>
                  <th>Name</th>
                  <th>Begins with</th>
                  <th>May</th>
                  <th>Made</th>
                  <th>Last used</th>
                  <th />
                </tr>
              </thead>
              <tbody>
                {items.map((one) => (
                  <tr key={one.id}>
                    <td className="strong breaks">{one.name}</td>
                    <td className="mono">{one.prefix}…</td>
                    <td>{one.scopes.join(", ")}</td>
                    <td className="soft"><Time at={one.created_at} /> by {one.created_by}</td>
                    <td className="soft">{one.last_used_at ? <Time at={one.last_used_at} /> : "never"}</td>
                    <td className="right">
                      {one.revoked_at ? (
                        <Badge>revoked <Time at={one.revoked_at} /></Badge>
                      ) : (
                        <SureButton words="Revoke" sure="Revoke it for good" does={() => revoke.mutate(one)} />
                      )}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </Listed>
      </Card>
    </div>
  );
}

/** For what cannot be taken back: pressed twice. */
function SureButton({ words, sure, does }: { words: string; sure: string; does: () => void }) {
  const [isAsked, setAsked] = useState(false);
  return (
    <button type="button" className="button small" onBlur={() => setAsked(false)} onClick={() => (isAsked ? does() : setAsked(true))}>
      {isAsked ? sure : words}
    </button>
  );
}

function Patterns() {
  const found = useQuery({ queryKey: ["patterns"], queryFn: () => get("/api/v1/patterns") });
  const [pattern, setPattern] = useState("");
  const [target, setTarget] = useState("");
  const addIt = (body: { pattern: string; target: string; place?: number }) => post("/api/v1/patterns", { body });
  const removeIt = (id: number) => remove("/api/v1/patterns/{id}", { path: { id } });
  const add = useChange(["patterns"], addIt, (body) => `${body.pattern} now means ${body.target}, on all history.`, (_, made) => removeIt(made.id));
  const drop = useChange(["patterns"], (one: Schemas["Pattern"]) => removeIt(one.id), (one) => `${one.pattern} means nothing special any more.`, (one) => addIt({ pattern: one.pattern, target: one.target, place: one.place }));
  return (
    <div className="stack">
      <Card title="Names that mean one dataset" aside="effective at once, on all history; of several that match, the first counts">
        <form
          className="row wrap"
          onSubmit={(event) => {
            event.preventDefault();
            add.mutate({ pattern, target }, { onSuccess: () => { setPattern(""); setTarget(""); } });
          }}
        >
          <label className="labelled grow">
            Whatever is called
            <input className="field mono" required placeholder="warehouse/{table}" value={pattern} onChange={(event) => setPattern(event.target.value)} />
          </label>
          <label className="labelled grow">
            means
            <input className="field mono" required placeholder="postgres://db:5432/shop.public.{table}" value={target} onChange={(event) => setTarget(event.target.value)} />
          </label>
          <button type="submit" className="button primary" disabled={add.isPending}>Add</button>
        </form>
        <p className="soft small"><code>{"{name}"}</code> is one or more characters but slashes, <code>{"{path*}"}</code> also slashes.</p>
      </Card>
      <Card title="Patterns">
        <Listed found={found} empty="There is none. Health suggests some where a test and a writer call one table by two names.">
          {(items) => (
            <table>
              <tbody>
                {items.map((one) => (
                  <tr key={one.id}>
                    <td className="mono breaks">{one.pattern}</td>
                    <td className="soft">means</td>
                    <td className="mono breaks">{one.target}</td>
                    <td className="soft hide-narrow"><Time at={one.created_at} /> by {one.created_by}</td>
                    <td className="right"><button type="button" className="button small" onClick={() => drop.mutate(one)}>Remove</button></td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </Listed>
      </Card>
    </div>
  );
}

function Ignored() {
  const found = useQuery({ queryKey: ["ignored"], queryFn: () => get("/api/v1/ignored") });
  const [kind, setKind] = useState<Schemas["NewIgnoredName"]["kind"]>("namespace");
  const [pattern, setPattern] = useState("");
  const addIt = (body: Schemas["NewIgnoredName"]) => post("/api/v1/ignored", { body });
  const removeIt = (id: number) => remove("/api/v1/ignored/{id}", { path: { id } });
  const add = useChange(["ignored"], addIt, (body) => `${body.pattern} is hidden from all questions.`, (_, made) => removeIt(made.id));
  const drop = useChange(["ignored"], (one: Schemas["IgnoredName"]) => removeIt(one.id), (one) => `${one.pattern} is there again.`, (one) => addIt({ kind: one.kind, pattern: one.pattern }));
  return (
    <Card title="Noise that nobody wants to see" aside="it is stored all the same, and there again when the pattern is gone">
      <form
        className="row wrap"
        onSubmit={(event) => {
          event.preventDefault();
          add.mutate({ kind, pattern }, { onSuccess: () => setPattern("") });
        }}
      >
        <label className="labelled">
          What
          <select className="field" value={kind} onChange={(event) => setKind(event.target.value as typeof kind)}>
            <option value="namespace">namespaces</option>
            <option value="job">jobs (namespace/name)</option>
            <option value="dataset">datasets (URN)</option>
          </select>
        </label>
        <label className="labelled grow">
          called
          <input className="field mono" required placeholder="sandbox-*" value={pattern} onChange={(event) => setPattern(event.target.value)} />
        </label>
        <button type="submit" className="button primary" disabled={add.isPending}>Hide</button>
      </form>
      <Listed found={found} empty="Nothing is hidden.">
        {(items) => (
          <table>
            <tbody>
              {items.map((one) => (
                <tr key={one.id}>
                  <td className="soft">{one.kind}s</td>
                  <td className="mono breaks">{one.pattern}</td>
                  <td className="soft hide-narrow"><Time at={one.created_at} /> by {one.created_by}</td>
                  <td className="right"><button type="button" className="button small" onClick={() => drop.mutate(one)}>Show again</button></td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Listed>
    </Card>
  );
}

const KINDS = { webhook: "webhook", slack: "Slack", pagerduty: "PagerDuty" } as const;

interface Trial {
  is_taken: boolean;
  status: number | null;
  words: string;
}

function Routes() {
  const found = useQuery({ queryKey: ["routes"], queryFn: () => get("/api/v1/alert-routes") });
  const { say, complain } = useToasts();
  const add = useChange(["routes"], (body: Schemas["NewRoute"]) => post("/api/v1/alert-routes", { body }), (body) => `The route ${body.name} is made. Send a test message over it.`);
  const change = useChange(["routes"], (one: Schemas["AlertRoute"]) => patch("/api/v1/alert-routes/{id}", { path: { id: one.id }, body: { is_enabled: !one.is_enabled } }), (one) => `${one.name} is ${one.is_enabled ? "paused" : "in use"}.`);
  const drop = useChange(["routes"], (one: Schemas["AlertRoute"]) => remove("/api/v1/alert-routes/{id}", { path: { id: one.id } }), (one) => `The route ${one.name} is gone.`);
  const test = useMutation({
    mutationFn: (one: Schemas["AlertRoute"]) => send<Trial>("POST", `/api/v1/alert-routes/${one.id}/test`),
    onSuccess: (trial, one) => (trial.is_taken ? say(`${one.name} took the test message.`) : complain(new Error(`${one.name} did not take it: ${trial.words}`))),
    onError: complain,
  });
  const [secret, setSecret] = useState<string | null>(null);
  const words = (said: FormData, name: string) => {
    const given = said.get(name);
    return typeof given === "string" ? given.trim() : "";
  };
  const list = (text: string) => text.split(",").map((one) => one.trim()).filter(Boolean);
  return (
    <div className="stack">
      <Card title="Add a route" aside="one root, one alert: consequences are not told again">
        <form
          className="row wrap"
          onSubmit={(event) => {
            event.preventDefault();
            const form = event.currentTarget;
            const said = new FormData(form);
            const given = words(said, "secret");
            add.mutate(
              {
                name: words(said, "name"), kind: words(said, "kind") as Schemas["NewRoute"]["kind"], url: words(said, "url"),
                ...(given && { secret: given }), owners: list(words(said, "owners")), severities: list(words(said, "severities")), namespaces: list(words(said, "namespaces")),
                is_default: said.has("is_default"), tells_resolved: said.has("tells_resolved"),
              },
              {
                onSuccess: (made) => {
                  form.reset();
                  setSecret((made as { secret?: string }).secret ?? null);
                },
              },
            );
          }}
        >
          <label className="labelled">Name<input className="field" name="name" required placeholder="data team" /></label>
          <label className="labelled">
            Kind
            <select className="field" name="kind" defaultValue="slack">
              {Object.entries(KINDS).map(([key, name]) => <option key={key} value={key}>{name}</option>)}
            </select>
          </label>
          <label className="labelled grow">Address<input className="field mono" name="url" type="url" required placeholder="https://hooks.slack.com/services/…" /></label>
          <label className="labelled">Secret<input className="field" name="secret" type="password" autoComplete="off" placeholder="signs a webhook; PagerDuty's key" /></label>
          <label className="labelled">Only owners<input className="field" name="owners" placeholder="all; or team:finance, …" /></label>
          <label className="labelled">Only severities<input className="field" name="severities" placeholder="all; or error, …" /></label>
          <label className="labelled">Only namespaces<input className="field" name="namespaces" placeholder="all" /></label>
          <label className="row"><input type="checkbox" name="is_default" /> only what is for no other route</label>
          <label className="row"><input type="checkbox" name="tells_resolved" defaultChecked /> tell when it is over, too</label>
          <button type="submit" className="button primary" disabled={add.isPending}>Add</button>
        </form>
        {secret && (
          <div className="stack gap-s" role="status">
            <p>This signs what the webhook is sent. It is shown now and never again:</p>
            <Snippet text={secret} />
          </div>
        )}
      </Card>
      <Card title="Routes">
        <Listed found={found} empty="There is none: nobody is told of anything.">
          {(items) => (
            <table>
              <tbody>
                {items.map((one) => (
                  <tr key={one.id}>
                    <td className="strong breaks">{one.name} {!one.is_enabled && <Badge>paused</Badge>} {one.is_default && <Badge>default</Badge>}</td>
                    <td>{KINDS[one.kind]}<div className="soft small mono breaks">{one.url}</div></td>
                    <td className="soft small breaks">
                      {[["owners", one.owners], ["severities", one.severities], ["namespaces", one.namespaces]].flatMap(([name, only]) => (Array.isArray(only) && only.length > 0 ? [`${String(name)}: ${only.join(", ")}`] : [])).join("; ") || "everything"}
                    </td>
                    <td className="right nowrap">
                      <button type="button" className="button small" disabled={test.isPending} onClick={() => test.mutate(one)}>Test</button>{" "}
                      <button type="button" className="button small" onClick={() => change.mutate(one)}>{one.is_enabled ? "Pause" : "Use"}</button>{" "}
                      <SureButton words="Remove" sure="Remove it for good" does={() => drop.mutate(one)} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </Listed>
      </Card>
    </div>
  );
}

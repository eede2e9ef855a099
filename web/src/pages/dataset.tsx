import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useParams } from "react-router";
import type { Schemas } from "../api/client";
import { LIVE, amounts, dataset as datasetQuery, verdict } from "../api/queries";
import { Badge, Breakable, Card, Crumbs, JobLink, Num, Owner, Problem, Skeleton, State, Time, Wide } from "../components/basics";
import { Diff } from "../components/diff";
import { FacetList } from "../components/facets";
import { Plot } from "../components/plot";
import { Sparkline } from "../components/sparkline";
import { useTitle } from "../components/use_title";
import { datasetName, pathOf, runName, testName } from "../words/names";
import { bytes, count } from "../words/numbers";

type Detail = Schemas["DatasetDetail"];
interface Field {
  name?: string;
  type?: string;
  fields?: Field[];
}

const A_FEW = 6;

export function Dataset() {
  const { urn = "" } = useParams();
  const found = useQuery({ ...datasetQuery(urn), refetchInterval: 2 * LIVE });
  useTitle(datasetName(urn));
  if (found.isError) return <Problem error={found.error} retry={() => void found.refetch()} />;
  if (!found.data) return <Skeleton lines={3} height="8rem" />;
  const one = found.data.dataset;
  return (
    <>
      <Crumbs>
        <Link to="/datasets">Datasets</Link> › {one.namespace}
      </Crumbs>
      <div className="page-head">
        <h1 className="mono breaks"><Breakable text={datasetName(one.urn)} /></h1>
        <span className="row wrap">
          <Link className="button" to={pathOf.lineage(`dataset:${one.called}`)}>Lineage</Link>
          <Link className="button" to={`/incidents?status=all&dataset=${encodeURIComponent(one.urn)}`}>Incidents</Link>
        </span>
      </div>
      <Safety urn={one.urn} />
      <div className="columns">
        <div className="stack">
          <Tests tests={one.tests} />
          <Written urn={one.urn} />
          <Schemata one={one} />
          <Uses title="Writes" uses={one.writes} />
          <Uses title="Reads" uses={one.reads} />
          <Card title="Facets" aside="the latest statement of each">
            <FacetList facets={one.facets} />
          </Card>
        </div>
        <div className="stack">
          <Card title="About">
            <dl className="facts">
              <dt>owner</dt>
              <dd>{one.owners.length > 0 ? one.owners.map((owner) => <Owner key={owner.name} name={owner.name} />) : "nobody says"}</dd>
              <dt>URN</dt>
              <dd className="mono breaks">{one.urn}</dd>
              {one.names.length > 0 && (
                <>
                  <dt>also called</dt>
                  <dd className="mono breaks">{one.names.map((name) => <div key={name}>{name}</div>)}</dd>
                </>
              )}
              <dt>first heard of</dt>
              <dd>{one.first_event_at ? <Time at={one.first_event_at} /> : "never by itself"}</dd>
              <dt>last heard of</dt>
              <dd>{one.last_event_at ? <Time at={one.last_event_at} /> : "never by itself"}</dd>
            </dl>
          </Card>
        </div>
      </div>
    </>
  );
}

const TONES = { safe: "green", unsafe: "red", unknown: "grey" } as const;

function Safety({ urn }: { urn: string }) {
  const found = useQuery(verdict(urn));
  if (!found.data) return <div className="verdict"><Skeleton lines={1} height="2.6rem" /></div>;
  const told = found.data;
  return (
    <p className="verdict card row wrap">
      <Badge tone={TONES[told.verdict]}>{told.verdict === "safe" ? "safe to read" : told.verdict === "unsafe" ? "not safe to read" : "not known whether it is safe"}</Badge>
      <span className="grow breaks">{told.reason}</span>
      {(told.incidents ?? []).slice(0, 1).map((id) => (
        <Link key={id} to={pathOf.incident(id)}>see the incident →</Link>
      ))}
    </p>
  );
}

function Tests({ tests }: { tests: Detail["tests"] }) {
  if (tests.length === 0) return <Card title="Tests"><p className="soft">No test has looked at it.</p></Card>;
  return (
    <Card title="Tests" aside={count(tests.length, "test")}>
      <Wide>
        <table>
          <tbody>
            {tests.map((test) => (
              <tr key={test.test_id}>
                <td>{test.last_result && <State word={test.last_result.status} />}</td>
                <td>
                  <span className="mono breaks" title={test.name}><Breakable text={testName(test)} /></span>
                  {test.last_result?.status !== "pass" && <div className="small breaks">{test.last_result?.message}</div>}
                </td>
                <td><Sparkline ticks={test.history} /></td>
                <td className="soft hide-narrow">{test.last_result && <Link className="quiet" to={pathOf.run(test.last_result.run)}><Time at={test.last_result.at} /></Link>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
    </Card>
  );
}

function Written({ urn }: { urn: string }) {
  const found = useQuery(amounts(urn));
  const points = (found.data?.amounts.items ?? []).flatMap((one) => (one.rows === null ? [] : [{ at: one.at, value: one.rows }]));
  if (points.length < 2) return null;
  return (
    <Card title="Rows written" aside="with the band of what is usual">
      <Plot points={points} usual={found.data?.amounts.usual_rows ?? null} unit="rows" />
    </Card>
  );
}

function lines(body: unknown): string {
  const fields = (body as { fields?: Field[] } | null)?.fields ?? [];
  const told = (field: Field, depth: number): string[] => [
    `${"  ".repeat(depth)}${field.name ?? "?"} ${field.type ?? ""}`.trimEnd(),
    ...(field.fields ?? []).flatMap((inner) => told(inner, depth + 1)),
  ];
  return fields.flatMap((field) => told(field, 0)).join("\n");
}

function Schemata({ one }: { one: Detail }) {
  const [isAll, setAll] = useState(false);
  const versions = one.schema_versions;
  const [latest] = versions;
  if (!latest) return <Card title="Schema"><p className="soft">No event has told its columns.</p></Card>;
  const shown = isAll ? versions : versions.slice(0, 3);
  return (
    <Card title="Schema" aside={count(versions.length, "version")}>
      <ol className="stack">
        {shown.map((version, place) => {
          const before = versions[place + 1];
          return (
            <li key={`${version.at}${place}`} className="stack gap-s">
              <p className="soft small">
                <Time at={version.at} /> {version.run && <Link to={pathOf.run(version.run)}>run {runName(version.run_id ?? "")}</Link>} {!before && "the first that is known"}
              </p>
              {before ? (
                <Diff before={lines(before.body)} after={lines(version.body)} label="Schema before and after" />
              ) : (
                <pre className="snippet breaks">{lines(version.body)}</pre>
              )}
            </li>
          );
        })}
      </ol>
      {versions.length > shown.length && (
        <button type="button" className="button small plain" onClick={() => setAll(true)}>Show all {versions.length}</button>
      )}
    </Card>
  );
}

function Uses({ title, uses }: { title: string; uses: Detail["writes"] }) {
  const [isAll, setAll] = useState(false);
  if (uses.length === 0) return <Card title={title}><p className="soft">None that is known of.</p></Card>;
  return (
    <Card title={title} aside="the last ones, newest first">
      <Wide>
        <table>
          <tbody>
            {uses.slice(0, isAll ? undefined : A_FEW).map((use, place) => (
              <tr key={place}>
                <td className="soft"><Time at={use.at} /></td>
                <td><JobLink job={use.run.job} /></td>
                <td><Link to={pathOf.run(use.run.id)} className="mono nowrap" title={use.run.run_id}>run {runName(use.run.run_id)}</Link></td>
                <td><State word={use.run.state} /></td>
                <td className="number">{use.rows !== null && <Num value={use.rows} />}</td>
                <td className="number soft hide-narrow">{use.bytes !== null && bytes(use.bytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      {!isAll && uses.length > A_FEW && (
        <button type="button" className="button small plain" onClick={() => setAll(true)}>Show the last {uses.length}</button>
      )}
    </Card>
  );
}

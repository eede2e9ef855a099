// Facets: what is known to matter is told in words; everything is there as it was sent, for who asks.
import { useState } from "react";
import { Wide } from "./basics";

type Facets = Record<string, unknown>;

const PLAIN = new Set(["_producer", "_schemaURL", "_deleted"]);

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function FacetList({ facets }: { facets: Facets }) {
  const [isRaw, setRaw] = useState(false);
  const keys = Object.keys(facets).sort();
  if (keys.length === 0) return <p className="soft">No facet was sent.</p>;
  return (
    <>
      <div className="tabs" role="group" aria-label="How facets are shown">
        <button type="button" aria-pressed={!isRaw} onClick={() => setRaw(false)}>
          Readable
        </button>
        <button type="button" aria-pressed={isRaw} onClick={() => setRaw(true)}>
          As sent
        </button>
      </div>
      {isRaw ? (
        <Raw value={facets} />
      ) : (
        <div className="stack gap-s">
          {keys.map((key) => (
            <details key={key} open={keys.length <= 4}>
              <summary className="mono strong">{key}</summary>
              <Value value={facets[key]} />
            </details>
          ))}
        </div>
      )}
    </>
  );
}

export function Raw({ value }: { value: unknown }) {
  return (
    // It scrolls when it is long, so that a keyboard must reach it.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <pre className="snippet raw" tabIndex={0}>
      {JSON.stringify(value, null, 2)}
    </pre>
  );
}

/** What is nested is told by its path: `run.runId`. */
function flat(value: Record<string, unknown>, path = ""): [string, unknown][] {
  return Object.entries(value)
    .filter(([key]) => !PLAIN.has(key))
    .flatMap(([key, member]) => (isRecord(member) && Object.keys(member).length > 0 ? flat(member, `${path}${key}.`) : [[path + key, member] as [string, unknown]]));
}

const MOST_FLAT = 24;

function Value({ value }: { value: unknown }) {
  if (!isRecord(value)) return <Scalar value={value} />;
  const entries = flat(value);
  if (entries.length > MOST_FLAT) return <Raw value={value} />;
  if (entries.length === 0) return <p className="soft">nothing in it</p>;
  return (
    <dl className="facts facet">
      {entries.map(([key, member]) => (
        <div key={key} className="pair">
          <dt>{key}</dt>
          <dd>
            <Scalar value={member} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Scalar({ value }: { value: unknown }) {
  if (value === null || value === undefined) return <span className="soft">null</span>;
  if (typeof value === "string") return value.includes("\n") ? <Text text={value} /> : <span className="mono breaks">{value}</span>;
  if (typeof value === "number" || typeof value === "boolean") return <span className="mono">{String(value)}</span>;
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) return <span className="mono breaks">{value.join(", ")}</span>;
  if (Array.isArray(value) && value.length > 0 && value.every(isRecord)) return <Rows rows={value} />;
  return <Raw value={value} />;
}

/** A list of things alike is a table. */
function Rows({ rows }: { rows: Record<string, unknown>[] }) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row).filter((key) => !PLAIN.has(key))))];
  const told = (value: unknown) => (value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));
  return (
    <Wide>
      <table className="small">
        <thead>
          <tr>
            {names.map((name) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, place) => (
            <tr key={place}>
              {names.map((name) => (
                <td key={name} className="mono breaks">{told(row[name])}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function Text({ text }: { text: string }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <pre className="snippet raw" tabIndex={0}>
      {text}
    </pre>
  );
}

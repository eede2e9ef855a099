// Small things that every page is made of.
import { Fragment, type ReactNode } from "react";
import { Link } from "react-router";
import { ProblemError } from "../api/client";
import { datasetName, initials, jobName, ownerName, pathOf, runName } from "../words/names";
import { exact, short } from "../words/numbers";
import { age, clock, inUtc, moment } from "../words/time";

/** In the reader's zone; who points at it gets UTC. */
export function Time({ at, as = "moment" }: { at: string; as?: "moment" | "age" | "clock" }) {
  const words = as === "age" ? age(at) : as === "clock" ? clock(at) : moment(at);
  const title = as === "age" ? `${moment(at)} (${inUtc(at)})` : inUtc(at);
  return (
    <time dateTime={at} title={title} className="nowrap">
      {words}
    </time>
  );
}

export function Num({ value }: { value: number }) {
  return <span title={exact(value)}>{short(value)}</span>;
}

/** A name of data, which may be broken at its signs but not in its words. */
export function Breakable({ text }: { text: string }) {
  const parts = text.split(/(?<=[._/:()-])/);
  return parts.map((part, place) => (
    <Fragment key={place}>
      {part}
      {place < parts.length - 1 && <wbr />}
    </Fragment>
  ));
}

export function DatasetLink({ urn, whole = false }: { urn: string; whole?: boolean }) {
  return (
    <Link to={pathOf.dataset(urn)} className="mono breaks" title={urn}>
      <Breakable text={whole ? urn : datasetName(urn)} />
    </Link>
  );
}

export function JobLink({ job, className }: { job: { namespace: string; name: string }; className?: string }) {
  return (
    <Link to={pathOf.job(job)} className={className ?? "breaks"} title={`${job.namespace} / ${job.name}`}>
      <Breakable text={jobName(job.name)} />
    </Link>
  );
}

export function RunLink({ id }: { id: string }) {
  return (
    <Link to={pathOf.run(id)} className="mono nowrap" title={`run ${id}`}>
      run {runName(id)}
    </Link>
  );
}

export function Owner({ name }: { name: string | null | undefined }) {
  if (!name) return <span className="soft">no owner</span>;
  return (
    <span className="row gap-s" title={name}>
      <span className="avatar" aria-hidden>
        {initials(name)}
      </span>
      <span className="cut">{ownerName(name)}</span>
    </span>
  );
}

export type Tone = "red" | "amber" | "green" | "accent" | "grey";

export function Badge({ tone = "grey", children }: { tone?: Tone; children: ReactNode }) {
  return <span className={`badge ${tone}`}>{children}</span>;
}

const TONES: Record<string, Tone> = {
  open: "red", acknowledged: "amber", muted: "grey", resolved: "green",
  error: "red", critical: "red", high: "red", warn: "amber", warning: "amber",
  fail: "red", pass: "green", skip: "grey",
  COMPLETE: "green", FAIL: "red", ABORT: "red", RUNNING: "accent", START: "accent",
};

export function toneOf(word: string): Tone {
  return TONES[word] ?? TONES[word.toLowerCase()] ?? "grey";
}

/** A state by its word: the colour only underlines it. */
export function State({ word }: { word: string }) {
  return <Badge tone={toneOf(word)}>{word}</Badge>;
}

export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const problem = error instanceof ProblemError ? error : null;
  return (
    <div className="card problem" role="alert">
      <h2>{problem?.title ?? "Something went wrong in this page"}</h2>
      <p className="breaks">{problem?.detail ?? (error instanceof Error ? error.message : String(error))}</p>
      {problem?.correlationId && (
        <p className="soft small">
          The server's log has more under the correlation id <code>{problem.correlationId}</code>.
        </p>
      )}
      {retry && (
        <p>
          <button type="button" className="button small" onClick={retry}>
            Try again
          </button>
        </p>
      )}
    </div>
  );
}

export function Skeleton({ lines = 3, height = "3.2rem" }: { lines?: number; height?: string }) {
  return (
    <div className="stack" role="status" aria-busy="true" aria-label="Loading">
      {Array.from({ length: lines }, (_, place) => (
        <div key={place} className="skeleton" style={{ height }} />
      ))}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

interface CardProps {
  title: ReactNode;
  aside?: ReactNode;
  children: ReactNode;
  /** Where it stands when there is room for one column only. */
  place?: number;
}

export function Card({ title, aside, children, place }: CardProps) {
  return (
    <section className="card" style={place === undefined ? undefined : { order: place }}>
      <header>
        <h2>{title}</h2>
        {aside && <div className="soft small">{aside}</div>}
      </header>
      {children}
    </section>
  );
}

/** What may be wider than the page is scrolled by itself, also with the keyboard. */
export function Wide({ children, isCard = false, label = "Table" }: { children: ReactNode; isCard?: boolean; label?: string }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className={isCard ? "card scroll" : "scroll"} tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}

export function Crumbs({ children }: { children: ReactNode }) {
  return (
    <nav className="crumbs" aria-label="Where you are">
      {children}
    </nav>
  );
}

/** Strength of evidence: no probability, so no word that sounds like one. */
export function Strength({ score }: { score: number }) {
  const whole = Math.round(score * 100);
  return (
    <span className="row" title={`Strength of evidence ${score.toFixed(2)} of 1. It is not a probability.`}>
      <span className={score >= 0.5 ? "meter high" : "meter"} aria-hidden>
        <span style={{ width: `${Math.max(2, whole)}%` }} />
      </span>
      <span className="nowrap soft small">{whole} of 100</span>
    </span>
  );
}

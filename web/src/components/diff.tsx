// Before and after, line by line, with the words that differ marked within a line that stayed almost the same.
import { diffLines, diffWordsWithSpace } from "diff";
import { useMemo, type ReactNode } from "react";

export interface DiffLine {
  kind: "added" | "removed" | "unchanged";
  parts: { text: string; isNew: boolean }[];
}

/** Lines of what stayed the same that are shown around a change. */
const AROUND = 3;

export function diffOf(before: string, after: string): DiffLine[] {
  const lines: DiffLine[] = [];
  const changes = diffLines(before, after);
  for (let place = 0; place < changes.length; place += 1) {
    const change = changes[place];
    const next = changes[place + 1];
    if (change === undefined) continue;
    if (change.removed && next?.added && rows(change.value).length === rows(next.value).length) {
      const removed = rows(change.value);
      const added = rows(next.value);
      removed.forEach((line, row) => lines.push({ kind: "removed", parts: parts(line, added[row] ?? "", "removed") }));
      added.forEach((line, row) => lines.push({ kind: "added", parts: parts(removed[row] ?? "", line, "added") }));
      place += 1;
      continue;
    }
    const kind = change.added ? "added" : change.removed ? "removed" : "unchanged";
    for (const text of rows(change.value)) lines.push({ kind, parts: [{ text, isNew: false }] });
  }
  return lines;
}

function rows(text: string): string[] {
  return text.replace(/\n$/, "").split("\n");
}

function parts(before: string, after: string, side: "added" | "removed"): DiffLine["parts"] {
  return diffWordsWithSpace(before, after)
    .filter((part) => !(side === "added" ? part.removed : part.added))
    .map((part) => ({ text: part.value, isNew: side === "added" ? part.added : part.removed }));
}

export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  const lines = useMemo(() => diffOf(before, after), [before, after]);
  const isNear = lines.map((_, place) =>
    lines.slice(Math.max(0, place - AROUND), place + AROUND + 1).some((line) => line.kind !== "unchanged"),
  );
  const shown: ReactNode[] = [];
  lines.forEach((line, place) => {
    if (!isNear[place]) {
      if (place === 0 || isNear[place - 1]) {
        shown.push(
          <div key={place} className="unchanged">
            <span />
            <span>…</span>
          </div>,
        );
      }
      return;
    }
    shown.push(
      <div key={place} className={line.kind}>
        <span aria-label={line.kind === "unchanged" ? undefined : line.kind}>
          {line.kind === "added" ? "+" : line.kind === "removed" ? "−" : ""}
        </span>
        <span>
          {line.parts.map((part, number) => (part.isNew ? <mark key={number}>{part.text}</mark> : part.text))}
        </span>
      </div>,
    );
  });
  return (
    // It scrolls when it is long, so that a keyboard must reach it.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className="diff" role="region" aria-label={label} tabIndex={0}>
      {shown}
    </div>
  );
}

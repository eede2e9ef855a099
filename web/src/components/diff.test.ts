import { expect, it } from "vitest";
import { diffOf } from "./diff";

const told = (before: string, after: string) =>
  diffOf(before, after).map(
    (line) => `${line.kind}: ${line.parts.map((part) => (part.isNew ? `[${part.text}]` : part.text)).join("")}`,
  );

it("marks the words that differ in a line that was changed", () => {
  expect(told("SELECT a\nFROM t\n", "SELECT a, b\nFROM t\n")).toEqual([
    "removed: SELECT a",
    "added: SELECT a[, b]",
    "unchanged: FROM t",
  ]);
});

it("tells lines that came and went", () => {
  expect(told("a\nb\n", "a\n")).toEqual(["unchanged: a", "removed: b"]);
});

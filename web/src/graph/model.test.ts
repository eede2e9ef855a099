import { expect, it } from "vitest";
import type { Schemas } from "../api/client";
import { picture, sizeOf } from "./model";

const dataset = (name: string, distance = 0) => ({
  kind: "dataset" as const, id: `dataset:db://h/${name}`, urn: `db://h/${name}`, namespace: "db://h", name, distance, names: [],
});
const job = (name: string) => ({
  kind: "job" as const, id: `job:n/${name}`, namespace: "n", name, distance: 1, run_id: null, run_at: null,
});
const column = (table: string, name: string) => ({
  kind: "column" as const, id: `column:db://h/${table}#${name}`, urn: `db://h/${table}`, column: name, distance: 0,
});
const edge = (source: string, target: string, more: object = {}) => ({ source, target, ...more }) as Schemas["Edge"];
const graph = (nodes: unknown[], edges: Schemas["Edge"][]) =>
  ({ start: "dataset:db://h/a", nodes, edges, truncated: false }) as unknown as Schemas["Graph"];

it("tells tables, jobs and what is only declared apart", () => {
  const found = picture(
    graph([dataset("a"), job("j"), dataset("b", 1)], [
      edge("dataset:db://h/a", "job:n/j"),
      edge("job:n/j", "dataset:db://h/b", { declared: true }),
    ]),
  );
  expect(found.nodes.map((node) => [node.kind, node.name, node.isStart])).toEqual([
    ["dataset", "a", true],
    ["job", "j", false],
    ["dataset", "b", false],
  ]);
  expect(found.lines.map((line) => line.isDeclared)).toEqual([false, true]);
});

it("puts columns into their tables, and leaves jobs out between them", () => {
  const found = picture(
    graph([dataset("a"), dataset("b", 1), job("j"), column("a", "x"), column("b", "y"), dataset("c", 1)], [
      edge("column:db://h/a#x", "column:db://h/b#y", { transformation: "DIRECT", subtype: "IDENTITY" }),
    ]),
  );
  expect(found.nodes.map((node) => [node.name, node.columns])).toEqual([
    ["a", ["x"]],
    ["b", ["y"]],
  ]);
  expect(found.lines[0]).toMatchObject({ sourceColumn: "x", targetColumn: "y", words: "direct, identity" });
  const [table] = found.nodes;
  expect(table && sizeOf(table).height).toBeGreaterThan(60);
});

it("shows what has gone beside what has come", () => {
  const difference = {
    start: "dataset:db://h/a", truncated: false,
    added_nodes: [dataset("b", 1)], removed_nodes: [dataset("old", 1)],
    added_edges: [edge("dataset:db://h/a", "dataset:db://h/b")], removed_edges: [edge("dataset:db://h/a", "dataset:db://h/old")],
  } as unknown as Schemas["Difference"];
  const found = picture(graph([dataset("a"), dataset("b", 1)], [edge("dataset:db://h/a", "dataset:db://h/b")]), difference);
  expect(found.nodes.map((node) => [node.name, node.change])).toEqual([["a", null], ["b", "added"], ["old", "removed"]]);
  expect(found.lines.map((line) => line.change)).toEqual(["added", "removed"]);
});

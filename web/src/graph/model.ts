// The server's graph as it is drawn: tables and jobs, or tables with their columns.
import type { Schemas } from "../api/client";
import { datasetName, jobName, pathOf } from "../words/names";

type Graph = Schemas["Graph"];
type Difference = Schemas["Difference"];
type ApiEdge = Schemas["Edge"];
type ApiNode = Graph["nodes"][number];

export type Change = "added" | "removed" | null;

export interface Drawn {
  id: string;
  kind: "dataset" | "job";
  name: string;
  place: string;
  title: string;
  path: string;
  distance: number;
  columns: string[];
  isStart: boolean;
  change: Change;
}

export interface Line {
  id: string;
  source: string;
  target: string;
  sourceColumn: string | null;
  targetColumn: string | null;
  isDeclared: boolean;
  change: Change;
  words: string;
}

export interface Picture {
  nodes: Drawn[];
  lines: Line[];
  isCut: boolean;
}

/** With a difference: what has gone since is there too, and both sides are marked. */
export function picture(graph: Graph, difference: Difference | null = null): Picture {
  const added = new Set((difference?.added_nodes ?? []).map((node) => node.id));
  const removed = difference?.removed_nodes ?? [];
  const gone = new Set(removed.map((node) => node.id));
  const addedEdges = new Set((difference?.added_edges ?? []).map(edgeId));
  const goneEdges = new Set((difference?.removed_edges ?? []).map(edgeId));
  const all = unique([...graph.nodes, ...removed], (node) => node.id);
  const edges = unique([...graph.edges, ...(difference?.removed_edges ?? [])], edgeId);
  const isOfColumns = all.some((node) => node.kind === "column");
  const columns = new Map<string, string[]>();
  for (const node of all) {
    if (node.kind === "column") {
      const of = `dataset:${node.urn}`;
      columns.set(of, [...(columns.get(of) ?? []), node.column]);
    }
  }
  const changeOf = (id: string, came: Set<string>, went: Set<string>): Change => (came.has(id) ? "added" : went.has(id) ? "removed" : null);
  const start = graph.start.startsWith("column:") ? `dataset:${columnOf(graph.start).urn}` : graph.start;
  const nodes = all
    .filter((node) => node.kind !== "column" && !(isOfColumns && node.kind === "job"))
    .filter((node) => !isOfColumns || columns.has(node.id) || node.id === start)
    .map((node) => drawn(node, start, columns.get(node.id) ?? [], changeOf(node.id, added, gone)));
  const known = new Set(nodes.map((node) => node.id));
  const lines = edges
    .map((edge) => line(edge, changeOf(edgeId(edge), addedEdges, goneEdges)))
    .filter((each) => known.has(each.source) && known.has(each.target));
  return { nodes, lines, isCut: graph.truncated || (difference?.truncated ?? false) };
}

function drawn(node: ApiNode, start: string, columns: string[], change: Change): Drawn {
  const common = { id: node.id, distance: node.distance, isStart: node.id === start, change };
  if (node.kind === "job") {
    return { ...common, kind: "job", name: jobName(node.name), place: node.namespace, title: `${node.namespace} / ${node.name}`, path: pathOf.job(node), columns: [] };
  }
  const urn = node.urn;
  return { ...common, kind: "dataset", name: datasetName(urn), place: "namespace" in node ? node.namespace : "", title: urn, path: pathOf.dataset(urn), columns };
}

function line(edge: ApiEdge, change: Change): Line {
  const from = columnOf(edge.source);
  const to = columnOf(edge.target);
  return {
    id: edgeId(edge),
    source: from.urn === null ? edge.source : `dataset:${from.urn}`,
    target: to.urn === null ? edge.target : `dataset:${to.urn}`,
    sourceColumn: from.column,
    targetColumn: to.column,
    isDeclared: edge.declared ?? false,
    change,
    words: [edge.transformation, edge.subtype, edge.declared ? "declared" : ""].filter(Boolean).join(", ").toLowerCase(),
  };
}

function edgeId(edge: ApiEdge): string {
  return `${edge.source} → ${edge.target}`;
}

function columnOf(id: string): { urn: string | null; column: string | null } {
  if (!id.startsWith("column:")) return { urn: null, column: null };
  const sign = id.lastIndexOf("#");
  return { urn: id.slice("column:".length, sign), column: id.slice(sign + 1) };
}

function unique<T>(items: T[], key: (item: T) => string): T[] {
  return [...new Map(items.map((item) => [key(item), item])).values()];
}

export const WIDTH = { dataset: 210, job: 160 };
export const HEAD = 44;
export const ROW = 20;

export function sizeOf(node: Drawn): { width: number; height: number } {
  return { width: WIDTH[node.kind], height: HEAD + node.columns.length * ROW + (node.columns.length > 0 ? 6 : 0) };
}

// Where everything goes, worked out beside the page: a thousand nodes take a while, and nobody is held up.
import ELK, { type ElkNode } from "elkjs/lib/elk-api";
import workerUrl from "elkjs/lib/elk-worker.min.js?url";
import { sizeOf, type Picture } from "./model";

export interface Spot {
  x: number;
  y: number;
}

const elk = new ELK({ workerFactory: () => new Worker(workerUrl) });
/** Of more than so many the finest layout takes too long; a plainer one reads as well. */
const MANY = 400;

export async function layout(picture: Picture): Promise<Map<string, Spot>> {
  const isLarge = picture.nodes.length > MANY;
  const placed = await elk.layout({
    id: "graph",
    layoutOptions: {
      "elk.algorithm": "layered",
      "elk.direction": "RIGHT",
      "elk.layered.spacing.nodeNodeBetweenLayers": "44",
      "elk.spacing.nodeNode": "22",
      "elk.layered.nodePlacement.strategy": isLarge ? "SIMPLE" : "BRANDES_KOEPF",
      "elk.layered.crossingMinimization.strategy": "LAYER_SWEEP",
      "elk.layered.thoroughness": isLarge ? "1" : "7",
      "elk.separateConnectedComponents": "true",
    },
    children: picture.nodes.map((node) => ({ id: node.id, ...sizeOf(node) })),
    edges: picture.lines.map((line) => ({ id: line.id, sources: [line.source], targets: [line.target] })),
  });
  return new Map((placed.children ?? []).map((node: ElkNode) => [node.id, { x: node.x ?? 0, y: node.y ?? 0 }]));
}

// The graph on the screen. Nodes are links; the same answer stands beside it as a list.
import { Background, Controls, Handle, MiniMap, Position, ReactFlow, ReactFlowProvider, useReactFlow, type Edge, type Node, type NodeProps } from "@xyflow/react";
import "@xyflow/react/dist/style.css";
import { useQuery } from "@tanstack/react-query";
import { memo, useEffect, useMemo, useRef, useState } from "react";
import { useNavigate } from "react-router";
import { Problem, Skeleton } from "../components/basics";
import { layout } from "./layout";
import { sizeOf, type Drawn, type Picture } from "./model";

export interface Paint {
  /** A class for the node, with the words that say the same. */
  className: string;
  words: string;
}

type TableNode = Node<{ drawn: Drawn; paint: Paint | null; isDim: boolean }, "drawn">;

const Shown = memo(function Shown({ data: { drawn, paint, isDim } }: NodeProps<TableNode>) {
  const classes = ["node", drawn.kind, drawn.isStart && "start", paint?.className, drawn.change, isDim && "dim"].filter(Boolean).join(" ");
  return (
    <div className={classes} title={drawn.title}>
      <Handle type="target" position={Position.Left} isConnectable={false} className="hidden-handle" />
      <span className="kind">
        {paint?.words ?? drawn.change ?? (drawn.kind === "job" ? "job" : "")} {paint || drawn.change ? "· " : ""}
        {drawn.place}
      </span>
      <span className="cut">{drawn.name}</span>
      {drawn.columns.map((column) => (
        <span key={column} className="column">
          <Handle id={column} type="target" position={Position.Left} isConnectable={false} className="hidden-handle" />
          <span className="cut">{column || "(all of it)"}</span>
          <Handle id={column} type="source" position={Position.Right} isConnectable={false} className="hidden-handle" />
        </span>
      ))}
      <Handle type="source" position={Position.Right} isConnectable={false} className="hidden-handle" />
    </div>
  );
});

/** Smaller than that nobody reads it. */
const LEAST_ZOOM = 0.6;
const MARGIN = 30;
const TYPES = { drawn: Shown };

interface CanvasProps {
  picture: Picture;
  paint: (node: Drawn) => Paint | null;
  isSmall?: boolean;
  onOpen?: (node: Drawn) => void;
  label: string;
}

export function Canvas(props: CanvasProps) {
  return (
    <ReactFlowProvider>
      <Inner {...props} />
    </ReactFlowProvider>
  );
}

function Inner({ picture, paint, isSmall = false, onOpen, label }: CanvasProps) {
  const navigate = useNavigate();
  const flow = useReactFlow();
  const [hot, setHot] = useState<string | null>(null);
  const shape = useMemo(() => [picture.nodes.map((node) => [node.id, node.columns.length]), picture.lines.map((line) => line.id)], [picture]);
  // What is drawn already stays until the new picture is laid out: nobody looks at a blank.
  const spots = useQuery({ queryKey: ["layout", JSON.stringify(shape)], queryFn: () => layout(picture), staleTime: Infinity, placeholderData: (before) => before });
  const near = useMemo(() => {
    if (hot === null) return null;
    const found = new Set([hot]);
    for (const line of picture.lines) {
      if (line.source === hot) found.add(line.target);
      if (line.target === hot) found.add(line.source);
    }
    return found;
  }, [hot, picture]);
  const nodes = useMemo<TableNode[]>(
    () =>
      picture.nodes.flatMap((drawn) => {
        const at = spots.data?.get(drawn.id);
        if (!at) return [];
        const { width, height } = sizeOf(drawn);
        const painted = paint(drawn);
        return [
          {
            id: drawn.id,
            type: "drawn" as const,
            position: at,
            data: { drawn, paint: painted, isDim: near !== null && !near.has(drawn.id) },
            width,
            height,
            draggable: false,
            connectable: false,
            ariaLabel: `${drawn.kind} ${drawn.name}${painted ? `, ${painted.words}` : ""}${drawn.change ? `, ${drawn.change}` : ""}`,
          },
        ];
      }),
    [picture, spots.data, paint, near],
  );
  const edges = useMemo<Edge[]>(
    () =>
      picture.lines.map((line) => ({
        id: line.id,
        source: line.source,
        target: line.target,
        ...(line.sourceColumn !== null && { sourceHandle: line.sourceColumn }),
        ...(line.targetColumn !== null && { targetHandle: line.targetColumn }),
        className: [line.isDeclared && "declared", line.change, hot !== null && (line.source === hot || line.target === hot) && "hot"].filter(Boolean).join(" "),
        focusable: false,
      })),
    [picture, hot],
  );
  const isReady = spots.data !== undefined;
  const start = picture.nodes.find((node) => node.isStart)?.id;
  const size = picture.nodes.length;
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (spots.data === undefined || spots.isPlaceholderData) return;
    const timer = setTimeout(() => {
      const all = flow.getNodesBounds(flow.getNodes());
      const wide = all.width;
      const seen = place.current?.clientWidth ?? wide;
      const from = start === undefined ? undefined : spots.data.get(start);
      // All of it where that can be read; else where one asked from.
      if (from === undefined || wide * LEAST_ZOOM <= seen) void flow.fitView({ padding: 0.06, maxZoom: 1 });
      else {
        const zoom = seen < 900 ? LEAST_ZOOM : 0.85;
        const half = seen / 2 / zoom - MARGIN;
        // Not so that half of the picture is empty.
        const x = Math.min(Math.max(from.x + 100, all.x + half), all.x + all.width - half);
        void flow.setCenter(x, from.y + 20, { zoom });
      }
    }, 30);
    return () => clearTimeout(timer);
  }, [spots.isPlaceholderData, spots.data, flow, start]);
  if (spots.isError) return <Problem error={spots.error} />;
  return (
    <div ref={place} className={isSmall ? "canvas small" : "canvas"} role="region" aria-label={label}>
      {!isReady && <Skeleton lines={1} height="100%" />}
      {isReady && (
        <ReactFlow
          nodes={nodes}
          edges={edges}
          nodeTypes={TYPES}
          onlyRenderVisibleElements={size > 150}
          nodesDraggable={false}
          nodesConnectable={false}
          edgesFocusable={false}
          minZoom={0.05}
          maxZoom={1.6}
          onNodeMouseEnter={(_, node) => setHot(node.id)}
          onNodeMouseLeave={() => setHot(null)}
          onNodeClick={(_, node) => (onOpen ? onOpen(node.data.drawn) : void navigate(node.data.drawn.path))}
          onKeyDown={(event) => {
            const id = (event.target as HTMLElement).closest<HTMLElement>(".react-flow__node")?.dataset.id;
            const found = picture.nodes.find((node) => node.id === id);
            if (event.key === "Enter" && found) (onOpen ?? ((node: Drawn) => void navigate(node.path)))(found);
          }}
        >
          <Background gap={24} size={1} color="var(--line)" />
          {!isSmall && <Controls showInteractive={false} />}
          {!isSmall && size > 30 && <MiniMap pannable zoomable ariaLabel="Overview" />}
        </ReactFlow>
      )}
    </div>
  );
}

import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { get } from "../api/client";
import { Problem, Skeleton } from "../components/basics";
import { Canvas, type Paint } from "./canvas";
import { picture, type Drawn } from "./model";

/** Down from what failed: who read it, and who would. */
export default function ImpactGraph({ urn, affected, atRisk }: { urn: string; affected: string[]; atRisk: string[] }) {
  const found = useQuery({
    queryKey: ["lineage", urn, "down"],
    queryFn: () => get("/api/v1/lineage", { query: { node: `dataset:${urn}`, direction: "down", depth: 10 } }),
  });
  const drawn = useMemo(() => (found.data ? picture(found.data.graph) : null), [found.data]);
  const hurt = useMemo(() => new Set(affected.map((one) => `dataset:${one}`)), [affected]);
  const risky = useMemo(() => new Set(atRisk.map((one) => `dataset:${one}`)), [atRisk]);
  const paint = useCallback(
    (node: Drawn): Paint | null =>
      hurt.has(node.id)
        ? { className: "failing", words: "affected" }
        : risky.has(node.id)
          ? { className: "warning", words: "at risk" }
          : node.isStart
            ? { className: "failing", words: "failed here" }
            : null,
    [hurt, risky],
  );
  if (found.isError) return <Problem error={found.error} />;
  if (!drawn) return <Skeleton lines={1} height="20rem" />;
  return <Canvas picture={drawn} paint={paint} isSmall label="The impact as a graph; the list beside it says the same" />;
}

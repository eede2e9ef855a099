// The runs of a job as bars: how long each took, and how it ended. Each leads to its run.
import { Link } from "react-router";
import type { Schemas } from "../api/client";
import { pathOf } from "../words/names";
import { duration, inUtc, moment, secondsBetween } from "../words/time";
import { Wide } from "./basics";

type Run = Schemas["RunBrief"];

const HEIGHT = 110;
const BAR = 12;

function kind(state: string): string {
  return state === "COMPLETE" ? "bar" : state === "FAIL" || state === "ABORT" ? "bar bad" : "bar mid";
}

export function RunsPlot({ runs }: { runs: Run[] }) {
  const inOrder = [...runs].reverse();
  const took = inOrder.map((run) => secondsBetween(run.started_at, run.ended_at ?? new Date()));
  const longest = Math.max(...took, 1);
  const width = Math.max(inOrder.length * BAR, 200);
  const first = inOrder[0];
  const last = inOrder.at(-1);
  if (!first || !last) return null;
  return (
    <Wide label="Runs">
      <svg className="plot runs" viewBox={`0 0 ${width} ${HEIGHT}`} style={{ maxWidth: `${width * 1.6}px` }} role="group" aria-label={`The last ${inOrder.length} runs and how long they took`}>
        <text x={0} y={10}>
          up to {duration(longest)}
        </text>
        {inOrder.map((run, place) => {
          const height = Math.max(3, ((took[place] ?? 0) / longest) * (HEIGHT - 34));
          const words = `${run.state}, ${moment(run.started_at)} (${inUtc(run.started_at)}), ${duration(took[place] ?? 0)}`;
          return (
            <Link key={run.id} to={pathOf.run(run.id)} aria-label={words}>
              <rect className={kind(run.state)} x={place * BAR + 1} y={HEIGHT - 18 - height} width={BAR - 3} height={height} rx={2}>
                <title>{words}</title>
              </rect>
            </Link>
          );
        })}
        <text x={0} y={HEIGHT - 4}>
          {moment(first.started_at)}
        </text>
        <text x={inOrder.length * BAR} y={HEIGHT - 4} textAnchor={inOrder.length * BAR > 150 ? "end" : "start"}>
          {inOrder.length > 8 ? moment(last.started_at) : ""}
        </text>
      </svg>
    </Wide>
  );
}

// Amounts over time with the band of what is usual: plain SVG, drawn to the width there is.
import type { Schemas } from "../api/client";
import { exact, short } from "../words/numbers";
import { day, moment } from "../words/time";

interface Point {
  at: string;
  value: number;
}

export interface PlotProps {
  points: Point[];
  usual: Schemas["Usual"] | null;
  unit: string;
  format?: (value: number) => string;
}

const WIDTH = 640;
const HEIGHT = 120;
const LEFT = 6;
const RIGHT = 86;
const TOP = 12;
const BOTTOM = 20;

export function Plot({ points, usual, unit, format = short }: PlotProps) {
  const last = points.at(-1);
  const first = points[0];
  if (last === undefined || first === undefined) return null;
  const values = points.map((point) => point.value);
  const highest = Math.max(...values, usual?.high ?? 0) * 1.05 || 1;
  const begin = new Date(first.at).getTime();
  const span = Math.max(1, new Date(last.at).getTime() - begin);
  const x = (at: string) => LEFT + ((new Date(at).getTime() - begin) / span) * (WIDTH - LEFT - RIGHT);
  const y = (value: number) => HEIGHT - BOTTOM - (value / highest) * (HEIGHT - TOP - BOTTOM);
  const isOdd = (value: number) => usual !== null && (value < usual.low || value > usual.high);
  const lastX = points.length === 1 ? LEFT : x(last.at);
  const words =
    `${exact(last.value)} ${unit} at ${moment(last.at)}` +
    (usual ? `; usual is ${exact(Math.round(usual.low))} to ${exact(Math.round(usual.high))}` : "");
  return (
    <svg className="plot" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={words}>
      {usual && (
        <rect className="band" x={LEFT} width={WIDTH - LEFT - RIGHT + 6} y={y(usual.high)} height={Math.max(1, y(usual.low) - y(usual.high))}>
          <title>{`usual: ${exact(Math.round(usual.low))} to ${exact(Math.round(usual.high))} ${unit}`}</title>
        </rect>
      )}
      <line className="axis" x1={LEFT} x2={WIDTH - RIGHT + 6} y1={y(0)} y2={y(0)} />
      <polyline className="line" points={points.map((point) => `${x(point.at)},${y(point.value)}`).join(" ")} />
      {points.slice(0, -1).map((point) => (
        <circle key={point.at} className={isOdd(point.value) ? "point odd" : "point"} cx={x(point.at)} cy={y(point.value)} r={isOdd(point.value) ? 4 : 1.8}>
          <title>{`${exact(point.value)} ${unit}, ${moment(point.at)}`}</title>
        </circle>
      ))}
      <circle className={isOdd(last.value) ? "point odd" : "now"} cx={lastX} cy={y(last.value)} r={5.5}>
        <title>{words}</title>
      </circle>
      <text className="loud" x={lastX + 12} y={y(last.value) + 4}>
        {format(last.value)}
      </text>
      {usual && Math.abs(y(usual.middle) - y(last.value)) > 16 && (
        <text x={WIDTH - RIGHT + 12} y={y(usual.middle) + 4}>
          usual {format(Math.round(usual.middle))}
        </text>
      )}
      <text x={LEFT} y={HEIGHT - 4}>
        {day(first.at)}
      </text>
      <text x={Math.max(lastX, 60)} y={HEIGHT - 4} textAnchor="end">
        {moment(last.at)}
      </text>
    </svg>
  );
}

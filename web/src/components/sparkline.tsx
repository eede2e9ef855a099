// How a test did lately, one mark for each result: height and colour both tell.
import { inUtc, moment } from "../words/time";

export type Tick = [at: string, status: string];

function kind(status: string): string {
  switch (status) {
    case "pass":
    case "COMPLETE":
      return "pass";
    case "fail":
    case "FAIL":
    case "ABORT":
      return "fail";
    case "warn":
      return "warn";
    default:
      return "skip";
  }
}

export function Sparkline({ ticks }: { ticks: Tick[] }) {
  const bad = ticks.filter(([, status]) => ["fail", "warn"].includes(kind(status))).length;
  const words = `${bad} of the last ${ticks.length} failed`;
  return (
    <div>
      <div className="spark" role="img" aria-label={words}>
        {ticks.map(([at, status], place) => (
          <i key={place} className={kind(status)} title={`${status}, ${moment(at)} (${inUtc(at)})`} />
        ))}
      </div>
      <div className="soft small">{ticks.length === 0 ? "no results" : words}</div>
    </div>
  );
}

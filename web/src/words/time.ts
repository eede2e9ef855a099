// Moments and durations as people say them: in the reader's zone, with UTC for who has to compare.

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const DATE = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const DATE_AND_YEAR = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });

/** Short: 12 min, 3 h, 2 d. */
export function duration(seconds: number): string {
  const amount = Math.max(0, seconds);
  if (amount < 1) return `${Math.round(amount * 1000)} ms`;
  if (amount < 10) return `${trimmed(amount)} s`;
  if (amount < 1.5 * MINUTE) return `${Math.round(amount)} s`;
  if (amount < 90 * MINUTE) return `${Math.round(amount / MINUTE)} min`;
  if (amount < 36 * HOUR) return `${trimmed(amount / HOUR)} h`;
  return `${trimmed(amount / DAY)} d`;
}

export function secondsBetween(from: string | Date, to: string | Date): number {
  return (new Date(to).getTime() - new Date(from).getTime()) / 1000;
}

/** How long ago. */
export function age(moment: string, now: Date = new Date()): string {
  const seconds = secondsBetween(moment, now);
  return seconds < 0 ? `in ${duration(-seconds)}` : seconds < 5 ? "now" : duration(seconds);
}

/** The clock alone today, with the date on other days, with the year in other years. */
export function moment(at: string, now: Date = new Date()): string {
  const then = new Date(at);
  if (sameDay(then, now)) return CLOCK.format(then);
  const date = then.getFullYear() === now.getFullYear() ? DATE : DATE_AND_YEAR;
  return `${date.format(then)}, ${CLOCK.format(then)}`;
}

export function day(at: string, now: Date = new Date()): string {
  const then = new Date(at);
  return (then.getFullYear() === now.getFullYear() ? DATE : DATE_AND_YEAR).format(then);
}

export function clock(at: string): string {
  return CLOCK.format(new Date(at));
}

/** To the second, in UTC: what stands in every log. */
export function inUtc(at: string): string {
  const iso = new Date(at).toISOString();
  return `${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC`;
}

export function sameDay(one: Date, other: Date): boolean {
  return (
    one.getFullYear() === other.getFullYear() &&
    one.getMonth() === other.getMonth() &&
    one.getDate() === other.getDate()
  );
}

/** For an input of type datetime-local, which has no zone. */
export function forInput(at: Date): string {
  const local = new Date(at.getTime() - at.getTimezoneOffset() * MINUTE * 1000);
  return local.toISOString().slice(0, 16);
}

function trimmed(value: number): string {
  return value < 10 ? String(Math.round(value * 10) / 10) : String(Math.round(value));
}

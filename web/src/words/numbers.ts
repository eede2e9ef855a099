// Numbers short enough to compare at a glance; the exact one is for who points at it.

const EXACT = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

export function exact(value: number): string {
  return EXACT.format(value);
}

/** 950, 1.2 k, 47 k, 1.2 M. */
export function short(value: number): string {
  const size = Math.abs(value);
  for (const [limit, unit] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e4, "k"],
  ] as const) {
    if (size >= limit) return `${three(value / (unit === "k" ? 1e3 : limit))} ${unit}`;
  }
  return size >= 1000 ? EXACT.format(Math.round(value)) : three(value);
}

export function bytes(value: number): string {
  const size = Math.abs(value);
  if (size < 1000) return `${value} B`;
  const units = ["kB", "MB", "GB", "TB", "PB"];
  const power = Math.min(units.length, Math.floor(Math.log10(size) / 3));
  return `${three(value / 1000 ** power)} ${units[power - 1] ?? ""}`;
}

export function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

/** `count(2, "failure")`: 2 failures. */
export function count(number: number, one: string, many = `${one}s`): string {
  return `${exact(number)} ${number === 1 ? one : many}`;
}

function three(value: number): string {
  const size = Math.abs(value);
  return String(size >= 100 ? Math.round(value) : size >= 10 ? Math.round(value * 10) / 10 : Math.round(value * 100) / 100);
}

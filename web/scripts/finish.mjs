// After the build: everything is packed once and for all, and what a first visit loads is weighed.
import { readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { constants, gzipSync } from "node:zlib";

const OUT = new URL("../../src/correlator/server/web/", import.meta.url).pathname;
const BUDGET = 300_000; // bytes of JavaScript, packed, before anything can be seen
const WORTH_PACKING = /\.(js|css|html|svg|json|webmanifest)$/;

const manifest = JSON.parse(readFileSync(join(OUT, ".vite/manifest.json"), "utf8"));
rmSync(join(OUT, ".vite"), { recursive: true });

for (const entry of readdirSync(OUT, { recursive: true, withFileTypes: true })) {
  const path = join(entry.parentPath, entry.name);
  if (entry.isFile() && WORTH_PACKING.test(entry.name) && statSync(path).size > 500) {
    writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: constants.Z_BEST_COMPRESSION }));
  }
}

// The entry, whatever it imports at once, and the heaviest single page that is loaded on demand.
const packed = (file) => gzipSync(readFileSync(join(OUT, file))).length;
const needed = (key, seen = new Set()) => {
  if (!seen.has(key)) {
    seen.add(key);
    for (const other of manifest[key].imports ?? []) needed(other, seen);
  }
  return seen;
};
const weight = (keys) => [...keys].reduce((sum, key) => sum + packed(manifest[key].file), 0);
const first = needed("index.html");
const incident = needed("src/pages/incident.tsx", new Set(first));
const kB = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
console.log(`JavaScript of a first visit, packed: ${kB(weight(first))}; with the page of an incident ${kB(weight(incident))}.`);
if (weight(incident) > BUDGET) {
  console.error(`That is more than ${kB(BUDGET)}: load something on demand (import()), or use less.`);
  process.exit(1);
}

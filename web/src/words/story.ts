// The way from the root cause to what failed: one sentence, told run by run.
import type { Schemas } from "../api/client";

type Incident = Schemas["IncidentDetail"];

export interface Link {
  role: "root" | "passed" | "direct" | "failed";
  job: { namespace: string; name: string } | null;
  runId: string | null;
  state: string | null;
  at: string | null;
  /** What it wrote, which the next one read. */
  wrote: string | null;
}

/** From the root down to the test. Runs that passed it on stand between; a root that wrote it itself is both. */
export function story(incident: Incident): Link[] {
  const root = incident.candidates[0];
  const steps = incident.upstream;
  const chain: Link[] = [];
  let step =
    root === undefined
      ? steps.find((one) => one.distance === 0)
      : (steps.find((one) => one.run_id !== null && one.run_id === root.run_id) ??
        steps.find((one) => one.job?.name === root.job.name && one.job.namespace === root.job.namespace));
  if (root !== undefined && step === undefined) {
    // A run that is missing, or one that failed and wrote nothing, is not on the way: the story begins with it.
    chain.push({ role: "root", job: root.job, runId: root.run_id, state: null, at: null, wrote: null });
    step = steps.find((one) => one.distance === 0);
  }
  for (let guard = 0; step !== undefined && guard < 100; guard += 1) {
    const reader = step.read_by;
    chain.push({
      role: chain.length === 0 ? "root" : reader === null ? "direct" : "passed",
      job: step.job ?? null,
      runId: step.run_id,
      state: step.state,
      at: step.wrote_at,
      wrote: step.urn,
    });
    step = reader === null ? undefined : steps.find((one) => one.run_id === reader);
  }
  const failed: Link = {
    role: "failed",
    job: incident.test_run.job,
    runId: incident.test_run.run_id,
    state: null,
    at: incident.opened_at,
    wrote: null,
  };
  const last = chain.at(-1);
  // A job that failed is told once: as what failed.
  if (incident.kind === "run" && last?.runId === failed.runId) chain.pop();
  return [...chain, failed];
}

/** No more than fits on a line: the first, the last three, and how many lie between. */
export function folded(chain: Link[], most: number): { links: Link[]; hidden: Link[] } {
  if (chain.length <= most) return { links: chain, hidden: [] };
  const tail = most - 1;
  return { links: [...chain.slice(0, 1), ...chain.slice(-tail)], hidden: chain.slice(1, -tail) };
}

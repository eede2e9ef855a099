import { describe, expect, it } from "vitest";
import type { Schemas } from "../api/client";
import { folded, story } from "./story";

const job = (name: string) => ({ namespace: "n", name });
const step = (name: string, distance: number, readBy: string | null) => ({
  urn: `db://h/${name}`,
  distance,
  read_by: readBy,
  run_id: `run-${name}`,
  job: job(name),
  wrote_at: "2026-05-04T09:00:00Z",
  state: "COMPLETE",
});

function incident(candidates: string[], upstream: ReturnType<typeof step>[], kind: "test" | "run" = "test") {
  return {
    kind,
    opened_at: "2026-05-04T10:05:00Z",
    test_run: { run_id: "run-test", job: job("test") },
    candidates: candidates.map((name, place) => ({
      rank: place + 1, run_id: name === "missing" ? null : `run-${name}`, job: job(name), distance: 0, score: 0.5,
      evidence: [], reasons: [], owner: null,
    })),
    upstream,
  } as unknown as Schemas["IncidentDetail"];
}

const told = (one: Schemas["IncidentDetail"]) => story(one).map((link) => `${link.role} ${link.job?.name ?? "?"}`);

describe("the story", () => {
  it("goes from the root, over who passed it on, to the test", () => {
    const one = incident(["stg"], [step("mart", 0, null), step("int", 1, "run-mart"), step("stg", 2, "run-int")]);
    expect(told(one)).toEqual(["root stg", "passed int", "direct mart", "failed test"]);
  });
  it("is short where the root wrote it itself", () => {
    expect(told(incident(["mart"], [step("mart", 0, null)]))).toEqual(["root mart", "failed test"]);
  });
  it("begins with a run that should have been there", () => {
    expect(told(incident(["missing"], [step("mart", 0, null)]))).toEqual([
      "root missing", "direct mart", "failed test",
    ]);
  });
  it("is only the failure where nobody is known to write", () => {
    expect(told(incident([], []))).toEqual(["failed test"]);
  });
  it("tells a job that failed once", () => {
    expect(told(incident(["test"], [{ ...step("test", 0, null) }], "run"))).toEqual(["failed test"]);
  });
  it("folds its middle where it is long", () => {
    const chain = story(
      incident(["a"], [step("d", 0, null), step("c", 1, "run-d"), step("b", 2, "run-c"), step("a", 3, "run-b")]),
    );
    const { links, hidden } = folded(chain, 4);
    expect(links.map((link) => link.job?.name)).toEqual(["a", "c", "d", "test"]);
    expect(hidden.map((link) => link.job?.name)).toEqual(["b"]);
  });
});

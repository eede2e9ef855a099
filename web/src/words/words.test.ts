import { describe, expect, it } from "vitest";
import { address } from "../api/client";
import { commitLink, datasetName, initials, jobName, ownerName, producerName, testName } from "./names";
import { bytes, count, percent, short } from "./numbers";
import { age, duration, inUtc } from "./time";

describe("names", () => {
  it("a dataset is called by its name without the place", () => {
    expect(datasetName("postgres://db:5432/shop.public.orders")).toBe("shop.public.orders");
    expect(datasetName("s3://bucket/raw/orders")).toBe("raw/orders");
    expect(datasetName("s3://bucket")).toBe("bucket");
    expect(datasetName("warehouse/orders")).toBe("warehouse/orders");
  });
  it("a dbt model is called by its own name", () => {
    expect(jobName("model.shop.stg_orders")).toBe("stg_orders");
    expect(jobName("ingest_shop.raw_orders")).toBe("ingest_shop.raw_orders");
  });
  it("a test is called by what it asks, with its column", () => {
    expect(testName({ name: "not_null", column: "id" })).toBe("not_null(id)");
    expect(testName({ name: "row_count", column: "" })).toBe("row_count");
    const generated = "dbt_expectations_expect_column_mean_to_be_between_mart_sales_total_amount";
    expect(testName({ name: generated, column: "total_amount" })).toBe(
      "expect_column_mean_to_be_between(total_amount)",
    );
  });
  it("owners are people and teams, not URIs", () => {
    expect(ownerName("team:data-platform")).toBe("data-platform");
    expect(initials("team:data-platform")).toBe("DP");
    expect(initials("finance")).toBe("FI");
  });
  it("a producer is called by its end, with its version", () => {
    expect(producerName("https://github.com/OpenLineage/OpenLineage/tree/1.42.0/integration/spark")).toEqual({ name: "spark", version: "1.42.0" });
    expect(producerName("https://github.com/apache/airflow/tree/providers-openlineage/2.7.0")).toEqual({ name: "providers-openlineage", version: "2.7.0" });
    expect(producerName("https://example.com/etl")).toEqual({ name: "example.com/etl", version: "" });
  });
  it("a commit is linked where the repository has pages", () => {
    const sha = "a41f9c2b7e";
    expect(commitLink("git@github.com:shop/dbt.git", sha)).toBe(`https://github.com/shop/dbt/commit/${sha}`);
    expect(commitLink("https://git.example/shop/dbt.git", sha, "/models/a.sql")).toBe(
      `https://git.example/shop/dbt/blob/${sha}/models/a.sql`,
    );
    expect(commitLink("javascript:alert(1)", sha)).toBeNull();
    expect(commitLink("https://git.example/x", "v1.2")).toBeNull();
  });
});

describe("numbers", () => {
  it("are short", () => {
    expect([0, 7, 950, 6997, 47_394, 1_204_330].map(short)).toEqual(["0", "7", "950", "6,997", "47.4 k", "1.2 M"]);
    expect([12, 1500, 6_085_518].map(bytes)).toEqual(["12 B", "1.5 kB", "6.09 MB"]);
    expect(percent(0.8783)).toBe("88 %");
    expect([count(1, "failure"), count(1200, "failure")]).toEqual(["1 failure", "1,200 failures"]);
  });
});

describe("time", () => {
  it("is as long as people say", () => {
    expect([0.2, 3.14, 45, 720, 5400, 200_000].map(duration)).toEqual([
      "200 ms", "3.1 s", "45 s", "12 min", "1.5 h", "2.3 d",
    ]);
  });
  it("ages from now", () => {
    const now = new Date("2026-05-04T10:12:00Z");
    expect(age("2026-05-04T10:00:00Z", now)).toBe("12 min");
    expect(age("2026-05-04T11:12:00Z", now)).toBe("in 60 min");
  });
  it("is told in UTC to who points at it", () => {
    expect(inUtc("2026-05-04T12:00:00+02:00")).toBe("2026-05-04 10:00:00 UTC");
  });
});

describe("addresses", () => {
  it("carry names with slashes and leave out what is not said", () => {
    expect(address("/api/v1/jobs/{namespace}/{name}", { namespace: "spark://h:7077", name: "a/b" })).toBe(
      "/api/v1/jobs/spark%3A%2F%2Fh%3A7077/a%2Fb",
    );
    expect(address("/x", {}, { q: "a b", since: undefined, roots: true })).toBe("/x?q=a+b&roots=true");
  });
});

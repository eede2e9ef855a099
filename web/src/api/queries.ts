// What several pages ask, each asked in one way.
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { ProblemError, get } from "./client";

/** Milliseconds between two looks at what changes by itself. */
export const LIVE = 15_000;

export const session = queryOptions({
  queryKey: ["session"],
  queryFn: () => get("/api/v1/session"),
  staleTime: 60_000,
});

export const lag = queryOptions({
  queryKey: ["lag"],
  queryFn: () => get("/api/v1/health/lag"),
  refetchInterval: LIVE,
});

export const ledger = queryOptions({
  queryKey: ["ledger"],
  queryFn: () => get("/api/v1/health/ledger"),
  refetchInterval: 60_000,
});

export const openCount = queryOptions({
  queryKey: ["incidents", "counts", "nav"],
  queryFn: () => get("/api/v1/incidents/counts", { query: { roots: true } }),
  refetchInterval: LIVE,
});

export const statistics = (since: string, until?: string) =>
  queryOptions({
    queryKey: ["statistics", since, until],
    queryFn: () => get("/api/v1/incidents/statistics", { query: { since, ...(until && { until }) } }),
    staleTime: 60_000,
  });

export const incident = (id: string) =>
  queryOptions({
    queryKey: ["incident", id],
    queryFn: () => get("/api/v1/incidents/{id}", { path: { id } }),
    refetchInterval: LIVE,
  });

export const job = (namespace: string, name: string) =>
  queryOptions({
    queryKey: ["job", namespace, name],
    queryFn: () => get("/api/v1/jobs/{namespace}/{name}", { path: { namespace, name } }),
  });

export const run = (id: string) =>
  queryOptions({ queryKey: ["run", id], queryFn: () => get("/api/v1/runs/{id}", { path: { id } }) });

export const dataset = (urn: string) =>
  queryOptions({ queryKey: ["dataset", urn], queryFn: () => get("/api/v1/datasets/{urn}", { path: { urn } }) });

export const verdict = (urn: string) =>
  queryOptions({
    queryKey: ["verdict", urn],
    queryFn: () => get("/api/v1/datasets/{urn}/verdict", { path: { urn } }),
  });

export const amounts = (urn: string, until?: string) =>
  queryOptions({
    queryKey: ["amounts", urn, until],
    queryFn: () => get("/api/v1/datasets/{urn}/amounts", { path: { urn }, query: until ? { until } : {} }),
  });

export const search = (q: string) =>
  queryOptions({
    queryKey: ["search", q],
    queryFn: ({ signal }) => get("/api/v1/search", { query: { q, limit: 8 }, signal }),
    enabled: q.trim().length > 0,
    placeholderData: keepPreviousData,
  });

export function isMissing(error: unknown): boolean {
  return error instanceof ProblemError && error.status === 404;
}

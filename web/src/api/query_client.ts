import { QueryClient } from "@tanstack/react-query";
import { ProblemError } from "./client";

export const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // A busy server asks to come back; what it has refused it refuses again.
      retry: (tries, error) => tries < 3 && (!(error instanceof ProblemError) || [0, 429, 503].includes(error.status)),
    },
  },
});

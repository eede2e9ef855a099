import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { RouterProvider } from "react-router";
import { ProblemError } from "./api/client";
import { Toasts } from "./components/toasts";
import { router } from "./router";
import "./styles.css";

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // A busy server asks to come back; what it has refused it refuses again.
      retry: (tries, error) => tries < 3 && (!(error instanceof ProblemError) || [0, 429, 503].includes(error.status)),
    },
  },
});

const place = document.getElementById("root");
if (place === null) throw new Error("The page has no place to be shown in.");
createRoot(place).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <Toasts>
        <RouterProvider router={router} />
      </Toasts>
    </QueryClientProvider>
  </StrictMode>,
);

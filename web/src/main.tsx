import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { RouterProvider } from "react-router";
import { client } from "./api/query_client";
import { Toasts } from "./components/toasts";
import { router } from "./router";
import "./styles.css";

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

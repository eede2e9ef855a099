import { Navigate, createBrowserRouter } from "react-router";
import { incident } from "./api/queries";
import { client } from "./api/query_client";
import { Shell } from "./components/shell";
import { Broken, Lost } from "./pages/lost";

export const router = createBrowserRouter([
  { path: "/sign-in", lazy: async () => ({ Component: (await import("./pages/sign_in")).SignIn }) },
  {
    element: <Shell />,
    errorElement: <Broken />,
    HydrateFallback: () => null,
    children: [
      { path: "/", element: <Navigate to="/incidents" replace /> },
      { path: "/incidents", lazy: async () => ({ Component: (await import("./pages/incidents")).Incidents }) },
      {
        path: "/incidents/:id",
        // The answer is on its way while the page itself is still being loaded.
        loader: ({ params }) => {
          client.query(incident(params.id ?? "")).catch(() => undefined); // the page asks again, and tells
          return null;
        },
        lazy: async () => ({ Component: (await import("./pages/incident")).Incident }),
      },
      { path: "/lineage", lazy: async () => ({ Component: (await import("./pages/lineage")).Lineage }) },
      { path: "/jobs", lazy: async () => ({ Component: (await import("./pages/jobs")).Jobs }) },
      { path: "/jobs/:namespace/:name", lazy: async () => ({ Component: (await import("./pages/job")).Job }) },
      { path: "/runs/:id", lazy: async () => ({ Component: (await import("./pages/run")).Run }) },
      { path: "/datasets", lazy: async () => ({ Component: (await import("./pages/datasets")).Datasets }) },
      { path: "/datasets/:urn", lazy: async () => ({ Component: (await import("./pages/dataset")).Dataset }) },
      { path: "/status", lazy: async () => ({ Component: (await import("./pages/health")).Health }) },
      { path: "/settings", lazy: async () => ({ Component: (await import("./pages/settings")).Settings }) },
      { path: "/welcome", lazy: async () => ({ Component: (await import("./pages/welcome")).Welcome }) },
      { path: "*", element: <Lost /> },
    ],
  },
]);

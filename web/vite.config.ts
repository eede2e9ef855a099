import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// Where `npm run dev` finds a server.
const SERVER = process.env.CORRELATOR_URL ?? "http://localhost:8080";

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/correlator/server/web",
    emptyOutDir: true,
    target: "es2022",
    manifest: true,
    // The policy of the pages forbids data in place of files for scripts and workers; and names must tell the content.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 2000,
  },
  server: { proxy: { "/api": SERVER, "/health": SERVER, "/docs": SERVER, "/openapi.json": SERVER } },
  test: { environment: "node", include: ["src/**/*.test.ts"] },
});

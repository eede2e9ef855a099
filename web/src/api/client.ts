// The server's API, by its own types.
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

type Ok<T> = T extends { content: { "application/json": infer Body } } ? Body : undefined;
type Answer<Operation> = Operation extends { responses: infer R }
  ? 200 extends keyof R
    ? Ok<R[200]>
    : 201 extends keyof R
      ? Ok<R[201]>
      : undefined
  : never;
type Query<Operation> = Operation extends { parameters: { query?: infer Q } } ? Q : never;
type Body<Operation> = Operation extends { requestBody: { content: { "application/json": infer B } } } ? B : never;
type PathsWith<Method extends string> = {
  [P in keyof paths]: paths[P] extends Record<Method, { responses: unknown }> ? P : never;
}[keyof paths];
type Named = Record<string, string | number>;

/** An answer that says no, in the words of the server. */
export class ProblemError extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly correlationId: string | null,
  ) {
    super(detail || title);
    this.name = "ProblemError";
  }
}

const SIGN_IN_NEEDED = "correlator:sign-in-needed";

/** Called when the server no longer knows who we are. */
export function onSignInNeeded(then: () => void): () => void {
  window.addEventListener(SIGN_IN_NEEDED, then);
  return () => window.removeEventListener(SIGN_IN_NEEDED, then);
}

export function get<P extends PathsWith<"get">>(
  path: P,
  asked: { path?: Named; query?: Query<paths[P] extends { get: infer O } ? O : never>; signal?: AbortSignal } = {},
): Promise<Answer<paths[P] extends { get: infer O } ? O : never>> {
  return send("GET", address(path, asked.path, asked.query as object | undefined), undefined, asked.signal);
}

export function post<P extends PathsWith<"post">>(
  path: P,
  said: { path?: Named; body?: Body<paths[P] extends { post: infer O } ? O : never> },
): Promise<Answer<paths[P] extends { post: infer O } ? O : never>> {
  return send("POST", address(path, said.path), said.body);
}

export function patch<P extends PathsWith<"patch">>(
  path: P,
  said: { path?: Named; body: Body<paths[P] extends { patch: infer O } ? O : never> },
): Promise<Answer<paths[P] extends { patch: infer O } ? O : never>> {
  return send("PATCH", address(path, said.path), said.body);
}

export function remove<P extends PathsWith<"delete">>(
  path: P,
  said: { path?: Named } = {},
): Promise<Answer<paths[P] extends { delete: infer O } ? O : never>> {
  return send("DELETE", address(path, said.path));
}

export function address(path: string, named: Named = {}, query?: object): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(named[name])));
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== "") asked.set(name, String(value));
  }
  const text = asked.toString();
  return text ? `${filled}?${text}` : filled;
}

/** For what the types cannot say: an operation that not every server has. */
export async function send<T>(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  let response: Response;
  try {
    response = await fetch(url, {
      method,
      credentials: "same-origin",
      signal: signal ?? null,
      ...(body === undefined
        ? {}
        : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ProblemError(0, "The server does not answer", "The server does not answer. Is it still running?", null);
  }
  if (response.status === 204) return undefined as T;
  const content: unknown = await response.json().catch(() => null);
  if (response.ok) return content as T;
  if (response.status === 401) window.dispatchEvent(new Event(SIGN_IN_NEEDED));
  const problem = (content ?? {}) as Partial<Schemas["ProblemDocument"]>;
  throw new ProblemError(
    response.status,
    problem.title ?? response.statusText,
    problem.detail ?? "",
    problem.correlation_id ?? response.headers.get("x-correlation-id"),
  );
}

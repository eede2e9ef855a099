// Names of data as people say them: without the part that is the same everywhere.

/** The name without its namespace: what a team calls the table. */
export function datasetName(urn: string): string {
  const scheme = /^([a-z0-9+.-]+):\/\//i.exec(urn);
  if (!scheme) return urn;
  const rest = urn.slice(scheme[0].length);
  const slash = rest.indexOf("/");
  return slash < 0 || slash === rest.length - 1 ? rest : rest.slice(slash + 1);
}

/** The last part of a job's name: the task, the model. */
export function jobName(name: string): string {
  const model = /^(?:model|seed|snapshot|test|source)\.[^.]+\.(.+)$/.exec(name);
  return model?.[1] ?? name;
}

/** not_null(customer_id) */
export function testName(test: { name: string; column: string }): string {
  const name = test.name.length > 60 ? shortened(test.name, test.column) : test.name;
  return test.column ? `${name}(${test.column})` : name;
}

/** What a generator has put into the name of a test is not what people call it. */
function shortened(name: string, column: string): string {
  const plain = name.replace(/^dbt_(?:expectations|utils)_/, "");
  const end = column ? plain.toLowerCase().lastIndexOf(`_${column.toLowerCase()}`) : -1;
  const asked = /^(expect_\w+?_(?:between|null|set|unique|exist|equal|regex|type|value|range|recent))(?=_)/.exec(plain);
  return asked?.[1] ?? (end > 20 ? plain.slice(0, end) : plain);
}

/** team:data-platform → data-platform */
export function ownerName(owner: string): string {
  return owner.replace(/^(?:team|user|group):/i, "");
}

export function initials(owner: string): string {
  const parts = ownerName(owner).split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const letters = parts.length > 1 ? (parts[0]?.[0] ?? "") + (parts[1]?.[0] ?? "") : (parts[0] ?? "?").slice(0, 2);
  return letters.toUpperCase();
}

/** A producer is a URI, often of a tree in a repository; its end and its version are what people say. */
export function producerName(uri: string): { name: string; version: string } {
  const [repository = uri, tree] = uri.replace(/^https?:\/\//, "").split(/\/(?:tree|blob|releases\/tag)\//);
  if (tree === undefined) return { name: repository, version: "" };
  const parts = tree.split("/");
  const version = parts.find((part) => /^v?\d+(\.\d+)+/.test(part)) ?? "";
  const rest = parts.filter((part) => part !== version && part !== "integration").join("/");
  return { name: rest || repository, version };
}

/** A run's id is long and its beginning is often a time: its end tells runs apart. */
export function runName(id: string): string {
  return id.length > 12 ? `…${id.slice(-6)}` : id;
}

export const pathOf = {
  incident: (id: string) => `/incidents/${id}`,
  dataset: (urn: string) => `/datasets/${encodeURIComponent(urn)}`,
  job: (job: { namespace: string; name: string }) =>
    `/jobs/${encodeURIComponent(job.namespace)}/${encodeURIComponent(job.name)}`,
  run: (id: string) => `/runs/${encodeURIComponent(id)}`,
  lineage: (node: string) => `/lineage?node=${encodeURIComponent(node)}`,
};

/** A link to a commit in the browser of a repository, where one can be made. */
export function commitLink(repository: string | undefined, version: string, path?: string): string | null {
  if (!repository || !/^[0-9a-f]{7,64}$/i.test(version)) return null;
  const ssh = /^(?:ssh:\/\/)?git@([^:/]+)[:/](.+)$/.exec(repository);
  const base = (ssh ? `https://${ssh[1] ?? ""}/${ssh[2] ?? ""}` : repository).replace(/\.git$/, "").replace(/\/$/, "");
  if (!/^https?:\/\//.test(base)) return null;
  if (!path) return `${base}/commit/${version}`;
  return `${base}/blob/${version}/${path.replace(/^\//, "")}`;
}

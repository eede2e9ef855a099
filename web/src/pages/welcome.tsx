// An empty server teaches: what to send, with this server's address already in it.
import { Tabs } from "radix-ui";
import { useState } from "react";
import { useTitle } from "../components/use_title";

const SETUPS: [name: string, words: string, text: (url: string) => string][] = [
  [
    "Try it",
    "A shop that does not exist, with three weeks of history and one careless deploy:",
    (url) => `correlator demo --url ${url}`,
  ],
  [
    "Airflow",
    "Install the provider, then in the environment of scheduler and workers:",
    (url) =>
      `pip install apache-airflow-providers-openlineage\n\nexport AIRFLOW__OPENLINEAGE__TRANSPORT='{"type": "http", "url": "${url}", "endpoint": "api/v1/lineage"}'\nexport AIRFLOW__OPENLINEAGE__NAMESPACE=airflow-prod`,
  ],
  [
    "dbt",
    "Run dbt through the wrapper, with the same arguments:",
    (url) => `pip install openlineage-dbt\n\nexport OPENLINEAGE_URL=${url}\nexport OPENLINEAGE_NAMESPACE=dbt-prod\ndbt-ol build`,
  ],
  [
    "Spark",
    "Add the listener to spark-submit, or to spark-defaults.conf:",
    (url) =>
      `spark-submit \\\n  --packages io.openlineage:openlineage-spark_2.13:1.53.0 \\\n  --conf spark.extraListeners=io.openlineage.spark.agent.OpenLineageSparkListener \\\n  --conf spark.openlineage.transport.type=http \\\n  --conf spark.openlineage.transport.url=${url} \\\n  --conf spark.openlineage.namespace=spark-prod \\\n  job.py`,
  ],
  [
    "Great Expectations",
    "Add an action to the checkpoint; results then come with every validation:",
    (url) =>
      `pip install 'openlineage-correlator[great-expectations]'\n\nfrom correlator.integrations.great_expectations import CorrelatorValidationAction\n\ncheckpoint.actions.append(\n    CorrelatorValidationAction(name="correlator", correlator_endpoint="${url}")\n)`,
  ],
  [
    "Anything else",
    "Every OpenLineage client works unchanged. By hand it is one request:",
    (url) =>
      `curl ${url}/api/v1/lineage -H 'Content-Type: application/json' -d '{\n  "eventType": "COMPLETE", "eventTime": "${new Date().toISOString()}",\n  "producer": "https://example.com/me", "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json",\n  "run": {"runId": "${crypto.randomUUID()}"}, "job": {"namespace": "me", "name": "first"},\n  "outputs": [{"namespace": "postgres://db:5432", "name": "shop.public.orders"}]}'`,
  ],
];

export function Welcome() {
  useTitle("Send events");
  return <GettingStarted />;
}

export function GettingStarted() {
  const url = window.location.origin;
  return (
    <section className="card">
      <header>
        <h2>No event has come yet. Send the first one</h2>
        <span className="soft">this server listens at <code>{url}</code></span>
      </header>
      <Tabs.Root defaultValue="Try it">
        <Tabs.List className="tabs" aria-label="What sends events">
          {SETUPS.map(([name]) => (
            <Tabs.Trigger key={name} value={name}>
              {name}
            </Tabs.Trigger>
          ))}
        </Tabs.List>
        {SETUPS.map(([name, words, text]) => (
          <Tabs.Content key={name} value={name} className="stack gap-s">
            <p>{words}</p>
            <Snippet text={text(url)} />
          </Tabs.Content>
        ))}
      </Tabs.Root>
      <p className="soft small">
        If this server has keys, clients send theirs as well: <code>OPENLINEAGE_API_KEY</code>, or in the transport{" "}
        <code>{'"auth": {"type": "api_key", "apiKey": "…"}'}</code>. What was sent shows up under Health at once.
      </p>
    </section>
  );
}

export function Snippet({ text }: { text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <div className="snippet">
      {/* It scrolls when it is wide, so that a keyboard must reach it. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <pre tabIndex={0}>{text}</pre>
      <button type="button" className="button small" onClick={() => void copy()}>
        {isCopied ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

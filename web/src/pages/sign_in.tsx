import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { ProblemError, post } from "../api/client";
import { useTitle } from "../components/use_title";

export function SignIn() {
  const [key, setKey] = useState("");
  const [refusal, setRefusal] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [parameters] = useSearchParams();
  const navigate = useNavigate();
  const client = useQueryClient();
  useTitle("Sign in");
  const signIn = async () => {
    setBusy(true);
    setRefusal(null);
    try {
      await post("/api/v1/session", { body: { key } });
      client.clear();
      const to = parameters.get("to") ?? "/incidents";
      // Only into our own pages, whatever a link says.
      await navigate(/^\/(?!\/)/.test(to) ? to : "/incidents", { replace: true });
    } catch (error) {
      setRefusal(error instanceof ProblemError ? error.detail || error.title : String(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main className="main sign-in">
      <form
        className="card stack"
        onSubmit={(event) => {
          event.preventDefault();
          void signIn();
        }}
      >
        <h1>Sign in to Correlator</h1>
        <p className="soft">
          This server takes nobody without a key. One with the scopes <code>read</code> and <code>act</code> is made
          with:
        </p>
        <pre className="snippet">correlator keys create YOUR-NAME --scope read --scope act</pre>
        <label className="labelled">
          Key
          <input
            className="field"
            type="password"
            name="key"
            autoComplete="current-password"
            required
            value={key}
            onChange={(event) => setKey(event.target.value)}
            aria-describedby={refusal ? "refusal" : undefined}
          />
        </label>
        {refusal && (
          <p id="refusal" className="red" role="alert">
            {refusal}
          </p>
        )}
        <button type="submit" className="button primary" disabled={isBusy}>
          Sign in
        </button>
        <p className="soft small">
          It is kept in a cookie that no script can read, until you sign out or it ends by itself.
        </p>
      </form>
    </main>
  );
}

import { Link, useRouteError } from "react-router";
import { Empty, Problem } from "../components/basics";

export function Lost() {
  return (
    <Empty title="There is no such page">
      <p>
        The link may be old. <Link to="/incidents">See what is wrong now</Link>, or press <kbd>/</kbd> to search.
      </p>
    </Empty>
  );
}

export function Broken() {
  const error = useRouteError();
  return (
    <main className="main">
      <Problem error={error} retry={() => window.location.reload()} />
    </main>
  );
}

// What stands around every page: where one can go, how far behind the facts are, and who one is.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link, NavLink, Outlet, useLocation, useNavigate } from "react-router";
import { onSignInNeeded, remove } from "../api/client";
import { lag, ledger, openCount, session } from "../api/queries";
import { count, exact, short } from "../words/numbers";
import { duration, moment, secondsBetween } from "../words/time";
import { SearchPalette } from "./search_palette";
import { useKeys } from "./use_keys";

const PAGES = [
  ["/incidents", "Incidents"],
  ["/lineage", "Lineage"],
  ["/jobs", "Jobs"],
  ["/datasets", "Datasets"],
  ["/status", "Health"],
  ["/settings", "Settings"],
] as const;

/** Seconds behind from which on people are told before anything else. */
const TOO_LATE = 60;

export function Shell() {
  const [isSearching, setSearching] = useState(false);
  const navigate = useNavigate();
  const { pathname, search } = useLocation();
  const open = useQuery(openCount).data?.counts.status.open;
  useEffect(
    () => onSignInNeeded(() => void navigate(`/sign-in?to=${encodeURIComponent(pathname + search)}`, { replace: true })),
    [navigate, pathname, search],
  );
  useKeys({ "/": () => setSearching(true) });
  return (
    <div className="shell">
      <a className="skip" href="#main">
        Skip to the content
      </a>
      <aside className="side">
        <Link to="/incidents" className="brand">
          <svg viewBox="0 0 32 32" aria-hidden>
            <path d="M8 24 16 16 24 8" fill="none" stroke="currentColor" strokeWidth="2.5" opacity=".45" />
            <circle cx="8" cy="24" r="5.5" className="brand-dot" fill="var(--red-mark)" />
            <circle cx="16" cy="16" r="3.5" fill="currentColor" />
            <circle cx="24" cy="8" r="3.5" fill="currentColor" />
          </svg>
          Correlator
        </Link>
        <button type="button" className="find" onClick={() => setSearching(true)}>
          Search <kbd>/</kbd>
        </button>
        <nav className="nav" aria-label="Pages">
          {PAGES.map(([to, name]) => (
            <NavLink key={to} to={to}>
              {name}
              {to === "/incidents" && !!open && (
                <span className="number" title={`${exact(open)} open`}>
                  {short(open)}
                </span>
              )}
            </NavLink>
          ))}
        </nav>
        <Foot />
      </aside>
      <main className="main" id="main" tabIndex={-1}>
        <div className="inner">
          <LateBanner />
          <Outlet />
        </div>
      </main>
      {isSearching && <SearchPalette onClose={() => setSearching(false)} />}
    </div>
  );
}

/** When the pipeline lags or stands still, the page says so before it says anything else. */
function LateBanner() {
  const found = useQuery(lag);
  if (found.isError) {
    return (
      <div className="banner" role="status">
        <strong>The server does not answer.</strong> What you see is what it said last.
      </div>
    );
  }
  const facts = found.data?.readers.find((reader) => reader.reader === "facts");
  if (!found.data || !facts || facts.seconds < TOO_LATE) return null;
  const since = found.data.last_batch_at;
  const isStill = since === null || secondsBetween(since, new Date()) > TOO_LATE;
  return (
    <div className="banner" role="status">
      <strong>{isStill ? "The pipeline stands still." : "The pipeline is behind."}</strong>
      <span>
        {count(facts.events, "event")} {facts.events === 1 ? "waits" : "wait"}, the oldest for{" "}
        {duration(facts.seconds)}. What you see is as of {moment(found.data.facts_as_of)}; nothing is lost.
        {isStill && " Start it with `correlator up` or `correlator pipeline stream`."}
      </span>
    </div>
  );
}

function Foot() {
  const client = useQueryClient();
  const navigate = useNavigate();
  const who = useQuery(session).data;
  const behind = useQuery(lag).data;
  const facts = behind?.readers.find((reader) => reader.reader === "facts");
  const received = useQuery(ledger).data?.received;
  const sum = (of: "received" | "stored" | "duplicates" | "rejected") =>
    (received ?? []).reduce((total, source) => total + source[of], 0);
  const lost = sum("received") - sum("stored") - sum("duplicates") - sum("rejected");
  const isLate = (facts?.seconds ?? 0) >= TOO_LATE;
  const signOut = async () => {
    await remove("/api/v1/session");
    client.clear();
    await navigate("/sign-in");
  };
  return (
    <div className="foot">
      {behind && (
        <div className="row gap-s" title={`What was received until ${moment(behind.facts_as_of)} is in the facts.`}>
          <span className={`dot ${isLate ? "warn" : "ok"}`} aria-hidden />
          {isLate ? "late" : "live"} · {facts?.seconds ? `${duration(facts.seconds)} behind` : "up to date"}
        </div>
      )}
      {received && (
        <div title={`${exact(sum("received"))} received, ${exact(sum("stored"))} stored`}>
          {short(sum("stored"))} events · <span className={lost ? "red" : ""}>{short(lost)} lost</span>
        </div>
      )}
      <ThemeSwitch />
      {who && !who.is_open && who.name && (
        <div>
          {who.name} ·{" "}
          <button type="button" onClick={() => void signOut()}>
            Sign out
          </button>
        </div>
      )}
    </div>
  );
}

const THEMES = { system: "As the system", light: "Light", dark: "Dark" } as const;
type Theme = keyof typeof THEMES;

function ThemeSwitch() {
  const [theme, setTheme] = useState<Theme>(() => {
    const chosen = document.documentElement.dataset.theme;
    return chosen === "light" || chosen === "dark" ? chosen : "system";
  });
  const next: Theme = theme === "system" ? "dark" : theme === "dark" ? "light" : "system";
  const change = () => {
    setTheme(next);
    if (next === "system") {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem("theme");
    } else {
      document.documentElement.dataset.theme = next;
      localStorage.setItem("theme", next);
    }
  };
  return (
    <button type="button" onClick={change} title={`Change to: ${THEMES[next]}`}>
      Colours: {THEMES[theme].toLowerCase()}
    </button>
  );
}

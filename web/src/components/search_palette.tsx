// One box for everything that has a name.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useId, useRef, useState } from "react";
import { useNavigate } from "react-router";
import type { Schemas } from "../api/client";
import { search } from "../api/queries";
import { pathOf } from "../words/names";
import { useSoon } from "./use_soon";

type Found = Schemas["Found"];

/** The page of something that was found. */
export function pathOfFound(found: Found): string {
  const named = found.id.slice(found.kind.length + 1);
  switch (found.kind) {
    case "dataset":
      return pathOf.dataset(named);
    case "job":
      return pathOf.job(found);
    case "run":
      return pathOf.run(named);
    case "column":
      return `/lineage?level=column&node=${encodeURIComponent(found.id)}`;
    case "test":
      return pathOf.dataset(found.namespace);
  }
}

export function SearchPalette({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const navigate = useNavigate();
  const list = useId();
  const asked = useSoon(text, 120);
  const found = useQuery(search(asked));
  const items = asked.trim() ? (found.data?.items ?? []) : [];
  useEffect(() => dialog.current?.showModal(), []);
  const go = (one: Found | undefined) => {
    if (one === undefined) return;
    onClose();
    void navigate(pathOfFound(one));
  };
  return (
    // A click beside it closes it; for the keyboard a dialog has Escape by itself.
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/no-noninteractive-element-interactions
    <dialog ref={dialog} className="palette" aria-label="Search" onClose={onClose} onClick={(event) => event.target === dialog.current && onClose()}>
      <input
        role="combobox"
        aria-expanded={items.length > 0}
        aria-controls={list}
        aria-activedescendant={items.length > 0 ? `${list}-${at}` : undefined}
        aria-label="Search datasets, jobs, columns, tests and runs"
        placeholder="dataset, job, column, test, or a run's id"
        value={text}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
          if (step) {
            event.preventDefault();
            setAt((before) => Math.min(Math.max(0, before + step), Math.max(0, items.length - 1)));
          } else if (event.key === "Enter") {
            go(items[at]);
          }
        }}
      />
      <ul id={list} role="listbox" aria-label="What was found">
        {items.map((one, place) => (
          // Keys are dealt with by the box above, which keeps the focus.
          // eslint-disable-next-line jsx-a11y/click-events-have-key-events
          <li key={one.id} id={`${list}-${place}`} role="option" aria-selected={place === at} onClick={() => go(one)}>
            <span className="soft small">{one.kind}</span>
            <span className="stack gap-s">
              <span>
                <span className="mono breaks strong">{one.name}</span>
                <span className="cut soft small">{one.namespace}</span>
              </span>
            </span>
          </li>
        ))}
      </ul>
      {asked.trim() && found.isSuccess && items.length === 0 && (
        <p className="empty">Nothing begins so. Every word has to be the beginning of a word of the name.</p>
      )}
    </dialog>
  );
}

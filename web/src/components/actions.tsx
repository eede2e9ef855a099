// What people do about incidents: at once, in place, and with a way back instead of a question.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Popover } from "radix-ui";
import { useState, type ReactNode } from "react";
import { post, type Schemas } from "../api/client";
import { session, statistics } from "../api/queries";
import { ownerName } from "../words/names";
import { count } from "../words/numbers";
import { forInput } from "../words/time";
import { useToasts } from "./toasts";

export type Deed = Schemas["ActionBody"];
type Answer = Schemas["ActionAnswer"];
export type Acted = Pick<Schemas["IncidentItem"], "id" | "status" | "assignee">;

const PAST: Record<Deed["action"], string> = {
  acknowledge: "Acknowledged", unacknowledge: "Took back the acknowledgement of", assign: "Assigned",
  unassign: "Took back the assignment of", mute: "Muted", unmute: "Unmuted", resolve: "Resolved",
  reopen: "Reopened", comment: "Commented on",
};

const REASONS = [
  ["fixed", "Fixed"],
  ["expected", "Expected: the data is right"],
  ["false_alarm", "False alarm: the test is wrong"],
  ["not_worth_fixing", "Not worth fixing"],
  ["duplicate", "Known elsewhere"],
  ["other", "Something else"],
] as const;

const MUTES = [
  ["1 hour", 1],
  ["until tomorrow, 8:00", 0],
  ["1 day", 24],
  ["1 week", 24 * 7],
] as const;

/** What takes a deed back; nothing for what stays said. */
function opposite(deed: Deed, before: Acted): Deed | null {
  switch (deed.action) {
    case "acknowledge":
      return { action: "unacknowledge" };
    case "unacknowledge":
      return { action: "acknowledge" };
    case "mute":
      return { action: "unmute" };
    case "resolve":
      return { action: "reopen" };
    case "assign":
      return before.assignee ? { action: "assign", assignee: before.assignee } : { action: "unassign" };
    default:
      return null;
  }
}

export function useMay(scope: "act" | "admin"): boolean {
  return useQuery(session).data?.scopes.includes(scope) ?? false;
}

export function useActions(onDone?: (answers: Map<string, Answer>) => void) {
  const client = useQueryClient();
  const { say, complain } = useToasts();
  const [isBusy, setBusy] = useState(false);

  const send = async (deeds: { of: Acted; deed: Deed }[]): Promise<Acted[]> => {
    setBusy(true);
    const answers = new Map<string, Answer>();
    const refusals: unknown[] = [];
    // One after the other: they are few, and who resolves waits for the pipeline's lock anyway.
    for (const { of, deed } of deeds) {
      try {
        answers.set(of.id, await post("/api/v1/incidents/{id}/actions", { path: { id: of.id }, body: deed }));
      } catch (error) {
        refusals.push(error);
      }
    }
    setBusy(false);
    onDone?.(answers);
    void client.invalidateQueries({ queryKey: ["incidents"] });
    void client.invalidateQueries({ queryKey: ["incident"] });
    if (refusals.length > 0) complain(refusals[0]);
    return deeds.map(({ of }) => of).filter((of) => answers.has(of.id));
  };

  const act = async (incidents: Acted[], deed: Deed) => {
    const done = await send(incidents.map((of) => ({ of, deed })));
    if (done.length === 0) return;
    const back = done.flatMap((of) => {
      const undoing = opposite(deed, of);
      return undoing ? [{ of, deed: undoing }] : [];
    });
    const what = done.length === 1 ? "the incident" : count(done.length, "incident");
    const to = deed.action === "assign" ? ` to ${ownerName(deed.assignee ?? "")}` : "";
    say(`${PAST[deed.action]} ${what}${to}.`, back.length > 0 ? () => void send(back) : undefined);
  };

  return { act, isBusy };
}

type Does = (deed: Deed) => void;

function Menu({ name, title, small, children }: { name: string; title: string; small?: boolean | undefined; children: (close: () => void) => ReactNode }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <Popover.Root open={isOpen} onOpenChange={setOpen}>
      <Popover.Trigger className={small ? "button small" : "button"}>{name}</Popover.Trigger>
      <Popover.Portal>
        <Popover.Content className="popover" sideOffset={6} align="end" collisionPadding={12} aria-label={title}>
          <h3>{title}</h3>
          {children(() => setOpen(false))}
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  );
}

export function MuteMenu({ does, small }: { does: Does; small?: boolean }) {
  const [until, setUntil] = useState("");
  return (
    <Menu name="Mute" title="Mute this test or job for" small={small}>
      {(close) => {
        const mute = (end: Date) => {
          does({ action: "mute", until: end.toISOString() });
          close();
        };
        return (
          <div className="stack gap-s">
            <div className="choices">
              {MUTES.map(([name, hours]) => (
                <button key={name} type="button" onClick={() => mute(hours ? hoursFromNow(hours) : tomorrowMorning())}>
                  {name}
                </button>
              ))}
            </div>
            <form
              className="row"
              onSubmit={(event) => {
                event.preventDefault();
                mute(new Date(until));
              }}
            >
              <input className="field grow" type="datetime-local" aria-label="until" required min={forInput(new Date())} value={until} onChange={(event) => setUntil(event.target.value)} />
              <button type="submit" className="button small">
                Until then
              </button>
            </form>
          </div>
        );
      }}
    </Menu>
  );
}

export function ResolveMenu({ does, small }: { does: Does; small?: boolean }) {
  const [note, setNote] = useState("");
  return (
    <Menu name="Resolve" title="Resolve it, because it is" small={small}>
      {(close) => (
        <div className="stack gap-s">
          <textarea className="field" rows={2} placeholder="What was it? The next one will thank you." aria-label="note" value={note} onChange={(event) => setNote(event.target.value)} />
          <div className="choices">
            {REASONS.map(([reason, name]) => (
              <button
                key={reason}
                type="button"
                onClick={() => {
                  does({ action: "resolve", reason, ...(note.trim() && { note: note.trim() }) });
                  close();
                }}
              >
                {name}
              </button>
            ))}
          </div>
        </div>
      )}
    </Menu>
  );
}

export function AssignMenu({ does, assignee, small }: { does: Does; assignee?: string | null; small?: boolean }) {
  const [name, setName] = useState("");
  const me = useQuery(session).data?.name;
  const owners = useQuery(statistics(quarterAgo())).data?.statistics.owners ?? [];
  const known = [...new Set([...(me ? [me] : []), ...owners.flatMap(({ owner }) => (owner ? [ownerName(owner)] : []))])];
  return (
    <Menu name="Assign" title="Who looks after it?" small={small}>
      {(close) => {
        const assign = (to: string) => {
          does({ action: "assign", assignee: to });
          close();
        };
        return (
          <div className="stack gap-s">
            <form
              className="row"
              onSubmit={(event) => {
                event.preventDefault();
                if (name.trim()) assign(name.trim());
              }}
            >
              <input className="field grow" aria-label="name" placeholder="a person or a team" value={name} onChange={(event) => setName(event.target.value)} />
              <button type="submit" className="button small">
                Assign
              </button>
            </form>
            <div className="choices">
              {known
                .filter((one) => one !== assignee && one.toLowerCase().includes(name.toLowerCase()))
                .slice(0, 6)
                .map((one) => (
                  <button key={one} type="button" onClick={() => assign(one)}>
                    {one} {one === me && <span className="soft">you</span>}
                  </button>
                ))}
              {assignee && (
                <button
                  type="button"
                  onClick={() => {
                    does({ action: "unassign" });
                    close();
                  }}
                >
                  nobody
                </button>
              )}
            </div>
          </div>
        );
      }}
    </Menu>
  );
}

function hoursFromNow(hours: number): Date {
  return new Date(Date.now() + hours * 3_600_000);
}

function tomorrowMorning(): Date {
  const day = new Date();
  day.setDate(day.getDate() + 1);
  day.setHours(8, 0, 0, 0);
  return day;
}

/** To the day, so that it is the same question all day long. */
export function quarterAgo(): string {
  return new Date(Math.floor(Date.now() / 86_400_000) * 86_400_000 - 90 * 86_400_000).toISOString();
}

// What was just done, with a way back. Read out by screen readers, gone after a while, never in the way.
import { Toast } from "radix-ui";
import { createContext, useCallback, useContext, useMemo, useState, type ReactNode } from "react";

interface Told {
  id: number;
  words: string;
  isBad: boolean;
  undo?: () => void;
}

interface Teller {
  say: (words: string, undo?: () => void) => void;
  complain: (error: unknown) => void;
}

const Context = createContext<Teller>({ say: () => undefined, complain: () => undefined });
const SECONDS = 12;
let last = 0;

export function useToasts(): Teller {
  return useContext(Context);
}

export function Toasts({ children }: { children: ReactNode }) {
  const [told, setTold] = useState<Told[]>([]);
  const add = useCallback((one: Omit<Told, "id">) => {
    last += 1;
    const id = last;
    setTold((before) => [...before.slice(-2), { ...one, id }]);
  }, []);
  const teller = useMemo<Teller>(
    () => ({
      say: (words, undo) => add({ words, isBad: false, ...(undo && { undo }) }),
      complain: (error) => add({ words: error instanceof Error ? error.message : String(error), isBad: true }),
    }),
    [add],
  );
  const drop = (id: number) => setTold((before) => before.filter((one) => one.id !== id));
  return (
    <Context value={teller}>
      <Toast.Provider duration={SECONDS * 1000} swipeDirection="down">
        {children}
        {told.map((one) => (
          <Toast.Root
            key={one.id}
            className={one.isBad ? "toast bad" : "toast"}
            type={one.isBad ? "foreground" : "background"}
            onOpenChange={(open) => open || drop(one.id)}
          >
            <Toast.Description>{one.words}</Toast.Description>
            {one.undo && (
              <Toast.Action altText="Undo what was just done" onClick={one.undo}>
                Undo
              </Toast.Action>
            )}
            {!one.undo && <Toast.Close aria-label="Close">Close</Toast.Close>}
          </Toast.Root>
        ))}
        <Toast.Viewport className="toasts" label="Messages" />
      </Toast.Provider>
    </Context>
  );
}

import { useEffect, useState } from "react";

/** A value when it has stood still for a moment: who types asks once, not at every letter. */
export function useSoon<T>(value: T, milliseconds = 250): T {
  const [soon, setSoon] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSoon(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return soon;
}

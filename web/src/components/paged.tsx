// Lists that go on: more is asked for when it is wanted, and what is there stays.
import { useInfiniteQuery, type QueryKey } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Problem, Skeleton } from "./basics";

interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

interface PagedProps<T> {
  name: QueryKey;
  ask: (cursor: string | undefined, signal: AbortSignal) => Promise<Page<T>>;
  empty: ReactNode;
  children: (items: T[]) => ReactNode;
}

export function Paged<T>({ name, ask, empty, children }: PagedProps<T>) {
  const found = useInfiniteQuery({
    queryKey: name,
    queryFn: ({ pageParam, signal }) => ask(pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });
  if (found.isError) return <Problem error={found.error} retry={() => void found.refetch()} />;
  if (!found.data) return <Skeleton lines={5} />;
  const items = found.data.pages.flatMap((page) => page.items);
  if (items.length === 0) return empty;
  return (
    <>
      {children(items)}
      {found.hasNextPage && (
        <p>
          <button type="button" className="button" disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
            {found.isFetchingNextPage ? "Loading …" : "Show more"}
          </button>
        </p>
      )}
    </>
  );
}

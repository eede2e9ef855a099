"""`python -m tests.integration.pipeline.crashing POINT ARGUMENTS…`: `correlator ARGUMENTS…`, killed at a point.

The product knows nothing of it: a function is replaced from outside by one that kills the whole process group, as a
power cut would, before or after it does what it did. Without a process group of its own it would kill its caller.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from correlator.cli.main import main
from correlator.pipeline import archive, driver, fact_sink
from correlator.store import merge
from correlator.store.fact_rows import BY_NAME
from correlator.store.staging import Attempt, staged_table


def die() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)
    # The signal is on its way, and nothing more is to happen.
    signal.pause()


def replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


def before(owner: Any, *names: str) -> None:
    for name in names:
        replace(owner, name, lambda _: lambda *_, **__: die())


def after(owner: Any, *names: str) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            die()

        return replaced

    for name in names:
        replace(owner, name, make)


def while_tasks_stage() -> None:
    """Nobody can copy runs any more; when a task waits for that, it is in the middle of staging."""

    def make(begin: Callable[..., Attempt]) -> Callable[..., Attempt]:
        def replaced(connection: psycopg.Connection, source: str) -> Attempt:
            attempt = begin(connection, source)
            blocker = psycopg.connect(connection.info.dsn)
            blocker.execute(f"LOCK TABLE {staged_table(attempt.slot, BY_NAME['job_runs'])}".encode())
            threading.Thread(target=die_with_a_task, args=[blocker], daemon=True).start()
            return attempt

        return replaced

    def die_with_a_task(blocker: psycopg.Connection) -> None:
        process = blocker.info.backend_pid
        with psycopg.connect(blocker.info.dsn, autocommit=True) as watch:
            wait_until(lambda: watch.execute(_BLOCKED, [process]).rowcount > 0)
        die()

    replace(fact_sink, "begin", make)


_BLOCKED = "SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"


def in_the_middle_of_the_merge() -> None:
    def make(statements: Callable[..., Sequence[bytes]]) -> Callable[..., Iterator[bytes]]:
        def half(slot: str, schema: str) -> Iterator[bytes]:
            whole = statements(slot, schema)
            yield from whole[: len(whole) // 2]
            die()

        return half

    replace(merge, "statements", make)


def before_the_merge_is_committed() -> None:
    def make(whole: Callable[..., None]) -> Callable[..., None]:
        def replaced(connection: psycopg.Connection, *args: Any, **how: Any) -> None:
            with connection.transaction():
                whole(connection, *args, **how)
                die()

        return replaced

    replace(fact_sink, "merge", make)
    replace(fact_sink, "merge_beside", make)


def while_the_archive_is_written() -> None:
    """Spark keeps what is not committed yet in a directory of this name."""

    def make(write: Callable[..., None]) -> Callable[..., None]:
        def replaced(sink: archive.ArchiveSink, *args: Any) -> None:
            directory = Path(sink._archive.directory)  # noqa: SLF001 (nothing else tells where it is)
            threading.Thread(target=die_with_files, args=[directory], daemon=True).start()
            write(sink, *args)

        return replaced

    def die_with_files(directory: Path) -> None:
        wait_until(lambda: any(directory.glob("source=*/*/_temporary")))
        die()

    replace(archive.ArchiveSink, "write", make)


def wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.001)


POINTS: dict[str, Callable[[], None]] = {
    "before a batch begins": lambda: before(fact_sink, "begin"),
    "after a batch has begun": lambda: after(fact_sink, "begin"),
    "while tasks stage": while_tasks_stage,
    "after the tasks": lambda: before(fact_sink, "merge"),
    "in the middle of the merge": in_the_middle_of_the_merge,
    "before the merge is committed": before_the_merge_is_committed,
    "after the merge is committed": lambda: after(fact_sink, "merge", "merge_beside"),
    "before Spark commits the batch": lambda: after(driver.Query, "_take"),
    "while the archive is written": while_the_archive_is_written,
    "before the archive's row": lambda: before(archive.Archive, "enter"),
    "after the archive's row": lambda: after(archive.Archive, "enter"),
}

if __name__ == "__main__":
    POINTS[sys.argv[1]]()
    main(sys.argv[2:])

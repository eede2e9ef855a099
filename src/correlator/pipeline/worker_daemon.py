"""The process that Spark forks its Python workers from: what tasks need is imported here once, not in each of them.

python -m correlator.pipeline.worker_daemon WORKER     as Spark itself calls it
"""

import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

MODULE: Final = "correlator.pipeline.worker_daemon"

_OF_TASKS: Final = "pyspark.worker"

# No PyArrow: it starts threads, and a process that has some is not to be forked.
_NEEDED: Final = (
    _OF_TASKS,
    "correlator.pipeline.connections",
    "correlator.rulebook.fold",
    "correlator.rulebook.judging",
    "correlator.store.staging",
)


def prepare() -> None:
    """Import what a task will: of a worker's first two seconds, nearly all went into that."""
    for name in _NEEDED:
        import_module(name)


def part_quietly() -> None:
    """Let a worker end when Spark closes its connection, as it does with those that have nothing to do.

    PySpark's own takes that for an error, cannot tell it to anybody, and prints that.
    """
    daemon = import_module("pyspark.daemon")
    work = daemon.worker

    def worker(connection: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - as it is called
        first = b""
        with suppress(ConnectionError):
            first = connection.recv(1, socket.MSG_PEEK)
        return int(work(connection, authenticated)) if first else 1

    daemon.worker = worker  # type: ignore[attr-defined]


if __name__ == "__main__":
    if sys.argv[1:] == [_OF_TASKS]:
        prepare()
    part_quietly()
    import_module("pyspark.daemon").manager()

"""An end to waiting, whatever it is that takes so long."""

import threading
from collections.abc import Callable
from queue import Empty, Queue
from typing import TypeVar

T = TypeVar("T")


class DeadlineError(Exception):
    """The time is over."""


def within(seconds: float, work: Callable[[], T]) -> T:
    """What the work gives or raises; `DeadlineError` if that takes longer.

    Limits of sockets are for a connection and for each single read: a name server that does not answer, or a server
    that sends a byte now and then, would outlast them. So the work runs in a thread, which is left behind when the time
    is over, and keeps no program from ending.
    """
    outcome: Queue[tuple[T, None] | tuple[None, Exception]] = Queue()

    def try_it() -> None:
        try:
            outcome.put((work(), None))
        except Exception as error:  # noqa: BLE001 (whatever it is, it is raised where somebody waits)
            outcome.put((None, error))

    threading.Thread(target=try_it, name="correlator emitter", daemon=True).start()
    try:
        result, error = outcome.get(timeout=max(0.0, seconds))
    except Empty:
        raise DeadlineError from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # one of the two is there

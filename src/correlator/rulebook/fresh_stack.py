"""How deep a value may be nested must not depend on how deep its reader happens to stand in calls of its own.

The decoder follows nesting on the stack and gives up with a RecursionError. A new thread begins with an empty stack, so
that asking again there gives the same answer to every caller.
"""

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def with_enough_stack(work: Callable[[], T]) -> T:
    """Do the work; when the stack ends in the middle, once more on an empty one, whose end is final."""
    try:
        return work()
    except RecursionError:
        return _on_an_empty_stack(work)


def _on_an_empty_stack(work: Callable[[], T]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = Thread(target=run, name="correlator-empty-stack")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]

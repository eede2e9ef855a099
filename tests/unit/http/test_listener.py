"""Signals: who asks once is answered in full, who asks twice himself is not made to wait."""

import signal
from collections.abc import Callable

import pytest
import uvicorn

from correlator.http.listener import HttpServer

INT, TERM = signal.SIGINT, signal.SIGTERM


def server() -> HttpServer:
    """One that has nothing to serve: it is only told to stop."""
    made = HttpServer.__new__(HttpServer)
    uvicorn.Server.__init__(made, uvicorn.Config("nothing"))
    return made


@pytest.mark.parametrize(
    ("told", "at_once"),
    [
        ([TERM], False),
        ([INT], False),
        ([INT, TERM], False),
        ([TERM, INT], False),
        ([TERM, TERM], False),
        ([INT, INT], True),
        ([TERM, INT, INT], True),
        ([INT, TERM, INT], True),
    ],
)
def test_only_a_second_ctrl_c_does_not_wait_for_requests(told: list[signal.Signals], at_once: bool) -> None:  # noqa: FBT001
    stopped = server()
    for number in told:
        stopped.handle_exit(number, None)

    assert stopped.should_exit
    assert stopped.force_exit is at_once


class Interrupted(list[int]):
    """Of what has come, with something that comes just then."""

    def __init__(self, comes: Callable[[], None]) -> None:
        super().__init__()
        self._comes = comes

    def append(self, number: int) -> None:
        super().append(number)
        if number == INT:
            self._comes()


def test_a_parent_that_is_as_fast_as_the_terminal_is_no_second_ctrl_c() -> None:
    """Python handles a signal within the handling of another."""
    stopped = server()
    stopped._captured_signals = Interrupted(lambda: stopped.handle_exit(TERM, None))  # noqa: SLF001 (of uvicorn)

    stopped.handle_exit(INT, None)

    assert stopped.should_exit
    assert not stopped.force_exit

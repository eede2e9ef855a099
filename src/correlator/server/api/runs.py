"""One run, with its family."""

from typing import Final

from msgspec import Struct

from correlator.correlation.runs import AmbiguousRunError, RunDetail, find_run
from correlator.server.answers import Moment
from correlator.server.api.operations import Asked, Operation, conflict, missing
from correlator.server.api.questions import Connection
from correlator.store.ledger import facts_as_of


class RunAnswer(Struct, frozen=True):
    facts_as_of: Moment
    run: RunDetail


def _run(connection: Connection, asked: Asked) -> RunAnswer:
    as_of = facts_as_of(connection)
    given = asked.path["id"]
    try:
        found = find_run(connection, given, asked.context.redaction)
    except AmbiguousRunError as error:
        raise conflict(str(error)) from None
    if found is None:
        raise missing(f"No event has named a run {given[:200]!r}.")
    return RunAnswer(as_of, found)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/runs/{id}",
        name="getRun",
        tag="catalogue",
        summary="One run: its states, its parent and children, what it read and wrote, what it tested.",
        description="By its canonical id, or by the id that its producer gave it.",
        scope="read",
        answer=_run,
        answers=RunAnswer,
        refuses=(404, 409),
    ),
)

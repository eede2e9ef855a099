"""Search over everything."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from correlator.correlation.search import Found, Kind, search
from correlator.server.answers import Moment
from correlator.server.api.operations import Asked, Operation
from correlator.server.api.questions import Connection
from correlator.store.ledger import facts_as_of


class SearchQuery(Struct, frozen=True, forbid_unknown_fields=True):
    q: Annotated[
        str,
        Meta(min_length=1, max_length=1_000, description="Words, each at least the beginning of one; or a run's id."),
    ]
    kind: Kind | None = None
    limit: Annotated[int, Meta(ge=1, le=100, description="The most of each kind.")] = 10


class SearchAnswer(Struct, frozen=True):
    facts_as_of: Moment
    items: Annotated[list[Found], Meta(description="Kind by kind, the shortest names first.")]


def _search(connection: Connection, asked: Asked) -> SearchAnswer:
    query: SearchQuery = asked.query
    as_of = facts_as_of(connection)
    return SearchAnswer(as_of, search(connection, query.q, kind=query.kind, limit=query.limit))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/search",
        name="search",
        tag="catalogue",
        summary="Jobs, datasets, columns, tests and runs by words of their names.",
        description="Every word has to be the beginning of a word of the name; of a column, of all of its name.",
        scope="read",
        query=SearchQuery,
        answer=_search,
        answers=SearchAnswer,
    ),
)

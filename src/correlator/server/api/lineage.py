"""The lineage graph, and what changed in it between two moments."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from correlator.correlation.lineage import Difference, Direction, Graph, Level, difference, graph
from correlator.correlation.starts import NodeError, Start, UnknownNodeError, find_start
from correlator.server.answers import Moment
from correlator.server.api.operations import Asked, Operation, invalid, missing
from correlator.server.api.questions import Connection
from correlator.store.ledger import facts_as_of

NodeText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4_000,
        description="`dataset:URN`, `job:NAMESPACE/NAME`, `run:ID` or `column:URN#COLUMN`.",
        examples=["dataset:postgres://db:5432/shop.public.orders"],
    ),
]
Depth = Annotated[int, Meta(ge=1, le=100, description="How many jobs deep.")]


class LineageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    node: NodeText
    direction: Direction = "both"
    depth: Depth = 5
    as_of: Annotated[Moment | None, Meta(description="As it stood then; without it as it stands.")] = None
    level: Annotated[Level, Meta(description="`column` adds columns, and the edges are between these.")] = "table"


class LineageAnswer(Struct, frozen=True):
    facts_as_of: Moment
    as_of: Annotated[Moment | None, Meta(description="The moment that was asked for.")]
    graph: Graph


class DifferenceQuery(Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    node: NodeText
    from_: Moment
    to: Moment | None = None
    direction: Direction = "both"
    depth: Depth = 5
    level: Level = "table"


class DifferenceAnswer(Struct, frozen=True, rename={"from_": "from"}):
    facts_as_of: Moment
    from_: Moment
    to: Moment | None
    difference: Difference


def _start(connection: Connection, node: str) -> Start:
    try:
        return find_start(connection, node)
    except NodeError as error:
        raise invalid(f"node: {error}.") from None
    except UnknownNodeError as error:
        raise missing(str(error)) from None


def _lineage(connection: Connection, asked: Asked) -> LineageAnswer:
    query: LineageQuery = asked.query
    as_of = facts_as_of(connection)
    found = graph(
        connection,
        _start(connection, query.node),
        direction=query.direction,
        depth=query.depth,
        as_of=query.as_of,
        level=query.level,
        most_nodes=asked.context.settings.max_graph_nodes,
    )
    return LineageAnswer(as_of, query.as_of, found)


def _difference(connection: Connection, asked: Asked) -> DifferenceAnswer:
    query: DifferenceQuery = asked.query
    as_of = facts_as_of(connection)
    start = _start(connection, query.node)
    before, after = (
        graph(
            connection,
            start,
            direction=query.direction,
            depth=query.depth,
            as_of=moment,
            level=query.level,
            most_nodes=asked.context.settings.max_graph_nodes,
        )
        for moment in (query.from_, query.to)
    )
    return DifferenceAnswer(as_of, query.from_, query.to, difference(before, after))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/lineage",
        name="getLineage",
        tag="lineage",
        summary="What data comes from and goes to, as of any moment.",
        description=(
            "Of each job its last run that had completed by then counts (of a stream, its last that was running), plus "
            "what was declared. Names that mean one dataset are one node."
        ),
        scope="read",
        query=LineageQuery,
        answer=_lineage,
        answers=LineageAnswer,
        refuses=(404,),
    ),
    Operation(
        method="GET",
        path="/api/v1/lineage/diff",
        name="getLineageDifference",
        tag="lineage",
        summary="What changed in it between two moments.",
        scope="read",
        query=DifferenceQuery,
        answer=_difference,
        answers=DifferenceAnswer,
        refuses=(404,),
    ),
)

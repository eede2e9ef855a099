"""Datasets."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from correlator.correlation.amounts import USUAL_WRITES, Amounts, amounts
from correlator.correlation.datasets import (
    DatasetBrief,
    DatasetDetail,
    DatasetPlace,
    DatasetQuestion,
    find_dataset,
    list_datasets,
)
from correlator.server.answers import Moment
from correlator.server.api.jobs import Words
from correlator.server.api.operations import LONGEST_LIST, Asked, Operation, missing
from correlator.server.api.pages import NextCursor, Page, after, cursor_of, cut
from correlator.server.api.questions import Connection
from correlator.store.ledger import facts_as_of


class DatasetsQuery(Page, frozen=True, forbid_unknown_fields=True, kw_only=True):
    namespace: Annotated[str | None, Meta(description="Of this namespace only, as events spell it.")] = None
    q: Words = None


class Datasets(Struct, frozen=True):
    facts_as_of: Moment
    items: list[DatasetBrief]
    next_cursor: NextCursor


class DatasetAnswer(Struct, frozen=True):
    facts_as_of: Moment
    dataset: DatasetDetail


def _datasets(connection: Connection, asked: Asked) -> Datasets:
    query: DatasetsQuery = asked.query
    as_of = facts_as_of(connection)
    question = DatasetQuestion(namespace=query.namespace, q=query.q)
    found = list_datasets(connection, question, limit=query.limit + 1, after=after(query.cursor, DatasetPlace))
    page, last = cut(found, query.limit)
    return Datasets(as_of, [dataset for _, dataset in page], None if last is None else cursor_of(last[0]))


def _dataset(connection: Connection, asked: Asked) -> DatasetAnswer:
    as_of = facts_as_of(connection)
    urn = asked.path["urn"]
    found = find_dataset(connection, urn, asked.context.redaction)
    if found is None:
        raise missing(
            f"No event has named a dataset {urn[:500]!r}. A URN is namespace/name in one spelling, such as "
            "postgres://db:5432/shop.public.orders. GET /api/v1/search?q=… finds names."
        )
    return DatasetAnswer(as_of, found)


class AmountsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    until: Annotated[Moment | None, Meta(description="Written then or before.")] = None
    limit: Annotated[int, Meta(ge=1, le=LONGEST_LIST, description="The most writes.")] = USUAL_WRITES


class AmountsAnswer(Struct, frozen=True):
    facts_as_of: Moment
    amounts: Amounts


def _amounts(connection: Connection, asked: Asked) -> AmountsAnswer:
    query: AmountsQuery = asked.query
    as_of = facts_as_of(connection)
    return AmountsAnswer(as_of, amounts(connection, asked.path["urn"], until=query.until, limit=query.limit))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/datasets/{urn:path}/amounts",
        name="getAmounts",
        tag="catalogue",
        summary="How many rows and bytes were written into a dataset, write by write, and what is usual.",
        description="Of a dataset that nobody is known to write there are none.",
        scope="read",
        query=AmountsQuery,
        answer=_amounts,
        answers=AmountsAnswer,
    ),
    Operation(
        method="GET",
        path="/api/v1/datasets",
        name="listDatasets",
        tag="catalogue",
        summary="Datasets by URN.",
        scope="read",
        query=DatasetsQuery,
        answer=_datasets,
        answers=Datasets,
    ),
    Operation(
        method="GET",
        path="/api/v1/datasets/{urn:path}",
        name="getDataset",
        tag="catalogue",
        summary="One dataset under all of its names: schemas, changes, writes, reads, tests.",
        scope="read",
        answer=_dataset,
        answers=DatasetAnswer,
        refuses=(404,),
    ),
)

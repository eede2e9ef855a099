import itertools
import json

import pytest

from correlator.rulebook import facts as f
from correlator.rulebook.aliases import Symlink, called
from correlator.rulebook.events import RunEvent
from correlator.rulebook.fold import fold
from correlator.rulebook.patterns import NamePattern
from tests.unit.rulebook import views
from tests.unit.rulebook.histories import Json, dataset, dataset_event, facet, run_event

PATH = "s3://lake/warehouse/orders"
TABLE = "hive://meta:9083/sales.orders"
GLUE = "arn:aws:glue:eu:1/table/sales/orders"


def linked(*identifiers: tuple[str, str, str], **members: bool) -> Json:
    names = [{"namespace": namespace, "name": name, "type": kind} for namespace, name, kind in identifiers]
    return {"symlinks": facet(identifiers=names, **members)}


def aliases(*events: RunEvent, name: str = "orders") -> list[tuple[str, str]] | None:
    said = views.said(f.DATASETS, views.dataset_row(fold(events), name), "symlinks")
    return None if said is None else [(urn, kind) for _, urn, kind in json.loads(said)]


def writes(minute: float, facets: Json) -> RunEvent:
    return run_event("COMPLETE", minute, outputs=[dataset("orders", facets=facets)])


def test_symlinks_are_other_names_of_the_dataset_in_their_one_spelling() -> None:
    links = linked(("hive://META", "sales.orders", "TABLE"), ("s3a://lake", "/warehouse/orders", "LOCATION"))

    assert aliases(writes(0, links)) == [("hive://meta:10000/sales.orders", "TABLE"), (PATH, "LOCATION")]


def test_the_latest_symlinks_stand_until_replaced_or_deleted() -> None:
    old, new = writes(0, linked(("hive://m", "a", "TABLE"))), writes(2, linked(("hive://m", "b", "TABLE")))
    silent, gone = writes(3, {}), writes(4, {"symlinks": facet(_deleted=True)})

    for order in itertools.permutations([old, new, silent]):
        assert aliases(*order) == [("hive://m:10000/b", "TABLE")]
    assert aliases(gone, new, old) == []
    assert aliases(silent) is None


def test_a_broken_symlinks_facet_joins_nothing() -> None:
    assert aliases(writes(0, {"symlinks": facet(identifiers=[{"name": "x"}])})) is None


def test_a_dataset_event_may_name_symlinks_too() -> None:
    facts = fold([dataset_event(0, facets=linked(("hive://m", "a", "TABLE")))])

    assert views.said(f.DATASETS, views.dataset_row(facts, "orders"), "symlinks") is not None


def test_a_class_of_names_is_called_by_its_table() -> None:
    names = called([PATH], {PATH: [Symlink(TABLE, "TABLE"), Symlink(GLUE, "LOCATION")]})

    assert names == {PATH: TABLE, TABLE: TABLE, GLUE: TABLE}


def test_a_class_without_a_table_is_called_by_its_least_name() -> None:
    assert called([PATH], {PATH: [Symlink(GLUE, "LOCATION")]})[PATH] == min(PATH, GLUE)


def test_a_pattern_names_the_class_and_reaches_all_that_symlinks_join() -> None:
    pattern = NamePattern.parse("hive://meta:9083/{schema}.{table}", "postgres://dwh:5432/{schema}.{table}")

    names = called([PATH], {PATH: [Symlink(TABLE, "TABLE")]}, [pattern])

    assert set(names.values()) == {"postgres://dwh:5432/sales.orders"}


def test_the_first_pattern_that_matches_counts() -> None:
    patterns = [NamePattern.parse("prod/{table}", "first/{table}"), NamePattern.parse("prod/{path*}", "second/{path}")]

    names = called(["prod/orders", "prod/a/b"], {}, patterns)

    assert (names["prod/orders"], names["prod/a/b"]) == ("first/orders", "second/a/b")


def test_names_that_nothing_joins_stay_themselves() -> None:
    assert called(["a/x", "b/x"], {}) == {"a/x": "a/x", "b/x": "b/x"}


@pytest.mark.parametrize("order", list(itertools.permutations([PATH, TABLE, GLUE])))
def test_a_chain_of_symlinks_is_one_class_from_wherever_one_looks(order: tuple[str, ...]) -> None:
    said = {order[0]: [Symlink(order[1], "X")], order[1]: [Symlink(order[2], "X")]}

    assert len(set(called(order, said).values())) == 1


def test_a_rename_is_no_alias() -> None:
    change = facet(lifecycleStateChange="RENAME", previousIdentifier={"namespace": "postgres://db:5432", "name": "tmp"})

    assert aliases(writes(0, {"lifecycleStateChange": change})) is None

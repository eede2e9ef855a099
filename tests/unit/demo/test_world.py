"""What a job writes follows from what it read."""

from dataclasses import replace

import pytest

from correlator.demo.faults import Dropped, Duplicated, Effect, Fault, FaultKind, Nulled, Retyped, Scaled, Shifted
from correlator.demo.parts import DAY, Field, Input, Job, Name, Role, Strictness, Test, TestKind, Tool
from correlator.demo.world import (
    BrokenColumnError,
    Content,
    Why,
    derived,
    extracted,
    look,
    not_refreshed,
    struck,
    together,
    usual_columns,
)

SOURCE = Job(
    "orders", Tool.PLAIN, Name("n", "orders"), "p", "orders", (),
    (Field("id", "bigint"), Field("amount", "double"), Field("city", "varchar")), "me", DAY, usual_rows=1000.0,
)  # fmt: skip
WHY = Why(Fault(FaultKind.CODE_CHANGE, "orders", 0, 1, "code"), "orders", "run", "run")


def copy(strictness: Strictness = "passes", role: Role = "driving") -> Job:
    """Reads orders alone, or something of its own with orders beside it."""
    inputs = (Input("orders", "driving"),) if role == "driving" else (Input("own", "driving"), Input("orders", role))
    index = len(inputs) - 1
    fields = (Field("id", "bigint", 0.0, (0, "id")), Field("amount", "double", 0.0, (index, "amount")))
    return replace(SOURCE, key="copy", inputs=inputs, fields=fields, strictness=strictness)


def total() -> Job:
    fields = (
        Field("city", "varchar", 0.0, (0, "city")),
        Field("total", "double", 0.0, (0, "amount"), "sum"),
        Field("orders", "bigint", 0.0, (0, "id"), "count"),
    )
    return replace(copy(), key="total", fields=fields, groups=50.0)


def usual() -> Content:
    return extracted(SOURCE, usual_columns(SOURCE), 100.0, 1.0, ())


def wrong(*effects: Effect) -> Content:
    return struck(usual(), effects, WHY)


def written(job: Job, *reads: Content) -> Content:
    return derived(job, usual_columns(job), reads, 1.0, ())


def test_what_is_sound_stays_sound() -> None:
    content = written(copy(), usual())
    assert (content.rows, content.newest, content.is_sound) == (1000, 100, True)
    assert written(total(), usual()).rows == 50


def test_half_the_rows_make_half_the_rows() -> None:
    content = written(copy(), wrong(Scaled(0.5)))
    assert content.rows == pytest.approx(500)
    assert content.rows_why == WHY.further()


def test_fewer_rows_make_a_smaller_sum_and_hardly_fewer_groups() -> None:
    content = written(total(), wrong(Scaled(0.5)))
    assert content.rows == pytest.approx(50, rel=0.01)
    assert content.columns["total"].value == pytest.approx(0.5, rel=0.01)
    assert content.columns["orders"].value == pytest.approx(0.5, rel=0.01)
    assert content.columns["total"].value_why == WHY.further()


@pytest.mark.parametrize("effect", [Dropped("amount"), Retyped("amount", "varchar")])
def test_a_job_that_wants_a_column_goes_without_or_writes_nulls_or_fails(effect: Effect) -> None:
    passed = written(copy("passes"), wrong(effect))
    if isinstance(effect, Dropped):
        assert passed.gone == {"amount": WHY.further()}
    else:
        assert (passed.columns["amount"].type, passed.columns["amount"].type_why) == ("varchar", WHY.further())
    nulls = written(copy("nulls"), wrong(effect)).columns["amount"]
    assert nulls.nulls > 0.5
    assert nulls.nulls_why == WHY.further()
    with pytest.raises(BrokenColumnError) as broken:
        written(copy("fails"), wrong(effect))
    assert (broken.value.column, broken.value.why) == ("amount", WHY.further())


def test_who_does_not_use_a_column_does_not_miss_it() -> None:
    content = written(copy("fails"), wrong(Dropped("city")))
    assert (content.gone, content.rows) == ({}, 1000)


def test_nulls_and_wrong_values_are_passed_on_and_add_up_to_less() -> None:
    assert written(copy(), wrong(Nulled("amount", 0.4))).columns["amount"].nulls == 0.4
    assert written(copy(), wrong(Shifted("amount", 100))).columns["amount"].value == 100
    assert written(total(), wrong(Nulled("amount", 0.4))).columns["total"].value == pytest.approx(0.6)


def test_rows_that_miss_their_partner_get_nulls_or_are_gone() -> None:
    looked_up = written(copy(role="lookup"), usual(), wrong(Scaled(0.25)))
    assert looked_up.rows == pytest.approx(1000)
    assert looked_up.columns["amount"].nulls == pytest.approx(0.75)
    filtered = written(copy(role="filter"), usual(), wrong(Scaled(0.25)))
    assert filtered.rows == pytest.approx(250)
    assert filtered.rows_why == WHY.further()


def test_a_key_that_is_there_twice_multiplies_the_rows_that_join_it() -> None:
    content = written(copy(role="lookup"), usual(), wrong(Duplicated(1.0)))
    assert content.rows == pytest.approx(2000)
    assert content.duplicates == pytest.approx(1.0)


def test_what_was_not_refreshed_is_old_further_down_and_lacks_new_keys() -> None:
    old = not_refreshed(usual(), WHY)
    assert written(copy(), old).newest_why == WHY.further()
    assert written(copy(role="lookup"), usual(), old).columns["amount"].nulls > 0


def test_a_day_with_hours_missing_has_fewer_rows() -> None:
    hours = [usual() for _ in range(18)]
    whole = together(hours, 24, WHY)
    assert whole.coverage == pytest.approx(0.75)
    assert whole.rows_why == WHY
    assert together([usual()] * 24, 24, None).is_sound


@pytest.mark.parametrize(
    ("test", "content"),
    [
        (Test(TestKind.ROWS, low=500, high=2000), wrong(Scaled(0.1))),
        (Test(TestKind.ROWS, low=500, high=2000), wrong(Scaled(5))),
        (Test(TestKind.NOT_NULL, "amount"), wrong(Nulled("amount", 0.01))),
        (Test(TestKind.NOT_NULL, "amount"), wrong(Dropped("amount"))),
        (Test(TestKind.UNIQUE, "id"), wrong(Duplicated(0.5))),
        (Test(TestKind.COLUMNS), wrong(Dropped("city"))),
        (Test(TestKind.TYPE, "amount", type="double"), wrong(Retyped("amount", "varchar"))),
        (Test(TestKind.RANGE, "amount", low=0.3, high=3), wrong(Shifted("amount", 100))),
        (Test(TestKind.FRESHNESS, high=10), not_refreshed(replace(usual(), newest=-30 * 3600), WHY)),
    ],
)
def test_a_test_passes_on_good_data_and_knows_why_it_fails_on_bad(test: Test, content: Content) -> None:
    assert look(test, usual(), 100.0, None).passed
    finding = look(test, content, 100.0, None)
    assert (finding.passed, finding.why) == (False, WHY)
    assert finding.message

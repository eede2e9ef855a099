"""P2 between the sources and the database: how arrivals are cut into tasks, Arrow batches and parcels changes nothing.

Spark only carries parcels about; here they are carried by hand, so that thousands of examples take seconds.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from correlator.pipeline.stages import (
    Kind,
    Meeting,
    Parcel,
    TakeWhole,
    _count,
    _fold_arrivals,
    _folded,
    _gathered,
    _neighbours,
    _parcels,
    in_arrow,
    whole_runs,
)
from correlator.pipeline.tally import Tally
from correlator.rulebook import facts as f
from correlator.rulebook.bundles import merge_bundles
from correlator.rulebook.decode import judge
from correlator.rulebook.facts import Facts
from correlator.rulebook.fold import fold
from correlator.rulebook.identity import content_digest
from tests.integration.pipeline.histories import accepted, raws_of
from tests.property.test_fold_properties import HISTORIES, written_otherwise
from tests.unit.rulebook.histories import Json

_ARROW = pa.schema(
    [
        ("origin", pa.string()),
        ("position", pa.int64()),
        ("size", pa.int64()),
        ("modified_at", pa.timestamp("us", tz="UTC")),
        ("raw", pa.binary()),
    ]
)
BROKEN = st.sampled_from([b"", b"{", b"[]", b'{"eventTime": "today"}', b"\xff\xfe"])


class Arrived:
    """What lies in the sources, and how tasks read it: each some Arrow batches."""

    def __init__(self, history: list[Json], data: st.DataObject) -> None:
        again = data.draw(st.lists(st.sampled_from(history), max_size=4), label="again")
        self.good = raws_of(history)
        self.repeated = [written_otherwise(event).encode() for event in again]
        self.broken = data.draw(st.lists(BROKEN, max_size=3), label="broken")
        raws = data.draw(st.permutations(self.good + self.repeated + self.broken), label="order")
        cuts = st.lists(st.integers(0, len(raws)), max_size=3).map(sorted)
        bounds = [0, *data.draw(cuts, label="cuts"), len(raws)]
        batches = [batch_of(raws[first:last], first) for first, last in pairwise(bounds)]
        shared = data.draw(st.integers(0, len(batches)), label="tasks")
        self.tasks = [batches[:shared], batches[shared:]]

    @property
    def read(self) -> int:
        return len(self.good) + len(self.repeated) + len(self.broken)


def batch_of(raws: list[bytes], start: int) -> pa.RecordBatch:
    rows = [
        {"origin": f"file-{number % 2}", "position": number, "size": None, "modified_at": None, "raw": raw}
        for number, raw in enumerate(raws, start)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def met(meetings: Iterable[Meeting]) -> tuple[Facts, Tally, int]:
    """What staging would make of them: facts, counts, and the number of rejected events."""
    facts, tally, rejects = Facts(), Tally(), 0
    for meeting in meetings:
        kind = meeting[0].kind
        if kind == Kind.BUNDLE:
            found = merge_bundles([parcel.payload for parcel in meeting])
            # Staging takes every key once.
            assert not {(table.name, key) for table, key, _ in facts if table.name != "column_edges"} & {
                (table.name, key) for table, key, _ in found
            }
            facts.merge(found)
        elif kind == Kind.REJECT:
            rejects += 1
        else:
            _count(meeting, tally)
    return facts, tally, rejects


def shuffled(
    tasks: Iterable[Iterable[pa.RecordBatch]], partitions: int, take_whole: TakeWhole = lambda _: None
) -> Iterator[list[Parcel]]:
    """As Spark does it: each task's parcels through Arrow, by key into partitions, sorted in each."""
    parcels = [parcel for task in tasks for parcel in _parcels(in_arrow(_fold_arrivals(task, judge, take_whole)))]
    for number in range(partitions):
        yield sorted((p for p in parcels if sum(p.key) % partitions == number), key=lambda parcel: parcel.key)


def check(arrived: Arrived, found: Iterable[tuple[Facts, Tally, int]]) -> None:
    facts, tally, rejects = Facts(), Tally(), 0
    for some, counted, rejected in found:
        facts.merge(some)
        tally.add(counted)
        rejects += rejected
    different = len(set(map(event_identity, arrived.good)))
    assert facts == fold(accepted(arrived.good))
    assert (tally.read, tally.rejected, tally.applied) == (arrived.read, len(arrived.broken), different)
    assert sum(span.events for span in tally.spans.values()) == arrived.read
    # Each broken arrival has a position of its own.
    assert rejects == len(arrived.broken)


def event_identity(raw: bytes) -> bytes:
    (event,) = accepted([raw])
    return content_digest(event)


@given(history=HISTORIES, data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_small_batch_in_one_task_gives_the_facts_and_counts_of_the_plain_fold(
    history: list[Json], data: st.DataObject
) -> None:
    arrived = Arrived(history, data)
    whole = [batch for task in arrived.tasks for batch in task]

    check(arrived, [met(_gathered(_fold_arrivals(whole, judge)))])


@given(history=HISTORIES, data=st.data(), partitions=st.integers(1, 3))
@settings(max_examples=300, deadline=None)
def test_a_large_batch_through_the_shuffle_gives_the_same(
    history: list[Json], data: st.DataObject, partitions: int
) -> None:
    arrived = Arrived(history, data)

    check(arrived, [met(_neighbours(parcels)) for parcels in shuffled(arrived.tasks, partitions)])


@given(history=HISTORIES, data=st.data(), partitions=st.integers(1, 3))
@settings(max_examples=300, deadline=None)
def test_so_it_does_when_whole_runs_do_not_go_through_the_shuffle(
    history: list[Json], data: st.DataObject, partitions: int
) -> None:
    arrived = Arrived(history, data)
    staged = Facts()

    def take_whole(facts: Facts) -> None:
        whole = whole_runs(facts)
        for table, rows in facts.without_runs(whole):
            staged.add(table, rows)
        assert not whole & {run for (run,) in facts.rows(f.JOB_RUNS)}

    found = [met(_neighbours(parcels)) for parcels in shuffled(arrived.tasks, partitions, take_whole)]

    check(arrived, [*found, (staged, Tally(), 0)])


@given(history=HISTORIES, data=st.data())
@settings(max_examples=150, deadline=None)
def test_parcels_that_were_folded_again_can_be_folded_once_more(history: list[Json], data: st.DataObject) -> None:
    arrived = Arrived(history, data)
    (parcels,) = shuffled(arrived.tasks, 1)
    again = sorted(_folded(_neighbours(parcels)), key=lambda parcel: parcel.key)

    check(arrived, [met(_neighbours(again))])

"""From arrivals to folded facts: the stages of a batch, each a `DataFrame` made of another.

What travels between them are parcels. The first map judges, counts, finds equal events and folds, one Arrow batch at a
time; what it says of one entity is one parcel. The shuffle brings the parcels of an entity together, and the second map
folds them again and copies them into staging. A run that the first map has seen from its start to its end has nobody to
meet, as far as one can tell: it goes to the sink there and then, and is merged while other events are still read.
Should there be more of it, that is merged too. A small batch is one task: both maps in one, without a shuffle.
"""

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import IntEnum
from hashlib import sha256
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from correlator.pipeline.arrivals import FOLDED
from correlator.pipeline.connections import connection_to
from correlator.pipeline.pieces import opened
from correlator.pipeline.sources import Judge
from correlator.pipeline.tally import Tally
from correlator.rulebook import facts as f
from correlator.rulebook.bundles import bundles, merge_bundles, unbundle
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.facts import Facts
from correlator.rulebook.fold import fold_batch
from correlator.rulebook.identity import event_identity
from correlator.rulebook.runs import ENDS
from correlator.store.rejects import Reject
from correlator.store.staging import PARTS_OF_A_TASK, Attempt, FactRow, Part, part, stage, stage_rejects

_ID_BYTES: Final = 16
_PARCEL_ROWS: Final = 4_096
_PARCEL_BYTES: Final = 8 * 2**20
"""No Arrow batch of parcels is larger, but for a single parcel that is."""
_COMMON: Final = (f.JOBS, f.DATASETS, f.FACET_BODIES)
"""Of these nearly the same is said in every Arrow batch."""
_COMMON_BATCHES: Final = 4
"""So many are held until they are sent."""
_PART_RUNS: Final = 5_000
"""So many whole runs are merged at once: more would be merged later, fewer at a higher price."""


class Kind(IntEnum):
    BUNDLE = 0
    """All that was said of one entity."""
    SEEN = 1
    """Identities of events."""
    REJECT = 2
    TALLY = 3


class Parcel(NamedTuple):
    kind: Kind
    key: bytes
    """What is to meet has the same key."""
    payload: bytes


PARCELS: Final = "kind TINYINT, key BINARY, payload BINARY"
ARROW: Final = pa.schema([("kind", pa.int8()), ("key", pa.binary()), ("payload", pa.binary())])
_TALLIES: Final = pa.schema([("tally", pa.binary())])

Batches = Iterator[pa.RecordBatch]
Map = Callable[[Batches], Batches]


class Staging(NamedTuple):
    """Where a task copies its rows to."""

    url: str
    source: str
    attempt: Attempt = Attempt("", 0)


TakeWhole: TypeAlias = Callable[[Facts], None]
"""Takes runs that are whole out of facts, and keeps them."""


def judged_and_folded(
    arrivals: DataFrame, judge: Judge, sink: Callable[[], AbstractContextManager[TakeWhole]]
) -> DataFrame:
    """Parcels of what has arrived, folded as far as one Arrow batch goes; but for whole runs, which the sink takes."""

    def first(batches: Batches) -> Batches:
        with _uncollected(), sink() as take_whole:
            yield from in_arrow(_fold_arrivals(batches, judge, take_whole))

    return _looked_at(arrivals).mapInArrow(first, PARCELS)


def brought_together(parcels: DataFrame, partitions: int) -> DataFrame:
    """The shuffle: parcels of one entity side by side. Spark sorts on disk what has no room in memory."""
    return parcels.repartition(partitions, "key").sortWithinPartitions("key")


def folded_again(parcels: DataFrame) -> DataFrame:
    """Each entity's bundle once. The parcels are sorted."""

    def second(batches: Batches) -> Batches:
        with _uncollected():
            yield from in_arrow(_folded(_neighbours(_parcels(batches))))

    return parcels.mapInArrow(second, PARCELS)


def staged(parcels: DataFrame, staging: Staging) -> DataFrame:
    """Fact rows and rejected events copied into staging; what comes out are tallies. The parcels are sorted."""

    def second(batches: Batches) -> Batches:
        with _uncollected():
            yield _told(_stage(_neighbours(_parcels(batches)), staging))

    return parcels.mapInArrow(second, "tally BINARY")


def staged_by_one_task(arrivals: DataFrame, judge: Judge, staging: Staging) -> DataFrame:
    """The whole way of a small batch, in one task and one Python process."""

    def whole(batches: Batches) -> Batches:
        with _uncollected():
            yield _told(_stage(_gathered(_fold_arrivals(batches, judge)), staging))

    return _looked_at(arrivals).coalesce(1).mapInArrow(whole, "tally BINARY")


def _looked_at(arrivals: DataFrame) -> DataFrame:
    return arrivals.select([name for name in arrivals.columns if name in FOLDED])


@contextmanager
def _uncollected() -> Iterator[None]:
    """Nothing that a task makes refers to itself: to look for what does would take a sixth of its time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# The first map


def _fold_arrivals(
    batches: Iterable[pa.RecordBatch], judge: Judge, take_whole: TakeWhole = lambda _: None
) -> Iterator[Parcel]:
    tally = Tally()
    common = Facts()
    for count, arrived in enumerate(opened(batches), start=1):
        events: dict[bytes, Event] = {}
        for number, raw in enumerate(arrived):
            verdict = judge(raw or b"")
            if isinstance(verdict, Rejection):
                tally.rejected += 1
                yield _rejected(verdict, *arrived.place(number))
                continue
            identity = event_identity(verdict)
            if identity in events:
                tally.duplicates += 1
            else:
                events[identity] = verdict
        tally.look(arrived.about)
        yield from _seen(events)
        facts = fold_batch(list(events.values()))
        common.take(facts.without(_COMMON))
        take_whole(facts)
        yield from bundled(facts)
        if count % _COMMON_BATCHES == 0:
            yield from bundled(common)
            common = Facts()
    yield from bundled(common)
    yield Parcel(Kind.TALLY, b"", tally.encode())


class StagedRuns:
    """Stages the runs that are there from their start to their end, in parts of many."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._parts = 0
        self._part: Part | None = None
        self._in_part: set[bytes] = set()
        self._connected = ExitStack()
        self._connection: psycopg.Connection | None = None
        self._open = ExitStack()

    def __enter__(self) -> TakeWhole:
        return self._take

    def __exit__(self, *failure: Any) -> None:  # noqa: PYI036 - passed on
        with self._connected:
            self._open.__exit__(*failure)

    def _take(self, facts: Facts) -> None:
        # A part has each key once: a run of which there is more goes the way of all others.
        whole = whole_runs(facts) - self._in_part
        if not whole or self._parts >= PARTS_OF_A_TASK:
            return
        if self._part is None:
            if self._connection is None:
                self._connection = self._connected.enter_context(connection_to(self._staging.url))
            number = self._staging.attempt.part(_task(), self._parts)
            self._part = self._open.enter_context(part(self._connection, self._staging.attempt, number))
        for table, rows in facts.without_runs(whole):
            self._part.add(table, rows)
        self._in_part |= whole
        if len(self._in_part) >= _PART_RUNS:
            self._open.close()
            self._part, self._parts = None, self._parts + 1
            self._in_part.clear()


def whole_runs(facts: Facts) -> set[bytes]:
    """The runs that are there from their start to their end."""
    runs = facts.rows(f.JOB_RUNS).items()
    return {run for (run,), row in runs if "first_start" in row and not _ENDS.isdisjoint(row)}


_ENDS: Final = frozenset(group for group, _ in ENDS)


def _task() -> int:
    """A number that no other task has, and no other try at this one."""
    context = TaskContext.get()
    return context.taskAttemptId() if context is not None else 0


def bundled(facts: Facts) -> Iterator[Parcel]:
    return (Parcel(Kind.BUNDLE, key, bundle) for key, bundle in bundles(facts))


def _seen(identities: Iterable[bytes]) -> Iterator[Parcel]:
    """Identities by their first byte, so that equal ones meet in one task."""
    buckets: defaultdict[int, list[bytes]] = defaultdict(list)
    for identity in identities:
        buckets[identity[0]].append(identity)
    for bucket, found in buckets.items():
        yield Parcel(Kind.SEEN, bytes([bucket]), b"".join(found))


def _rejected(rejection: Rejection, origin: str, position: int | None) -> Parcel:
    """A rejected event with the id of its arrival. Lines of a file have no position: there, equal bytes are one."""
    arrival = sha256(f"{origin}\0{position}\0".encode() + rejection.raw).digest()[:_ID_BYTES]
    reject = Reject(
        raw=rejection.raw, layer=1, problems=rejection.errors, kind=rejection.kind, producer=rejection.producer
    )
    return Parcel(Kind.REJECT, arrival, _encode_reject(reject))


# The second map: what meets under one key

Meeting = list[Parcel]

_payload: Final = attrgetter("payload")


def _neighbours(parcels: Iterable[Parcel]) -> Iterator[Meeting]:
    """Of sorted parcels: no more is held than one key has."""
    return (list(meeting) for _, meeting in groupby(parcels, itemgetter(1)))


def _gathered(parcels: Iterable[Parcel]) -> Iterator[Meeting]:
    """Of the parcels of a small batch, which memory has room for."""
    by_key: dict[bytes, Meeting] = {}
    for parcel in parcels:
        by_key.setdefault(parcel.key, []).append(parcel)
    return iter(by_key.values())


def _stage(meetings: Iterable[Meeting], staging: Staging) -> Tally:
    tally = Tally()
    with ExitStack() as stack:
        connection = stack.enter_context(connection_to(staging.url))
        beside: psycopg.Connection | None = None

        def rows() -> Iterator[FactRow]:
            nonlocal beside
            for meeting in meetings:
                kind = meeting[0].kind
                if kind == Kind.BUNDLE:
                    # Most entities are runs, and few of them come in two parcels.
                    alone = len(meeting) == 1
                    yield from unbundle(meeting[0].payload) if alone else merge_bundles(map(_payload, meeting))
                elif kind == Kind.REJECT:
                    # While one connection copies facts, another has to take this; hardly a batch needs it.
                    beside = beside or stack.enter_context(connection_to(staging.url))
                    rejects = [(parcel.key, _decode_reject(parcel.payload)) for parcel in meeting[:1]]
                    stage_rejects(beside, staging.attempt, staging.source, rejects)
                else:
                    _count(meeting, tally)

        stage(connection, staging.attempt, rows(), number=staging.attempt.part(_task()))
    return tally


def _folded(meetings: Iterable[Meeting]) -> Iterator[Parcel]:
    tally = Tally()
    for meeting in meetings:
        if meeting[0].kind == Kind.REJECT or (meeting[0].kind == Kind.BUNDLE and len(meeting) == 1):
            yield meeting[0]
        elif meeting[0].kind == Kind.BUNDLE:
            yield from bundled(merge_bundles(map(_payload, meeting)))
        else:
            _count(meeting, tally)
    yield Parcel(Kind.TALLY, b"", tally.encode())


def _count(meeting: Meeting, tally: Tally) -> None:
    seen = [parcel.payload for parcel in meeting if parcel.kind == Kind.SEEN]
    tally.duplicates += _repeated(seen)
    for parcel in meeting:
        if parcel.kind == Kind.TALLY:
            tally.add(Tally.decoded(parcel.payload))


def _repeated(seen: Iterable[bytes]) -> int:
    """How many identities are there more than once, each time but the first."""
    identities = [found[start : start + _ID_BYTES] for found in seen for start in range(0, len(found), _ID_BYTES)]
    return len(identities) - len(set(identities))


# Parcels in Arrow


def _parcels(batches: Iterable[pa.RecordBatch]) -> Iterator[Parcel]:
    for batch in batches:
        kinds, keys, payloads = (batch.column(name).to_pylist() for name in ("kind", "key", "payload"))
        yield from map(Parcel, kinds, keys, payloads)


def in_arrow(parcels: Iterable[Parcel]) -> Batches:
    held: list[Parcel] = []
    size = 0
    for parcel in parcels:
        held.append(parcel)
        size += len(parcel.payload)
        if size >= _PARCEL_BYTES or len(held) >= _PARCEL_ROWS:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def _batch(parcels: list[Parcel]) -> pa.RecordBatch:
    kinds, keys, payloads = zip(*parcels, strict=True)
    arrays = [pa.array(kinds, pa.int8()), pa.array(keys, pa.binary()), pa.array(payloads, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def _told(tally: Tally) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([tally.encode()], pa.binary())], schema=_TALLIES)


_encode_reject: Final[Callable[[Reject], bytes]] = msgspec.msgpack.Encoder().encode
_decode_reject: Final[Callable[[Any], Reject]] = msgspec.msgpack.Decoder(Reject).decode

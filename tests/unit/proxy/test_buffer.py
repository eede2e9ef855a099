"""The event log on disk: order, partitions, checkpoints, retention, and files that somebody has damaged."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from correlator.proxy.buffer import Buffer, BufferLockedError, Limits, Position, Reader
from tests.unit.proxy.buffers import DAY, SetClock, chunks_of, events_of, names, opened


def numbered(*numbers: int, size: int = 0) -> list[bytes]:
    return [f'{{"n":{number}}}'.encode().ljust(size) for number in numbers]


def test_events_come_out_in_the_order_of_their_commits_across_partitions_and_restarts(tmp_path: Path) -> None:
    with opened(tmp_path, partition_bytes=40) as buffer:
        buffer.commit(numbered(*range(10)), {})
        buffer.commit(numbered(10), {})
    with opened(tmp_path, partition_bytes=40) as buffer:
        buffer.commit(numbered(*range(11, 30)), {})
        assert events_of(buffer) == numbered(*range(30))
        assert len(buffer.partitions) > 3


@settings(max_examples=30, deadline=None)
@given(groups=st.lists(st.lists(st.integers(1, 200), min_size=1, max_size=400), min_size=1, max_size=6))
def test_however_events_are_grouped_and_cut_none_is_missing_and_none_is_out_of_order(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[int]]
) -> None:
    directory = tmp_path_factory.mktemp("buffer")
    with opened(directory, partition_bytes=2000) as buffer:
        expected: list[bytes] = []
        for group in groups:
            raws = numbered(*range(len(expected), len(expected) + len(group)))
            raws = [raw.ljust(size) for raw, size in zip(raws, group, strict=True)]
            buffer.commit(raws, {})
            expected += raws
        assert events_of(buffer) == expected
        assert sum(partition.events for partition in buffer.partitions) == len(expected)
        assert sum(partition.size for partition in buffer.partitions) == sum(map(len, expected))
        known = buffer.partitions
    with opened(directory) as buffer:
        assert buffer.partitions == known


def test_the_tables_are_those_of_the_proposal(tmp_path: Path) -> None:
    with opened(tmp_path, partition_bytes=20) as buffer:
        buffer.commit(numbered(1, 2, 3), {"prod": Position(1, 1)})
        first, *_, last = buffer.partitions
    connection = sqlite3.connect(tmp_path / "buffer.db")
    rows = connection.execute("SELECT name, current, size, created_at FROM partitions ORDER BY rowid").fetchall()
    assert [row[0] for row in rows] == [first.name, "events_2", last.name][: len(rows)]
    assert [row[1] for row in rows] == [0] * (len(rows) - 1) + [1]
    assert connection.execute('SELECT partition_id, "offset" FROM checkpoint').fetchall() == [(1, 1)]
    # The end of a partition is a row of its own, written with the rotation.
    assert connection.execute(f"SELECT event, continue FROM {first.name} ORDER BY rowid").fetchall() == [  # noqa: S608
        ('{"n":1}', 1),
        ('{"n":2}', 1),
        ("", 0),
    ]
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_partition_ends_when_it_is_full_or_old(tmp_path: Path) -> None:
    clock = SetClock()
    with opened(tmp_path, clock, partition_bytes=1000, partition_seconds=3600) as buffer:
        buffer.commit(numbered(1, size=500), {})
        buffer.commit(numbered(2, size=499), {})
        assert len(buffer.partitions) == 1
        buffer.commit(numbered(3, size=1), {})
        assert [partition.events for partition in buffer.partitions] == [2, 1]
        clock.pass_seconds(3600)
        buffer.commit(numbered(4), {})
        assert [partition.events for partition in buffer.partitions] == [2, 1, 1]


def test_an_event_larger_than_a_partition_has_one_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path, partition_bytes=100) as buffer:
        buffer.commit(numbered(1, size=500) + numbered(2, 3), {})
        assert [partition.events for partition in buffer.partitions] == [1, 2]


def test_a_large_group_is_one_transaction_however_many_statements_it_takes(tmp_path: Path) -> None:
    large = numbered(*range(50), size=100_000)
    with opened(tmp_path, partition_bytes=2**30) as buffer:
        buffer.commit(numbered(1), {})
        with closing(sqlite3.connect(buffer.path)) as other:
            other.execute(
                "CREATE TRIGGER last AFTER INSERT ON events_1 WHEN NEW.id > 50 BEGIN SELECT RAISE(ABORT, ''); END"
            )
            with pytest.raises(sqlite3.Error):
                buffer.commit(large, {})
            other.execute("DROP TRIGGER last")
        assert events_of(buffer) == numbered(1)
        buffer.commit(large, {})
        assert events_of(buffer) == numbered(1) + large


@pytest.mark.parametrize("positions", [{}, {"prod": Position(1, 2)}])
def test_what_is_not_committed_is_as_if_it_had_never_been(tmp_path: Path, positions: dict[str, Position]) -> None:
    with opened(tmp_path) as buffer:
        buffer.commit(numbered(1), {"prod": Position(1, 1)})
        before = buffer.partitions, buffer.positions
        with closing(sqlite3.connect(buffer.path)) as other:
            other.execute(
                "CREATE TRIGGER third AFTER INSERT ON events_1 WHEN NEW.id > 2 BEGIN SELECT RAISE(ABORT, ''); END"
            )
            with pytest.raises(sqlite3.Error):
                buffer.commit(numbered(2, 3), positions)
            other.execute("DROP TRIGGER third")
        assert (buffer.partitions, buffer.positions) == before
        buffer.commit(numbered(2), {})
        assert events_of(buffer) == numbered(1, 2)


def test_a_batch_has_no_more_events_and_bytes_than_asked_for_but_always_one(tmp_path: Path) -> None:
    with opened(tmp_path) as buffer:
        buffer.commit(numbered(1, size=100) + numbered(2, size=1000) + numbered(3, 4, 5, size=100), {})
        reader = Reader(buffer.path)
        (partition,) = buffer.partitions

        def lengths(after: int, most_events: int, most_bytes: int) -> list[int]:
            chunk = reader.read(partition, after, most_events=most_events, most_bytes=most_bytes)
            return [] if chunk is None else [len(event) for event in chunk.events]

        assert lengths(0, 10, 150) == [100]
        assert lengths(1, 10, 150) == [1000]
        assert lengths(2, 10, 250) == [100, 100]
        assert lengths(2, 2, 10_000) == [100, 100]
        assert lengths(5, 10, 10_000) == []
        reader.close()


@pytest.mark.parametrize("text", ['{"a":"ä€😀"}', '{"a":"\\u0000\\u001e"}', '{"a":\r\n1}'])
def test_an_event_comes_out_byte_for_byte_whatever_letters_it_has(tmp_path: Path, text: str) -> None:
    with opened(tmp_path) as buffer:
        buffer.commit([text.encode(), b"{}"], {})
        assert events_of(buffer) == [text.encode(), b"{}"]


# --- what goes, and what does not


def test_a_partition_goes_when_every_destination_is_past_it_and_not_before(tmp_path: Path) -> None:
    with opened(tmp_path, partition_bytes=20) as buffer:
        buffer.commit(numbered(*range(8)), {"a": Position(3, 0), "b": Position(2, 1)})
        processed, dropped = buffer.collect(["a", "b"])
        assert (names(processed), dropped) == (["events_1"], [])
        # One that has noted nothing yet holds everything.
        assert buffer.collect(["a", "b", "c"]) == ([], [])
        # One that was removed holds nothing any more.
        processed, dropped = buffer.collect(["a"])
        assert (names(processed), dropped) == (["events_2"], [])


def test_a_destination_that_was_removed_and_comes_back_begins_at_the_oldest_event(tmp_path: Path) -> None:
    with opened(tmp_path, partition_bytes=20) as buffer:
        buffer.commit(numbered(*range(4)), {"a": Position(1, 1), "b": Position(2, 1)})
        buffer.collect(["a"])
        assert buffer.positions == {"a": Position(1, 1)}


def test_retention_by_bytes_drops_whole_partitions_the_oldest_first(tmp_path: Path) -> None:
    with opened(tmp_path, retention_bytes=1000, partition_bytes=250) as buffer:
        for number in range(20):
            buffer.commit(numbered(number, size=100), {})
        assert buffer.is_over_its_size
        _, dropped = buffer.collect(["a"])
        assert {each.why for each in dropped} == {"size"}
        kept = events_of(buffer)
        assert kept == numbered(*range(20), size=100)[-len(kept) :]
        assert 700 <= sum(map(len, kept)) <= 1000
        assert sum(each.partition.events for each in dropped) + len(kept) == 20
        assert not buffer.is_over_its_size


def test_retention_by_hours_drops_what_is_older_also_when_nothing_comes(tmp_path: Path) -> None:
    clock = SetClock()
    with opened(tmp_path, clock, retention_seconds=DAY, partition_seconds=3600) as buffer:
        buffer.commit(numbered(1), {})
        clock.pass_seconds(3 * 3600)
        buffer.commit(numbered(2), {})
        clock.pass_seconds(DAY - 3 * 3600 - 1)
        assert buffer.collect(["a"]) == ([], [])
        clock.pass_seconds(2)
        _, dropped = buffer.collect(["a"])
        assert [(each.partition.events, each.why) for each in dropped] == [(1, "age")]
        assert events_of(buffer) == numbered(2)
        clock.pass_seconds(3 * 3600)
        _, dropped = buffer.collect(["a"])
        assert [(each.partition.events, each.why) for each in dropped] == [(1, "age")]
        assert events_of(buffer) == []
        # And it goes on.
        buffer.commit(numbered(3), {})
        assert events_of(buffer) == numbered(3)


def test_what_every_destination_has_had_goes_before_anything_is_dropped(tmp_path: Path) -> None:
    with opened(tmp_path, retention_bytes=1000, partition_bytes=250) as buffer:
        for number in range(20):
            buffer.commit(numbered(number, size=100), {})
        last = buffer.partitions[-1]
        buffer.commit([], {"a": Position(last.id, 0)})
        processed, dropped = buffer.collect(["a"])
        assert dropped == []
        assert len(processed) > 5


def test_the_disk_gets_back_what_was_removed(tmp_path: Path) -> None:
    with opened(tmp_path, partition_bytes=2**20) as buffer:
        for _ in range(40):
            buffer.commit(numbered(*range(100), size=3000), {})
        buffer.shrink_log()
        full = buffer.file_bytes
        buffer.commit([], {"a": Position(buffer.partitions[-1].id, 0)})
        buffer.collect(["a"])
        while buffer.give_back():
            pass
        buffer.shrink_log()
        assert full > 12_000_000
        assert buffer.file_bytes < full / 5
        # What is left can still be read.
        assert len(events_of(buffer)) == buffer.partitions[-1].events > 0


# --- clocks


@pytest.mark.parametrize("jump", [365 * DAY, -365 * DAY, DAY * 1.5, -DAY * 1.5])
def test_a_clock_that_is_set_makes_nothing_older_or_younger(tmp_path: Path, jump: float) -> None:
    clock = SetClock()
    with opened(tmp_path, clock, retention_seconds=DAY, partition_seconds=3600) as buffer:
        buffer.commit(numbered(1), {})
        buffer.collect(["a"])
        clock.pass_seconds(60)
        clock.now += jump
        buffer.commit(numbered(2), {})
        assert buffer.collect(["a"]) == ([], [])
        assert events_of(buffer) == numbered(1, 2)
        clock.pass_seconds(DAY - 200)
        assert buffer.collect(["a"]) == ([], [])
        clock.pass_seconds(400)
        buffer.collect(["a"])
        clock.pass_seconds(400)
        buffer.collect(["a"])
        assert events_of(buffer) == []


def test_a_clock_that_is_set_while_the_proxy_is_stopped_makes_nothing_older(tmp_path: Path) -> None:
    clock = SetClock()
    with opened(tmp_path, clock, retention_seconds=DAY) as buffer:
        buffer.commit(numbered(1), {})
        buffer.collect(["a"])
    clock.pass_seconds(600)
    clock.now += 30 * DAY
    with opened(tmp_path, clock, retention_seconds=DAY) as buffer:
        assert buffer.collect(["a"]) == ([], [])
        assert events_of(buffer) == numbered(1)


def test_time_passes_while_the_machine_is_off_but_not_backwards(tmp_path: Path) -> None:
    clock = SetClock()
    with opened(tmp_path, clock, retention_seconds=DAY) as buffer:
        buffer.commit(numbered(1), {})
        buffer.collect(["a"])
    clock.boot_id, clock.since_boot = "second", 5.0
    clock.now -= 50 * DAY
    with opened(tmp_path, clock, retention_seconds=DAY) as buffer:
        assert buffer.collect(["a"]) == ([], [])
        assert 0 <= clock.now - buffer.partitions[0].created_at < DAY
    clock.boot_id, clock.since_boot = "third", 5.0
    clock.now += 2 * DAY
    with opened(tmp_path, clock, retention_seconds=DAY) as buffer:
        _, dropped = buffer.collect(["a"])
        assert len(dropped) == 1


# --- damage, and other proxies


def test_a_file_that_is_no_database_is_set_aside_and_a_new_one_begun(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "buffer.db").write_bytes(b"not a database, whatever it is called" * 100)
    with opened(tmp_path) as buffer:
        buffer.commit(numbered(1), {})
        assert events_of(buffer) == numbered(1)
    (aside,) = tmp_path.glob("buffer.db.corrupt-*")
    assert aside.read_bytes().startswith(b"not a database")
    assert "THE BUFFER IS DAMAGED" in caplog.text


def test_a_file_whose_pages_are_damaged_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(tmp_path) as buffer:
        buffer.commit(numbered(*range(1000), size=1000), {})
    content = bytearray((tmp_path / "buffer.db").read_bytes())
    for page in range(3 * 8192, len(content), 8192):
        content[page : page + 64] = b"\xff" * 64
    (tmp_path / "buffer.db").write_bytes(content)
    with opened(tmp_path) as buffer:
        buffer.commit(numbered(7), {})
        assert events_of(buffer) == numbered(7)
    assert "THE BUFFER IS DAMAGED" in caplog.text


def test_a_new_file_goes_on_with_the_numbers_of_the_damaged_one(tmp_path: Path) -> None:
    with opened(tmp_path, partition_bytes=20) as buffer:
        buffer.commit(numbered(*range(10)), {})
        last = buffer.partitions[-1].id
        buffer.begin_anew(sqlite3.DatabaseError("a test says so"))
        buffer.commit(numbered(1), {})
        assert buffer.partitions[0].id > last


def test_a_second_proxy_is_told_that_the_buffer_is_taken(tmp_path: Path) -> None:
    with (
        opened(tmp_path),
        pytest.raises(BufferLockedError, match=r"Another proxy uses the buffer in .* choose another with --data-dir"),
    ):
        Buffer(tmp_path, Limits(), SetClock())
    # The lock is gone with who held it.
    Buffer(tmp_path, Limits(), SetClock()).close()


def test_a_partition_that_goes_while_it_is_read_gives_no_more_events(tmp_path: Path) -> None:
    with opened(tmp_path, partition_bytes=20, retention_bytes=20) as buffer:
        buffer.commit(numbered(*range(10)), {})
        reader = Reader(buffer.path)
        first = buffer.partitions[0]
        assert reader.read(first, 0, most_events=1, most_bytes=100) is not None
        buffer.collect(["a"])
        assert reader.read(first, 1, most_events=1, most_bytes=100) is None
        reader.close()


def test_the_end_of_a_partition_is_told_with_its_last_events(tmp_path: Path) -> None:
    with opened(tmp_path, partition_bytes=30) as buffer:
        buffer.commit(numbered(1, 2, 3, 4, 5), {})
        ends = [(len(chunk.events), chunk.is_end) for chunk in chunks_of(buffer, most_events=2)]
        assert sum(is_end for _, is_end in ends) == len(buffer.partitions) - 1
        assert not ends[-1][1]

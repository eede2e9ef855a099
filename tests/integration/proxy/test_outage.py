"""A real backend that goes and comes back, and a proxy that is killed: everything arrives, in order.

`make chaos` plays twenty rounds of what is played here twice.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from correlator.store.database import Database
from tests.chaos.proxy import Acknowledged, ProxyRounds, check
from tests.integration.events import run_event
from tests.integration.proxy.proxies import BATCH, proxy
from tests.integration.server.running import running


@pytest.fixture
def rounds(data_dir: Path, database: Database) -> Iterator[ProxyRounds]:
    made = ProxyRounds(data_dir, database, seed="always the same")
    yield made
    made.close()


def test_all_events_arrive_in_order_when_the_backend_is_stopped_and_started_while_they_come(
    rounds: ProxyRounds,
) -> None:
    rounds.play_outages(1)
    assert len(rounds.acknowledged) > 20
    # No gaps: what was sent is what is there.
    assert sorted(rounds.log()) == sorted(each.raw for each in rounds.acknowledged)


def test_everything_acknowledged_arrives_in_order_whenever_the_proxy_is_killed(rounds: ProxyRounds) -> None:
    rounds.play_kills(2)
    assert rounds.kills >= 2
    assert len(rounds.acknowledged) > 20
    # The log is that of an undisturbed run: every event that any sender began, once.
    assert sorted(rounds.log()) == sorted(each.raw for each in rounds.acknowledged)


def test_five_starts_and_two_completes_of_one_run_all_arrive(data_dir: Path, database: Database) -> None:
    events = [
        run_event(state, event_time=f"2026-11-01T10:00:0{number}Z", mark=number)
        for number, state in enumerate(["START"] * 5 + ["COMPLETE"] * 2)
    ]
    with (
        running(data_dir, database=database) as server,
        proxy(data_dir / "proxied", "--destination", server.url) as made,
    ):
        for event in events[:4]:
            assert made.post(event).status == 200
        assert made.post(events[4:], BATCH).status == 200
        made.wait_until_forwarded()
        with database.connect("test") as connection:
            rows = connection.execute("SELECT raw FROM kept.lineage_events ORDER BY position").fetchall()
        assert [json.loads(bytes(raw)) for (raw,) in rows] == events


def test_acknowledged_events_are_forwarded_by_the_next_start(data_dir: Path, database: Database) -> None:
    arguments = ("--destination", "later=http://127.0.0.1:9")
    with proxy(data_dir / "proxied", *arguments) as made:
        for number in range(30):
            assert made.post(run_event(mark=number, run_id=f"run {number}")).status == 200
        assert made.stop() == 0
    with (
        running(data_dir, database=database) as server,
        proxy(data_dir / "proxied", "--destination", f"later={server.url}") as made,
    ):
        made.wait_until_forwarded()
        with database.connect("test") as connection:
            rows = connection.execute("SELECT raw FROM kept.lineage_events ORDER BY position").fetchall()
        assert [json.loads(bytes(raw))["mark"] for (raw,) in rows] == list(range(30))


def test_the_order_of_acknowledgement_would_be_missed_if_it_were_broken() -> None:
    """The judge of these rounds can say no."""
    raws = [json.dumps({"mark": str(number)}).encode() for number in range(3)]
    acknowledged = [Acknowledged(str(number), 10.0 * number, 10.0 * number + 1, raw) for number, raw in enumerate(raws)]
    check(acknowledged, raws)
    for log in ([raws[0], raws[1]], [raws[1], raws[0], raws[2]], [*raws, raws[0]]):
        with pytest.raises(AssertionError):
            check(acknowledged, log)

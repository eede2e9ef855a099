"""From a failure to its receiver, whatever happens on the way."""

import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from msgspec.structs import replace

from correlator.alerts import outbox
from correlator.alerts.outbox import Listed
from correlator.alerts.payloads import Alert, of_test
from correlator.alerts.runner import AlertRunner
from correlator.store.database import Database
from tests.integration.alerts import receivers
from tests.integration.alerts.receivers import Receiver, Reply
from tests.integration.alerts.shop import add, ago, open_shop, raw_fails, raw_passes, settings
from tests.integration.correlation.stories import incident_on, ran, tell
from tests.integration.server.running import backends_of, running, wait_until

Connection = psycopg.Connection[Any]

RAW = "not_null of column id failed on raw"


@contextmanager
def telling(database: Database, **said: Any) -> Iterator[None]:
    with AlertRunner(database, settings(**{"group_wait": 0.001, **said}), pause=0.02):
        yield


def states(connection: Connection) -> list[str]:
    """Of all alerts, in order."""
    return [message.state for message in reversed(outbox.listed(connection, limit=1000))]


def wait_for_states(connection: Connection, *expected: str) -> list[Listed]:
    wait_until(lambda: states(connection) == list(expected), f"alerts are {expected}")
    return list(reversed(outbox.listed(connection)))


def put(connection: Connection, count: int, route: str = "all", **said: Any) -> None:
    """Messages that wait to be sent."""
    made = add(connection, route, **said)
    for _ in range(count):
        outbox.put(connection, _message(), made)


def _message() -> Alert:
    return replace(of_test("all", key=uuid4(), public_url=None), event="opened")


def test_a_failure_reaches_its_receiver_with_its_cause_its_victims_and_its_owner(
    database: Database, connection: Connection, receiver: Receiver
) -> None:
    add(connection, url=receiver.url)
    open_shop(connection)
    raw_fails(connection)
    with telling(database, public_url="https://correlator.example.com"):
        (received,) = receiver.wait_for(1)
        (listed,) = wait_for_states(connection, "sent")

    incident = incident_on(connection, "raw")
    said = received.json()
    assert said["event"] == "incident.opened"
    assert said["about"] == said["incident"]["id"] == str(incident.uuid)
    assert said["link"] == f"https://correlator.example.com/incidents/{incident.uuid}"
    assert said["incident"]["title"] == listed.title == RAW
    assert said["incident"]["owner"] == "team-raw"
    assert said["incident"]["cause"]["job"] == {"namespace": "airflow", "name": "load"}
    assert said["incident"]["hurt"] == {"affected": 2, "at_risk": 0, "consequences": 0, "is_cut": False}
    for words in (RAW, "load", "2 datasets were made of it", "team-raw", said["link"]):
        assert words in said["text"]
    assert received.headers["Idempotency-Key"] == said["id"]
    signed = received.headers["X-Correlator-Timestamp"].encode() + b"." + received.body
    assert received.headers["X-Correlator-Signature"] == "sha256=" + hmac.digest(b"hush", signed, "sha256").hex()


def test_after_errors_it_is_sent_again_under_the_same_key_until_it_is_taken(
    database: Database, connection: Connection, receiver: Receiver
) -> None:
    receiver.replies = [Reply(500), Reply(404), Reply(302)]
    put(connection, 1, url=receiver.url)
    with telling(database):
        received = receiver.wait_for(4)
        (sent,) = wait_for_states(connection, "sent")

    assert len({one.headers["Idempotency-Key"] for one in received}) == 1
    assert len({one.body for one in received}) == 1
    assert (sent.attempts, sent.last_error, len(receiver.received)) == (4, None, 4)
    assert outbox.figures(connection).sent == 1


def test_a_receiver_that_asks_for_time_gets_it_for_all_that_waits(
    database: Database, connection: Connection, receiver: Receiver
) -> None:
    receiver.replies = [Reply(429, (("Retry-After", "3600"),))]
    put(connection, 3, url=receiver.url)
    with telling(database):
        wait_until(lambda: all(one.due_at > _later(connection) for one in outbox.listed(connection)), "they wait")

    assert len(receiver.received) == 1
    assert [one.state for one in outbox.listed(connection)] == ["pending"] * 3
    assert [bool(one.last_error) for one in outbox.listed(connection)] == [False, False, True]


def _later(connection: Connection) -> Any:
    (at,) = connection.execute("SELECT now() + interval '50 minutes'").fetchone() or (None,)
    return at


def test_what_nobody_takes_is_given_up_loudly_and_can_be_tried_again(
    database: Database, connection: Connection, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.replies = [Reply(500, body=b"out of order")]
    put(connection, 1, url=receiver.url)
    with telling(database, alert_give_up=0.000001):
        (failed,) = wait_for_states(connection, "failed")
    assert failed.last_error == "500 Internal Server Error: out of order"
    assert failed.given_up_at is not None
    assert "an alert is given up after 1 attempts" in caplog.text
    assert (outbox.figures(connection).failed, outbox.figures(connection).pending) == (1, 0)

    assert outbox.retry(connection, [failed.id + 1]) == 0
    assert outbox.retry(connection) == 1
    with telling(database):
        wait_for_states(connection, "sent")


def test_that_it_is_over_is_told_after_that_it_began(
    database: Database, connection: Connection, receiver: Receiver
) -> None:
    receiver.replies = [Reply(500)]
    route = add(connection, url=receiver.url)
    open_shop(connection)
    raw_fails(connection)
    with telling(database, alert_backoff=3600.0, alert_backoff_max=3600.0):
        wait_until(lambda: any(one.last_error for one in outbox.listed(connection)), "the first was not taken")
        raw_passes(connection)
        wait_until(lambda: len(outbox.listed(connection)) == 2, "it is over")
        # What is about something else goes through, and tells that the others had their chance.
        outbox.put(connection, _message(), route)
        wait_for_states(connection, "pending", "pending", "sent")
        assert outbox.retry(connection) == 1
        wait_for_states(connection, "sent", "sent", "sent")

    said = [one.json() for one in receiver.received]
    events = [one["event"] for one in said if one["incident"]]
    assert events == ["incident.opened", "incident.opened", "incident.resolved"]
    assert said[-1]["about"] == said[0]["about"]
    assert "How: it passed again" in said[-1]["text"]


def test_who_never_heard_that_it_began_does_not_hear_that_it_is_over(
    database: Database, connection: Connection, receiver: Receiver
) -> None:
    receiver.replies = [Reply(500)]
    receiver.is_silent.set()
    add(connection, url=receiver.url)
    open_shop(connection)
    raw_fails(connection)
    with telling(database, alert_give_up=0.000001):
        receiver.wait_for(1)
        raw_passes(connection)
        wait_until(lambda: len(outbox.listed(connection)) == 2, "both are written")
        receiver.speak()
        _, resolved = wait_for_states(connection, "failed", "failed")

    assert resolved.last_error == "The message that it follows was given up."
    assert len(receiver.received) == 1


def test_a_receiver_that_is_silent_holds_up_no_other(
    database: Database, connection: Connection, receiver: Receiver
) -> None:
    with receivers.receiver() as silent:
        silent.is_silent.set()
        put(connection, 3, "silent", url=silent.url)
        put(connection, 5, "quick", url=receiver.url)
        with telling(database):
            receiver.wait_for(5)
            assert len(silent.received) == 1
            silent.speak()
            silent.wait_for(3)


def test_two_servers_on_one_database_send_everything_once(
    database: Database, connection: Connection, receiver: Receiver
) -> None:
    for number in range(10):
        put(connection, 5, f"route {number}", url=receiver.url)
    open_shop(connection)
    add(connection, "decided", url=receiver.url)
    tell(
        connection,
        *(ran(f"job {n}", f"job {n}", ago(9), ago(8), writes=[f"t{n}"], state="FAIL") for n in range(10)),
    )
    connection.execute("UPDATE kept.alert_routes SET namespaces = '{none}' WHERE name <> 'decided'")
    with telling(database), telling(database), telling(database):
        receiver.wait_for(60)
        wait_until(lambda: states(connection) == ["sent"] * 60, "all are sent")

    keys = [one.headers["Idempotency-Key"] for one in receiver.received]
    assert len(keys) == len(set(keys)) == 60


def test_what_a_receiver_took_is_not_sent_again_after_the_database_was_away(
    database: Database, connection: Connection, receiver: Receiver
) -> None:
    receiver.is_silent.set()
    put(connection, 2, url=receiver.url)
    with telling(database):
        receiver.wait_for(1)
        # While the message is on its way its sender loses the database.
        before = backends_of(connection, "alerts")
        for process in before:
            connection.execute("SELECT pg_terminate_backend(%s)", [process])
        wait_until(lambda: set(backends_of(connection, "alerts")) - set(before) != set(), "it has come back")
        receiver.speak()
        wait_for_states(connection, "sent", "sent")

    assert len(receiver.received) == 2


def test_what_is_on_its_way_when_the_server_stops_is_waited_for(
    database: Database, connection: Connection, receiver: Receiver
) -> None:
    receiver.is_silent.set()
    put(connection, 1, url=receiver.url)
    with telling(database):
        receiver.wait_for(1)
        receiver.speak()

    assert states(connection) == ["sent"]


def test_nothing_is_sent_on_a_route_that_is_out_of_use_nor_by_a_server_that_is_told_not_to(
    database: Database, connection: Connection, receiver: Receiver
) -> None:
    put(connection, 1, "off", url=receiver.url, is_enabled=False)
    with telling(database, send_alerts=False):
        put(connection, 1, "on", url=receiver.url)
    assert states(connection) == ["pending", "pending"]

    with telling(database):
        wait_for_states(connection, "pending", "sent")
    assert len(receiver.received) == 1


def test_a_private_address_is_refused_until_it_is_allowed(
    database: Database, connection: Connection, receiver: Receiver
) -> None:
    put(connection, 1, url=f"http://localhost:{receiver.port}/")
    with telling(database, alerts_allow_private=False):
        wait_until(lambda: bool(outbox.listed(connection)[0].last_error), "it is refused")
    assert "alerts_allow_private" in str(outbox.listed(connection)[0].last_error)
    assert receiver.received == []

    with telling(database):
        wait_for_states(connection, "sent")


def test_a_killed_server_sends_nothing_twice_that_was_taken_and_loses_nothing_that_was_not(
    database: Database, connection: Connection, receiver: Receiver, data_dir: Path
) -> None:
    add(connection, url=receiver.url)
    open_shop(connection)
    arguments = ("--group-wait", "1ms", "--alerts-allow-private")
    with running(data_dir, *arguments, database=database) as server:
        raw_fails(connection)
        receiver.wait_for(1)
        wait_for_states(connection, "sent")
        # The second is on its way when the server dies: nobody knows whether it was taken.
        receiver.is_silent.set()
        tell(connection, ran("other", "other bad", ago(9), ago(8), writes=["else"], state="FAIL"))
        receiver.wait_for(2)
        server.kill()
        receiver.speak()
    assert states(connection) == ["sent", "pending"]

    connection.execute("UPDATE kept.alert_outbox SET leased_until = now() WHERE sent_at IS NULL")
    with running(data_dir, *arguments, database=database):
        wait_for_states(connection, "sent", "sent")

    keys = [one.headers["Idempotency-Key"] for one in receiver.received]
    assert len(keys) == 3
    assert keys[0] != keys[1] == keys[2]

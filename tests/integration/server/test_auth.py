"""Who is let in, and for how long after the world has changed."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from correlator.http.callers import ANYBODY, Caller, Reason, Refusal, permit
from correlator.server.auth import KeyCache
from correlator.store.api_keys import create_key, list_keys, revoke_key
from correlator.store.database import Database

PATIENCE = 30


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        yield connection


@pytest.fixture
def cache(database: Database) -> Iterator[KeyCache]:
    """One that is read only when a test says so."""
    cache = KeyCache(database, interval=3600)
    cache.refresh()
    yield cache
    cache.close()


def make(connection: psycopg.Connection, name: str = "airflow", **options: Any) -> bytes:
    return create_key(connection, name, options.pop("scopes", ["ingest"]), actor="ann", **options).secret.encode()


def reason(answer: Caller | Refusal) -> Reason:
    assert isinstance(answer, Refusal)
    return answer.reason


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_without_any_key_everybody_may_do_everything(cache: KeyCache) -> None:
    assert cache.is_open
    assert cache.authenticate(None, None) == ANYBODY
    assert cache.authenticate(b"Bearer corr_left-over", b"nonsense \xff") == ANYBODY
    assert permit(ANYBODY, "admin") is None


def test_the_first_key_closes_the_server_while_it_runs(database: Database, connection: psycopg.Connection) -> None:
    with KeyCache(database, interval=0.02) as cache:
        assert cache.is_open
        key = make(connection)
        wait_until(lambda: not cache.is_open)
        assert reason(cache.authenticate(None, None)) == "missing_key"
        assert isinstance(cache.authenticate(b"Bearer " + key, None), Caller)


def test_a_key_is_taken_from_either_header(cache: KeyCache, connection: psycopg.Connection) -> None:
    key = make(connection, scopes=["ingest", "read"])
    cache.refresh()
    expected = Caller("airflow", frozenset({"ingest", "read"}), list_keys(connection)[0].id)
    for authorization in (b"Bearer " + key, b"bearer " + key, b"BEARER   " + key, b"\tBearer\t" + key + b" "):
        assert cache.authenticate(authorization, None) == expected
    assert cache.authenticate(None, key) == expected
    assert cache.authenticate(None, b" " + key + b" ") == expected
    assert cache.authenticate(b"Bearer " + key, key) == expected


def test_a_key_beside_the_password_for_a_proxy_is_taken(cache: KeyCache, connection: psycopg.Connection) -> None:
    key = make(connection)
    cache.refresh()
    assert isinstance(cache.authenticate(b"Basic YW5uOnNlY3JldA==", key), Caller)


def test_two_different_keys_are_refused_though_both_are_good(cache: KeyCache, connection: psycopg.Connection) -> None:
    first, second = make(connection, "a"), make(connection, "b")
    cache.refresh()
    assert reason(cache.authenticate(b"Bearer " + first, second)) == "conflicting_keys"


NO_GOOD_KEYS: tuple[tuple[bytes | None, bytes | None, Reason], ...] = (
    (None, None, "missing_key"),
    (b"", None, "malformed_key"),
    (b"Bearer", None, "malformed_key"),
    (b"Bearer ", None, "malformed_key"),
    (b"Bearer a b", None, "malformed_key"),
    (b"Bearer a, Bearer b", None, "malformed_key"),
    (b"Bearer \xff\x00", None, "malformed_key"),
    (b"Bearer " + b"x" * 513, None, "malformed_key"),
    (b"Bearer\n", None, "malformed_key"),
    (b"Basic YW5uOnNlY3JldA==", None, "malformed_key"),
    (b"Bearercorr_x", None, "malformed_key"),
    (b"corr_x", None, "malformed_key"),
    (None, b"", "malformed_key"),
    (None, b"a, b", "malformed_key"),
    (None, "schlüssel".encode(), "malformed_key"),
    (b"Bearer corr_x", b"", "malformed_key"),
    (b"Bearer corr_x", None, "unknown_key"),
    (b"Bearer eyJhbGciOi.J9", None, "unknown_key"),
    (None, b"corr_x", "unknown_key"),
)


def test_what_is_no_good_key_is_refused_with_words(cache: KeyCache, connection: psycopg.Connection) -> None:
    make(connection)
    cache.refresh()
    for authorization, x_api_key, expected in NO_GOOD_KEYS:
        answer = cache.authenticate(authorization, x_api_key)
        assert isinstance(answer, Refusal)
        assert (answer.status, answer.reason) == (401, expected), (authorization, x_api_key)
        assert answer.headers == ((b"www-authenticate", b'Bearer realm="correlator"'),)
        assert answer.detail.endswith(".")
        for secret in ("YW5uOnNlY3JldA==", "eyJhbGciOi", "corr_x"):
            assert secret not in answer.detail


def test_no_part_of_a_key_and_nothing_that_is_kept_of_it_opens_the_door(
    cache: KeyCache, connection: psycopg.Connection
) -> None:
    key = make(connection)
    cache.refresh()
    (prefix, digest) = connection.execute("SELECT prefix, hash FROM kept.api_keys").fetchall()[0]
    for wrong in (
        key[:-1],
        key + b"x",
        key.swapcase(),
        key.removeprefix(b"corr_"),
        prefix.encode(),
        digest.hex().encode(),
    ):
        assert reason(cache.authenticate(None, wrong)) == "unknown_key"


def test_a_key_ends_at_the_moment_it_expires_without_another_look_at_the_database(
    database: Database, connection: psycopg.Connection
) -> None:
    now = float(int(time.time()))
    cache = KeyCache(database, clock=lambda: now)
    expires_at = datetime.fromtimestamp(now, UTC) + timedelta(hours=1)
    key = make(connection, expires_at=expires_at)
    cache.refresh()
    assert isinstance(cache.authenticate(None, key), Caller)
    now += 3600
    answer = cache.authenticate(None, key)
    assert isinstance(answer, Refusal)
    assert answer.reason == "expired_key"
    assert f"expired at {expires_at.isoformat(timespec='seconds')}" in answer.detail
    cache.close()


def test_a_revoked_key_is_refused_within_a_turn_and_its_holder_told(
    database: Database, connection: psycopg.Connection
) -> None:
    key = make(connection)
    with KeyCache(database, interval=0.02) as cache:
        assert isinstance(cache.authenticate(None, key), Caller)
        revoke_key(connection, "airflow", actor="ann")
        wait_until(lambda: isinstance(cache.authenticate(None, key), Refusal))
        answer = cache.authenticate(None, key)
        assert isinstance(answer, Refusal)
        assert (answer.status, answer.reason) == (401, "revoked_key")
        assert "'airflow' was revoked" in answer.detail


def test_to_revoke_the_last_key_does_not_open_the_server(cache: KeyCache, connection: psycopg.Connection) -> None:
    make(connection)
    revoke_key(connection, "airflow", actor="ann")
    cache.refresh()
    assert not cache.is_open
    assert reason(cache.authenticate(None, None)) == "missing_key"


def test_a_server_that_was_closed_stays_closed_whatever_happens_to_the_table(
    cache: KeyCache, connection: psycopg.Connection
) -> None:
    make(connection)
    cache.refresh()
    connection.execute("ALTER TABLE kept.api_keys DISABLE TRIGGER USER")
    connection.execute("DELETE FROM kept.api_keys")
    cache.refresh()
    assert not cache.is_open
    assert reason(cache.authenticate(None, None)) == "missing_key"


def test_nobody_is_let_in_before_the_keys_were_read(database: Database) -> None:
    cache = KeyCache(database)
    assert not cache.is_open
    answer = cache.authenticate(None, None)
    assert isinstance(answer, Refusal)
    assert (answer.status, answer.reason, answer.headers) == (503, "keys_unavailable", ((b"retry-after", b"5"),))


def test_known_keys_stand_while_the_database_is_away_and_are_read_again_afterwards(
    database: Database, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    key = make(connection)
    caplog.set_level("INFO", "correlator.server.auth")
    elsewhere = Database(database.url)
    with KeyCache(elsewhere, interval=0.02) as cache:
        elsewhere.url = "postgresql://127.0.0.1:1/nowhere"
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'correlator keys'"
        )
        wait_until(lambda: "Keys cannot be read again" in caplog.text)
        assert isinstance(cache.authenticate(None, key), Caller)
        assert reason(cache.authenticate(None, b"corr_other")) == "unknown_key"
        other = make(connection, "other")
        elsewhere.url = database.url
        wait_until(lambda: isinstance(cache.authenticate(None, other), Caller))
        wait_until(lambda: "Keys are read again" in caplog.text)
    assert key.decode() not in caplog.text


def test_keys_that_could_not_be_read_again_for_too_long_open_nothing(
    database: Database, connection: psycopg.Connection
) -> None:
    key = make(connection)
    cache = KeyCache(database, longest_blindness=-1)
    cache.refresh()
    assert reason(cache.authenticate(None, key)) == "keys_unavailable"
    cache.close()


def test_a_cache_cannot_start_without_its_database() -> None:
    cache = KeyCache(Database("postgresql://127.0.0.1:1/nowhere"))
    with pytest.raises(psycopg.OperationalError):
        cache.start()
    cache.close()


def test_the_last_use_is_noted_in_the_end_and_an_unused_key_left_alone(
    database: Database, connection: psycopg.Connection
) -> None:
    key = make(connection, "used")
    make(connection, "idle")
    before = datetime.now(UTC)
    with KeyCache(database) as cache:
        for _ in range(3):
            cache.authenticate(None, key)
    last_used = {key.name: key.last_used_at for key in list_keys(connection)}
    assert last_used["idle"] is None
    assert last_used["used"] is not None
    assert before <= last_used["used"] <= datetime.now(UTC)


def test_a_denied_use_is_recorded_once_however_often_it_is_tried(
    database: Database, connection: psycopg.Connection
) -> None:
    key = make(connection)
    revoke_key(connection, "airflow", actor="ann")
    cache = KeyCache(database)
    cache.refresh()
    for _ in range(3):
        cache.authenticate(None, key)
        cache.refresh()
    cache.close()
    denied = connection.execute("SELECT actor, key_name, detail FROM kept.key_audit WHERE action = 'denied'").fetchall()
    assert denied == [("server", "airflow", "revoked key")]


def test_scopes_do_not_include_each_other(cache: KeyCache, connection: psycopg.Connection) -> None:
    key = make(connection, scopes=["admin"])
    cache.refresh()
    caller = cache.authenticate(None, key)
    assert isinstance(caller, Caller)
    assert permit(caller, "admin") is None
    refusal = permit(caller, "ingest")
    assert refusal is not None
    assert (refusal.status, refusal.headers) == (403, ())
    assert refusal.detail == "This needs the scope ingest; the key 'airflow' has admin."


def test_the_cache_leaves_no_connection_behind(database: Database, connection: psycopg.Connection) -> None:
    with KeyCache(database):
        pass
    wait_until(
        lambda: (
            connection.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE application_name = 'correlator keys' AND datname = current_database()"
            ).fetchone()
            == (0,)
        )
    )

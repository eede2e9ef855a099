"""Keys in the database: made, found, revoked, and never forgotten."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import psycopg
import pytest

from correlator.store.api_keys import (
    ApiKeyError,
    NewApiKey,
    create_key,
    find_key,
    list_keys,
    load_keys,
    record_denials,
    revoke_key,
    touch_keys,
)
from correlator.store.database import Database


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test") as connection:
        yield connection


def make(connection: psycopg.Connection, name: str = "airflow", **options: Any) -> NewApiKey:
    return create_key(connection, name, options.pop("scopes", ["ingest"]), actor="ann", **options)


def audit(connection: psycopg.Connection) -> list[tuple[str, str, str, str]]:
    return connection.execute("SELECT action, actor, key_name, detail FROM kept.key_audit ORDER BY id").fetchall()


def expire(connection: psycopg.Connection, new: NewApiKey) -> None:
    connection.execute("UPDATE kept.api_keys SET expires_at = now() - interval '1 s' WHERE id = %s", [new.key.id])
    connection.commit()


def test_a_key_is_long_random_and_kept_only_as_its_hash(connection: psycopg.Connection) -> None:
    first, second = make(connection), make(connection, "dbt")
    assert first.secret.startswith("corr_")
    assert len(first.secret) >= 5 + 43  # 256 bits
    assert first.secret != second.secret
    rows = connection.execute("SELECT k::text, hash FROM kept.api_keys AS k ORDER BY id").fetchall()
    assert rows[0][1] == sha256(first.secret.encode()).digest()
    everything = repr(rows) + repr(audit(connection)) + repr(first)
    assert first.secret not in everything
    assert first.secret[len(first.key.prefix) :] not in everything
    assert first.secret.startswith(first.key.prefix)


def test_a_new_key_is_committed_when_it_is_shown(connection: psycopg.Connection, database: Database) -> None:
    make(connection)
    with database.connect("another") as other:
        assert [key.name for key in list_keys(other)] == ["airflow"]


def test_a_list_shows_the_revoked_keys_last(connection: psycopg.Connection) -> None:
    make(connection, "a")
    make(connection, "c")
    make(connection, "b", scopes=["admin", "read"], expires_at=datetime(2999, 1, 1, tzinfo=UTC))
    revoke_key(connection, "a", actor="ann")
    keys = list_keys(connection)
    assert [key.name for key in keys] == ["b", "c", "a"]
    assert keys[0].scopes == ["read", "admin"]
    assert keys[0].expires_at == datetime(2999, 1, 1, tzinfo=UTC)
    assert keys[0].created_by == "ann"
    assert [key.state(datetime.now(UTC)) for key in keys] == ["active", "active", "revoked"]
    assert keys[0].state(datetime(2999, 1, 1, tzinfo=UTC)) == "expired"


def test_a_name_that_cannot_be_read_is_refused(connection: psycopg.Connection) -> None:
    for name in ("", " ", " x", "x ", "a\nb", "a\0b", "\u202eevil", "x" * 101, "\udcff"):
        with pytest.raises(ApiKeyError, match="1 to 100 printable characters"):
            make(connection, name)
    assert list_keys(connection) == []


def test_a_name_does_not_look_like_a_key(connection: psycopg.Connection) -> None:
    with pytest.raises(ApiKeyError, match="does not begin with corr_"):
        make(connection, "corr_abc")


def test_any_name_that_can_be_read_is_taken(connection: psycopg.Connection) -> None:
    for name in ("x", "dbt prod", "Jörg's Airflow", "数据", "x" * 100, "-rf", "%s"):
        assert make(connection, name).key == find_key(connection, name)


def test_a_key_has_known_scopes(connection: psycopg.Connection) -> None:
    for scopes in ([], ["write"], ["ingest", "write"]):
        with pytest.raises(ApiKeyError, match="one or more of the scopes ingest, read, act, admin"):
            make(connection, scopes=scopes)


def test_a_key_that_has_expired_before_it_begins_is_refused(connection: psycopg.Connection) -> None:
    with pytest.raises(ApiKeyError, match="in the past"):
        make(connection, expires_at=datetime.now(UTC) - timedelta(seconds=1))


def test_active_keys_do_not_share_a_name(connection: psycopg.Connection) -> None:
    make(connection)
    with pytest.raises(ApiKeyError, match="There is already a key named 'airflow'"):
        make(connection)
    assert [action for action, *_ in audit(connection)] == ["created"]


def test_of_two_who_want_a_name_at_one_moment_one_gets_it(database: Database) -> None:
    outcomes: list[str] = []
    both = threading.Barrier(2)

    def create() -> None:
        with database.connect("test") as connection:
            both.wait()
            try:
                make(connection)
            except ApiKeyError:
                outcomes.append("refused")
            else:
                outcomes.append("made")

    threads = [threading.Thread(target=create) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made", "refused"]


def test_the_name_of_a_revoked_key_is_free_again(connection: psycopg.Connection) -> None:
    old = make(connection)
    revoke_key(connection, "airflow", actor="ann")
    new = make(connection)
    assert new.key.id != old.key.id
    assert find_key(connection, "airflow").id == new.key.id
    assert [action for action, *_ in audit(connection)] == ["created", "revoked", "created"]


def test_the_name_of_an_expired_key_is_free_again(connection: psycopg.Connection) -> None:
    expire(connection, make(connection))
    new = make(connection)
    assert [key.id for key in list_keys(connection) if key.revoked_at is None] == [new.key.id]
    assert [action for action, *_ in audit(connection)] == ["created", "expired", "created"]


def test_a_key_is_revoked_by_its_name_its_beginning_or_itself(connection: psycopg.Connection) -> None:
    for way in ("name", "prefix", "secret"):
        new = make(connection)
        given = {"name": new.key.name, "prefix": new.key.prefix, "secret": new.secret}[way]
        revoked = revoke_key(connection, given, actor="bob")
        assert revoked.id == new.key.id
        assert revoked.revoked_at is not None
    assert audit(connection)[-1][:3] == ("revoked", "bob", "airflow")


def test_a_key_that_was_revoked_stays_as_it_was(connection: psycopg.Connection) -> None:
    new = make(connection)
    first = revoke_key(connection, "airflow", actor="ann")
    assert revoke_key(connection, "airflow", actor="bob") == first
    assert revoke_key(connection, new.key.prefix, actor="bob") == first
    assert [actor for action, actor, *_ in audit(connection) if action == "revoked"] == ["ann"]


def test_a_key_that_is_not_there_is_told(connection: psycopg.Connection) -> None:
    make(connection)
    for given in ("nobody", "corr_zzzzzzzz", "corr_%", "%", "", "a\0b", "\udcff"):
        with pytest.raises(ApiKeyError, match=r"There is no key|Give at least"):
            revoke_key(connection, given, actor="ann")


def test_a_whole_key_that_is_not_known_is_not_repeated(connection: psycopg.Connection) -> None:
    with pytest.raises(ApiKeyError) as caught:
        revoke_key(connection, "corr_12345678secret", actor="ann")
    assert "secret" not in str(caught.value)


def test_a_beginning_that_fits_several_keys_is_not_guessed_at(connection: psycopg.Connection) -> None:
    for name in ("a", "b"):
        connection.execute(
            "UPDATE kept.api_keys SET prefix = %s WHERE id = %s", [f"corr_same{name}", make(connection, name).key.id]
        )
    with pytest.raises(ApiKeyError, match=r"beginning of 2 keys: corr_samea… \(a\), corr_sameb… \(b\)"):
        revoke_key(connection, "corr_same", actor="ann")
    assert revoke_key(connection, "corr_sameb", actor="ann").name == "b"


def test_every_key_is_loaded_so_that_the_holder_of_an_old_one_can_be_told(connection: psycopg.Connection) -> None:
    new = make(connection, scopes=["ingest", "read"])
    revoke_key(connection, "airflow", actor="ann")
    (loaded,) = load_keys(connection)
    assert loaded.hash == sha256(new.secret.encode()).digest()
    assert loaded.scopes == ["ingest", "read"]
    assert loaded.revoked_at is not None


def test_the_last_use_only_moves_forward(connection: psycopg.Connection) -> None:
    first, second = make(connection, "a").key.id, make(connection, "b").key.id
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    touch_keys(connection, {first: late, second: early})
    touch_keys(connection, {first: early, second: late, 999: late})
    touch_keys(connection, {})
    assert [key.last_used_at for key in list_keys(connection)] == [late, late]


def test_a_denied_use_is_recorded_under_the_name_of_its_key(connection: psycopg.Connection) -> None:
    new = make(connection)
    record_denials(connection, {new.key.id: "revoked key"}, actor="server")
    assert audit(connection)[-1] == ("denied", "server", "airflow", "revoked key")


def test_the_database_lets_nobody_rewrite_what_happened(connection: psycopg.Connection) -> None:
    make(connection)
    for statement in (
        "UPDATE kept.key_audit SET actor = 'nobody'",
        "DELETE FROM kept.key_audit",
        "TRUNCATE kept.key_audit",
        "DELETE FROM kept.api_keys",
        "TRUNCATE kept.api_keys",
    ):
        with pytest.raises(psycopg.errors.RaiseException, match="is refused: what happened to keys is never changed"):
            connection.execute(statement)
        connection.rollback()
    assert len(list_keys(connection)) == len(audit(connection)) == 1

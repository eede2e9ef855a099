"""Keys of the people and programs that may talk to the server, and the record of what happened to them.

A key is shown once, when it is made. What is kept is its SHA-256: a key is 256 random bits, which nobody can guess
however fast the hash is, and a slow one would cost every request its time.
"""

import secrets
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
import psycopg
from psycopg.rows import class_row

from correlator.key_scopes import KEY_START, SCOPES, Scope, hash_of

_RANDOM_BYTES: Final = 32
_SHOWN: Final = len(KEY_START) + 8
_LONGEST_NAME: Final = 100
_SHORTEST_PREFIX: Final = len(KEY_START) + 4

_COLUMNS: Final = "id, name, prefix, scopes, created_at, created_by, expires_at, revoked_at, last_used_at"

_INSERT: Final = f"""
INSERT INTO kept.api_keys (name, hash, prefix, scopes, created_by, expires_at)
VALUES (%s, %s, %s, %s, %s, %s)
RETURNING {_COLUMNS}
"""  # noqa: S608 (a constant)

_LIST: Final = f"SELECT {_COLUMNS} FROM kept.api_keys ORDER BY revoked_at IS NOT NULL, name, id"  # noqa: S608

# Keys are few: the whole table is read, whatever the question.
_BY_NAME: Final = f"""
SELECT {_COLUMNS} FROM kept.api_keys WHERE name = %(given)s ORDER BY revoked_at DESC NULLS FIRST LIMIT 1
"""  # noqa: S608
_BY_KEY_OR_PREFIX: Final = f"""
SELECT {_COLUMNS} FROM kept.api_keys WHERE hash = %(hash)s OR starts_with(prefix, %(given)s) ORDER BY id
"""  # noqa: S608

_REVOKE: Final = f"""
UPDATE kept.api_keys SET revoked_at = now() WHERE id = %s AND revoked_at IS NULL RETURNING {_COLUMNS}
"""  # noqa: S608

# The name of an expired key is free again: the old key gives it up by being revoked.
_EXPIRED_OF_THIS_NAME: Final = """
UPDATE kept.api_keys SET revoked_at = now()
WHERE name = %s AND revoked_at IS NULL AND expires_at <= now()
RETURNING id, expires_at
"""

_AUDIT: Final = """
INSERT INTO kept.key_audit (action, actor, key_id, key_name, detail) VALUES (%s, %s, %s, %s, %s)
"""

_LOAD: Final = "SELECT id, name, hash, scopes, expires_at, revoked_at FROM kept.api_keys"

_TOUCH: Final = """
UPDATE kept.api_keys AS keys SET last_used_at = used.at
FROM unnest(%s::bigint[], %s::timestamptz[]) AS used (id, at)
WHERE keys.id = used.id AND (keys.last_used_at IS NULL OR keys.last_used_at < used.at)
"""

_AUDIT_DENIED: Final = """
INSERT INTO kept.key_audit (action, actor, key_id, key_name, detail)
SELECT 'denied', %s, keys.id, keys.name, denied.detail
FROM unnest(%s::bigint[], %s::text[]) AS denied (id, detail) JOIN kept.api_keys AS keys USING (id)
"""


class ApiKeyError(Exception):
    """What was asked for a key cannot be done. Its text is for people."""


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it may be shown."""

    id: int
    name: str
    prefix: str
    scopes: list[Scope]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    def state(self, at: datetime) -> Literal["active", "expired", "revoked"]:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= at else "active"


class NewApiKey(msgspec.Struct, frozen=True):
    """A key at the only moment when its secret is known."""

    secret: str
    key: ApiKey

    def __repr__(self) -> str:
        return f"NewApiKey(secret='***', key={self.key!r})"


class HashedKey(msgspec.Struct, frozen=True):
    """What is needed to recognise a key."""

    id: int
    name: str
    hash: bytes
    scopes: list[Scope]
    expires_at: datetime | None
    revoked_at: datetime | None


def create_key(
    connection: psycopg.Connection,
    name: str,
    scopes: Collection[Scope],
    *,
    expires_at: datetime | None = None,
    actor: str,
) -> NewApiKey:
    """Make a key. Nobody can see its secret again."""
    _check_name(name)
    ordered = [scope for scope in SCOPES if scope in scopes]
    if not ordered or len(ordered) != len(set(scopes)):
        raise ApiKeyError(
            f"A key has one or more of the scopes {', '.join(SCOPES)}; given: {', '.join(scopes) or 'none'}."
        )
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise ApiKeyError(f"A key that expires at {expires_at.isoformat()}, in the past, could never be used.")
    secret = KEY_START + secrets.token_urlsafe(_RANDOM_BYTES)
    values = [name, hash_of(secret.encode()), secret[:_SHOWN], ordered, actor, expires_at]
    try:
        with connection.transaction(), connection.cursor(row_factory=class_row(ApiKey)) as cursor:
            for old_id, expired_at in connection.execute(_EXPIRED_OF_THIS_NAME, [name]).fetchall():
                detail = f"expired at {expired_at.isoformat()}; a new key takes its name"
                connection.execute(_AUDIT, ["expired", actor, old_id, name, detail])
            key = cursor.execute(_INSERT, values).fetchone()
            assert key is not None  # noqa: S101 (RETURNING)
            detail = f"scopes {', '.join(ordered)}; {_until(expires_at)}"
            connection.execute(_AUDIT, ["created", actor, key.id, name, detail])
    except psycopg.errors.UniqueViolation as error:
        raise ApiKeyError(
            f"There is already a key named {name!r}. Choose another name, or revoke that key first: "
            f"correlator keys revoke {name!r}"
        ) from error
    return NewApiKey(secret, key)


def list_keys(connection: psycopg.Connection) -> list[ApiKey]:
    """All there ever were, the revoked ones last."""
    with connection.transaction(), connection.cursor(row_factory=class_row(ApiKey)) as cursor:
        return cursor.execute(_LIST).fetchall()


def find_key(connection: psycopg.Connection, given: str) -> ApiKey:
    """The key of this name, with this beginning, or the key itself."""
    if not given.isprintable():  # nor could it be sent to the database
        raise ApiKeyError(f"There is no key {given[:_LONGEST_NAME]!r}: every name is printable.")
    is_key = given.startswith(KEY_START)
    if is_key and len(given) < _SHORTEST_PREFIX:
        raise ApiKeyError(f"Give at least the first {_SHORTEST_PREFIX} characters of the key, or its name.")
    with connection.transaction(), connection.cursor(row_factory=class_row(ApiKey)) as cursor:
        values = {"given": given, "hash": hash_of(given.encode())}
        found = cursor.execute(_BY_KEY_OR_PREFIX if is_key else _BY_NAME, values).fetchall()
    # What is longer than a prefix may be a whole key, and is not repeated.
    shown = given if len(given) <= _SHOWN or not is_key else given[:_SHOWN] + "…"
    if not found:
        raise ApiKeyError(f"There is no key {shown!r}. correlator keys list shows all there are.")
    if len(found) > 1:
        names = ", ".join(f"{key.prefix}… ({key.name})" for key in found)
        raise ApiKeyError(f"{shown!r} is the beginning of {len(found)} keys: {names}. Give more of it, or a name.")
    return found[0]


def revoke_key(connection: psycopg.Connection, given: str, *, actor: str) -> ApiKey:
    """End a key for good, by its name or beginning. One that was revoked before stays as it is."""
    with connection.transaction(), connection.cursor(row_factory=class_row(ApiKey)) as cursor:
        key = find_key(connection, given)
        revoked = cursor.execute(_REVOKE, [key.id]).fetchone()
        if revoked is None:
            return key
        connection.execute(_AUDIT, ["revoked", actor, key.id, key.name, ""])
    return revoked


def load_keys(connection: psycopg.Connection) -> list[HashedKey]:
    """Every key, also those that no longer open anything: their holders are told what became of them."""
    with connection.transaction(), connection.cursor(row_factory=class_row(HashedKey)) as cursor:
        return cursor.execute(_LOAD).fetchall()


def touch_keys(connection: psycopg.Connection, last_used: Mapping[int, datetime]) -> None:
    """Note when keys were used last, many at once."""
    with connection.transaction():
        connection.execute(_TOUCH, [list(last_used), list(last_used.values())])


def record_denials(connection: psycopg.Connection, denials: Mapping[int, str], *, actor: str) -> None:
    """Note that somebody came with keys that no longer open anything, and why they do not."""
    with connection.transaction():
        connection.execute(_AUDIT_DENIED, [actor, list(denials), list(denials.values())])


def _check_name(name: str) -> None:
    if not name or len(name) > _LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise ApiKeyError(
            f"A key's name has 1 to {_LONGEST_NAME} printable characters and no space at its ends; "
            f"given: {name[:_LONGEST_NAME]!r}."
        )
    if name.startswith(KEY_START):
        raise ApiKeyError(f"A key's name does not begin with {KEY_START}, as keys themselves do.")


def _until(expires_at: datetime | None) -> str:
    return "never expires" if expires_at is None else f"expires at {expires_at.isoformat()}"

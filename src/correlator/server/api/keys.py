"""Keys of people and programs. A key is shown once, when it is made."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from correlator.key_scopes import Scope
from correlator.server.answers import Moment
from correlator.server.api.operations import Asked, Operation, conflict, invalid, missing, number_in
from correlator.server.api.pages import NextCursor
from correlator.server.api.questions import Connection
from correlator.store.api_keys import ApiKey, ApiKeyError, create_key, list_keys, revoke_key


class KeyBrief(Struct, frozen=True, kw_only=True):
    id: int
    name: str
    prefix: Annotated[str, Meta(description="The beginning of the key, by which people tell keys apart.")]
    scopes: list[Scope]
    created_at: Moment
    created_by: str
    expires_at: Moment | None
    revoked_at: Moment | None
    last_used_at: Moment | None


class Keys(Struct, frozen=True):
    items: list[KeyBrief]
    next_cursor: NextCursor = None


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    expires_at: Moment | None = None


class MadeKey(Struct, frozen=True):
    secret: Annotated[str, Meta(description="The key itself. Nobody can see it again.")]
    key: KeyBrief


def _list(connection: Connection, asked: Asked) -> Keys:
    del asked
    return Keys([_brief(key) for key in list_keys(connection)])


def _create(connection: Connection, asked: Asked) -> MadeKey:
    said: NewKey = asked.body
    try:
        made = create_key(connection, said.name, said.scopes, expires_at=said.expires_at, actor=asked.actor)
    except ApiKeyError as error:
        raise (conflict if "already" in str(error) else invalid)(str(error)) from None
    return MadeKey(made.secret, _brief(made.key))


def _revoke(connection: Connection, asked: Asked) -> KeyBrief:
    number = number_in(asked)
    key = next((key for key in list_keys(connection) if key.id == number), None)
    if key is None:
        raise missing(f"There is no key {number}.")
    return _brief(key if key.revoked_at is not None else revoke_key(connection, key.name, actor=asked.actor))


def _brief(key: ApiKey) -> KeyBrief:
    return KeyBrief(
        id=key.id,
        name=key.name,
        prefix=key.prefix,
        scopes=key.scopes,
        created_at=key.created_at,
        created_by=key.created_by,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        last_used_at=key.last_used_at,
    )


_PATH: Final = "/api/v1/keys"

OPERATIONS: Final = (
    Operation(
        method="GET",
        path=_PATH,
        name="listKeys",
        tag="administration",
        summary="All keys there ever were, the revoked ones last.",
        scope="admin",
        answer=_list,
        answers=Keys,
    ),
    Operation(
        method="POST",
        path=_PATH,
        name="createKey",
        tag="administration",
        summary="Make a key. A server that has had a key takes nobody without one.",
        scope="admin",
        body=NewKey,
        example={"name": "airflow", "scopes": ["ingest"]},
        answer=_create,
        answers=MadeKey,
        status=201,
        mode="write",
        refuses=(409,),
    ),
    Operation(
        method="DELETE",
        path=f"{_PATH}/{{id}}",
        name="revokeKey",
        tag="administration",
        summary="End a key for good. Servers know of it within a few seconds.",
        scope="admin",
        answer=_revoke,
        answers=KeyBrief,
        mode="write",
        refuses=(404,),
    ),
)

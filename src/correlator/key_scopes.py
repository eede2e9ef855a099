"""What a key may be for, and how one is recognised: shared by who keeps keys in a database and who keeps none."""

from hashlib import sha256
from typing import Final, Literal, TypeAlias, get_args

Scope: TypeAlias = Literal["ingest", "read", "act", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

KEY_START: Final = "corr_"


def hash_of(secret: bytes) -> bytes:
    """A key is 256 random bits, which nobody can guess however fast the hash is."""
    return sha256(secret).digest()

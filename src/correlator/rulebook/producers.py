"""Who has sent an event: the `producer` of an event is a URI that nearly always holds a version."""

import re
from typing import Final, NamedTuple

_VERSION: Final = re.compile(r"v?\d+(?:[.-]\d+)+(?:[.+-]?[A-Za-z0-9]+)*")
_BEFORE_VERSIONS: Final = ("tree", "blob", "releases", "tag")
"""How GitHub leads from a repository to a version of it."""


class ProducerName(NamedTuple):
    name: str
    version: str | None


def producer_name(producer: str) -> ProducerName:
    """The URI without its version, and the version: `https://host/tool/tree/1.2.0/part` is `https://host/tool/part`."""
    scheme, separator, rest = producer.rpartition("://")
    host, *parts = rest.split("/")
    for place, part in enumerate(parts):
        if _VERSION.fullmatch(part):
            before = parts[:place]
            while before and before[-1] in _BEFORE_VERSIONS:
                before.pop()
            # Airflow's providers have their name between: `tree/providers-openlineage/2.20.3`.
            before = [one for one in before if one not in _BEFORE_VERSIONS]
            name = "/".join([host, *before, *parts[place + 1 :]]).rstrip("/")
            return ProducerName(f"{scheme}{separator}{name}", part.removeprefix("v"))
    return ProducerName(producer, None)

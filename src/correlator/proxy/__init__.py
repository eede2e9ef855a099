"""The proxy: events are taken at once, kept on local disk, and forwarded in order, however long a backend is away."""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

_CLIENT: Final = "openlineage.client"


def _import_the_rulebook_alone() -> None:
    """Import the rulebook, but not all that stands around the classes which it takes from openlineage-python.

    The front door of that package imports its transports, two HTTP clients among them: 12 MB of memory and a quarter of
    the time to start, of no use to a proxy. So the rulebook is imported through a door that opens to nothing else, and
    is gone afterwards: whoever wants the client gets it whole.
    """
    found = find_spec(_CLIENT) if _CLIENT not in sys.modules else None
    if found is None or found.submodule_search_locations is None:
        return
    door = ModuleType(_CLIENT)
    door.__path__ = list(found.submodule_search_locations)
    sys.modules[_CLIENT] = door
    try:
        import_module("correlator.rulebook.judging")
    finally:
        if sys.modules.get(_CLIENT) is door:
            del sys.modules[_CLIENT]


_import_the_rulebook_alone()

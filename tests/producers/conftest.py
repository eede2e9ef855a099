"""One Correlator for all tests here of a process, and a warehouse for each of them."""

import os
from collections.abc import Iterator

import pytest

from tests.producers.correlators import Correlator, correlator_up
from tests.producers.pages import NOT_COUNTED
from tests.producers.warehouse import Warehouse, warehouse

# Before anything imports Great Expectations, which would ask only then.
os.environ.update(NOT_COUNTED)


# Not for the whole session: even idle it would take its share from all other tests.
@pytest.fixture(scope="package")
def correlator() -> Iterator[Correlator]:
    with correlator_up() as running:
        yield running


@pytest.fixture
def shop() -> Iterator[Warehouse]:
    """On a port of its own, so that its tables are nobody else's."""
    with warehouse() as running:
        yield running

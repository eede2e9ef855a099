"""One Correlator and one warehouse for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.producers.correlators import Correlator, correlator_up
from tests.producers.warehouse import Warehouse, warehouse


@pytest.fixture(scope="session")
def correlator() -> Iterator[Correlator]:
    with correlator_up() as running:
        yield running


@pytest.fixture(scope="session")
def shop() -> Iterator[Warehouse]:
    with warehouse() as running:
        yield running

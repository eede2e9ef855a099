"""The order of the tests: what takes longest begins first, so that at the end both workers have something to do."""

import pytest

_LONG = (
    "tests/integration/pipeline/",
    "tests/integration/cli/",
    "tests/web/",
    "tests/producers/",
    "tests/integration/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((n for n, path in enumerate(_LONG) if item.nodeid.startswith(path)), len(_LONG)))

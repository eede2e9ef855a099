"""`correlator up --demo`: from nothing to something to look at."""

import re

import pytest

from tests.integration.cli.processes import running
from tests.integration.conftest import reachable_directory
from tests.integration.server.running import kill_postgres, wait_until


@pytest.mark.producers
def test_the_demo_is_played_as_soon_as_there_is_somebody_to_read_it_and_ends_with_the_rest() -> None:
    with (
        reachable_directory() as data_dir,
        running(data_dir, "up", "--demo", "--port", "0", "--data-dir", str(data_dir)) as up,
    ):
        try:
            up.wait_for_words("the morning's runs begin")
            lines = up.log.splitlines()
            works = next(number for number, line in enumerate(lines) if "the pipeline works on log" in line)
            shop = next(number for number, line in enumerate(lines) if line.startswith("A shop with"))
            assert works < shop
            assert re.search(r"21 days: [\d,]+ events are sent", up.log)

            assert up.stop() == 0, up.log
            assert up.log.splitlines()[-1].startswith("Correlator has stopped.")
            wait_until(lambda: up.others() == [], "no process is left")
        finally:
            kill_postgres(data_dir)

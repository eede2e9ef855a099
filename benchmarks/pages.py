"""How long an incident's page takes until one can read its cause and act on it, in a real browser.

    python -m benchmarks.pages

The embedded database with the demo's data, one server, Chromium without a cache: every visit loads everything. The time
is from the navigation to the moment at which the cause and the button to acknowledge are there.
"""

import argparse
import http.client
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.figures import at_most, figure
from benchmarks.truth import load
from correlator.demo.company import play_shop
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from correlator.store.migrations import migrate

TARGET_SECONDS = 1.0
_LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")


@contextmanager
def shop_server() -> Iterator[tuple[int, str]]:
    """The port of a server with the demo's data, and the id of its first incident."""
    with tempfile.TemporaryDirectory(prefix="correlator-pages-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        with EmbeddedPostgres.open(directory / "postgres") as postgres:
            database = Database(postgres.url)
            migrate(database)
            shop = play_shop(1, datetime.now(UTC))
            verdicts = [judge(sent.raw) for sent in (*shop.history, *shop.incident)]
            with database.connect("pages", autocommit=True) as connection:
                load(connection, [event for event in verdicts if not isinstance(event, Rejection)], 3)
                connection.execute("ANALYZE")
                row = connection.execute(
                    "SELECT id FROM incidents WHERE root_id IS NULL ORDER BY opened_at, id LIMIT 1"
                ).fetchone()
                assert row is not None
            command = [sys.executable, "-m", "correlator.cli.main", "serve", "--port", "0", "--data-dir", name]
            with subprocess.Popen(  # noqa: S603 (our own command)
                [*command, "--database-url", database.url], stderr=subprocess.PIPE, text=True, env=os.environ
            ) as process:
                assert process.stderr is not None
                found = next(filter(None, (_LISTENING.search(line) for line in process.stderr)))
                try:
                    yield int(found[1]), str(row[0])
                finally:
                    process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=15)
    visits: int = parser.parse_args().visits
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("There is no Chromium here; on Debian: apt-get install chromium")
    with shop_server() as (port, incident), sync_playwright() as playwright:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/ready")
        connection.getresponse().read()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        seconds = []
        for _ in range(visits + 1):
            with browser.new_context(base_url=f"http://127.0.0.1:{port}") as context:
                page = context.new_page()
                page.goto(f"/incidents/{incident}", wait_until="commit")
                page.get_by_role("button", name="Acknowledge").wait_for()
                page.get_by_role("heading", name=re.compile("Why ")).wait_for()
                seconds.append(page.evaluate("performance.now()") / 1000)
        browser.close()
    # The first visit finds a server that has not answered anything yet.
    first, *others = seconds
    print(f"an incident's page, from navigation to its cause: median {statistics.median(others):.2f} s, "
          f"slowest of {visits} {max(others):.2f} s, the very first {first:.2f} s")  # fmt: skip
    print(f"target: {TARGET_SECONDS:.0f} s: {'met' if statistics.median(others) < TARGET_SECONDS else 'MISSED'}")
    figure("an incident's page, to its cause, median", statistics.median(others), "s", at_most(TARGET_SECONDS))
    figure("the very first visit", first, "s")


if __name__ == "__main__":
    main()

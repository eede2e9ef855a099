"""A real browser on a real server with real data, made once for all tests here."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from correlator.server.user_interface import UserInterface
from correlator.store.database import Database
from tests.integration.conftest import (
    Postgres,
    database_url,
    migrated_template,
    new_database,
    postgres,
    reachable_directory,
)
from tests.integration.server.running import Server, running
from tests.web.world import play

__all__ = ["migrated_template", "postgres"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
HARMLESS = tuple(f"Failed to load resource: the server responded with a status of {status}" for status in (401, 404))
"""What a browser says by itself of a request that a test means to be refused."""


@pytest.fixture(scope="session")
def server(postgres: Postgres, migrated_template: str) -> Iterator[Server]:
    if not UserInterface().is_built:
        pytest.fail("The pages are not built: run `make web`.")
    with (
        new_database(postgres, migrated_template) as name,
        reachable_directory() as directory,
        running(directory, database=Database(database_url(postgres, name))) as server,
    ):
        play(server, database_url(postgres, name))
        yield server


PATIENCE_MS = 60_000
"""For what takes one: nothing is measured with it, and the machine may be busy."""
expect.set_options(timeout=PATIENCE_MS)


# Not for the whole session: while it is open, Playwright's event loop runs in this thread, and nobody can have another.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("There is no Chromium here; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser, server: Server) -> Iterator[BrowserContext]:
    context = browser.new_context(base_url=server.url, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """One that must not complain: an error in its console is a failure of the test."""
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    assert [said for said in complaints if not said.startswith(HARMLESS)] == []

"""The pictures of docs/images, made from the demo's data: `make screenshots`."""

import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page, expect, sync_playwright

from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from correlator.store.migrations import migrate
from tests.integration.server.running import running
from tests.web.conftest import CHROMIUM, PATIENCE_MS
from tests.web.world import play

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
SALES: Final = "dataset:postgres://warehouse.shop.example:5432/shop.marts.mart_sales"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="correlator-pictures-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        with EmbeddedPostgres.open(directory / "postgres") as postgres:
            database = Database(postgres.url)
            migrate(database)
            with running(directory, database=database) as server, sync_playwright() as playwright:
                play(server, database.url)
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                expect.set_options(timeout=PATIENCE_MS)
                shown: dict[str, Any] = {"base_url": server.url, "viewport": {"width": 1440, "height": 900}}
                with browser.new_context(**shown, color_scheme="dark") as dark:
                    _list(dark.new_page(), "incidents-dark.png")
                with browser.new_context(**shown, color_scheme="light") as light:
                    page = light.new_page()
                    _list(page, "incidents.png")
                    _incident(page)
                    _health(page)
                    _lineage(page)
                browser.close()


def _taken(page: Page, name: str, *, is_whole: bool = False) -> None:
    page.wait_for_load_state("networkidle")
    page.screenshot(path=IMAGES / name, full_page=is_whole, animations="disabled")
    print(f"docs/images/{name}")  # noqa: T201 (what it is for)


def _list(page: Page, name: str) -> None:
    page.goto("/incidents")
    expect(page.get_by_text("6,997 rows written").first).to_be_visible()
    _taken(page, name)


def _incident(page: Page) -> None:
    page.goto("/incidents?q=mart_sales")
    page.get_by_role("list", name="Incidents").get_by_role("link").first.click()
    expect(page.get_by_role("region", name="Code before and after")).to_be_visible()
    _taken(page, "incident.png")


def _lineage(page: Page) -> None:
    # What it shows at first is wide and low.
    page.set_viewport_size({"width": 1440, "height": 680})
    page.goto(f"/lineage?node={SALES}")
    expect(page.locator(".react-flow__node").first).to_be_visible()
    _taken(page, "lineage.png")


def _health(page: Page) -> None:
    page.goto("/status")
    expect(page.get_by_role("button", name="Accept").first).to_be_visible()
    _taken(page, "health.png")


if __name__ == "__main__":
    main()

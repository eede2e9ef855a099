"""What a person does on the pages, in a real browser."""

import re

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from correlator.store.api_keys import create_key
from correlator.store.database import Database
from tests.integration.conftest import Postgres, database_url, new_database, reachable_directory
from tests.integration.server.running import running, wait_until
from tests.web.conftest import AXE
from tests.web.world import STORE

ORDERS = "dataset:postgres://warehouse.shop.example:5432/shop.marts.mart_sales"
REPORT = f"dataset:{STORE}/reports.weekly"


def rows(page: Page) -> Locator:
    return page.get_by_role("list", name="Incidents").get_by_role("article")


def links(page: Page) -> list[str]:
    found: list[str] = page.locator(".incident .name").evaluate_all("links => links.map(link => link.href)")
    return found


def test_two_clicks_lead_from_the_list_to_the_run_that_broke_it(page: Page) -> None:
    page.goto("/")
    row = rows(page).filter(has_text="shop.marts.mart_sales")
    expect(row).to_contain_text("root cause")
    expect(row).to_contain_text("stg_orders")
    row.get_by_role("link").first.click()  # one

    story = page.get_by_role("region", name="What happened")
    expect(story).to_contain_text("Root cause")
    expect(story).to_contain_text("Passed it on")
    expect(page.get_by_role("region", name="Code before and after")).to_contain_text("a.country = 'DE'")
    story.get_by_role("link", name="stg_orders", exact=True).first.click()  # two
    expect(page.get_by_role("heading", level=1)).to_contain_text("stg_orders")


def test_evidence_is_shown_before_and_after(page: Page) -> None:
    page.goto("/incidents?q=clean.customers")
    rows(page).first.get_by_role("link").first.click()
    schema = page.get_by_role("region", name="Schema before and after")
    expect(schema.locator(".removed")).to_contain_text("customer_id")
    expect(schema.locator(".added")).to_contain_text("customer_ref")
    expect(page.get_by_text("Rows as usual: 81,204")).to_be_visible()
    expect(page.get_by_role("link", name="loaders/customers.py ↗")).to_have_attribute(
        "href", "https://git.example/store/loaders/blob/a41f9c2b7e10/loaders/customers.py"
    )
    hurt = page.locator("section", has=page.get_by_role("heading", name="Who is hurt"))
    expect(hurt).to_contain_text("marts.customer_value")


def test_a_run_that_failed_says_so_with_its_engine(page: Page) -> None:
    page.goto("/incidents?kind=run")
    rows(page).first.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("forecast_demand failed")
    expect(page.get_by_text("3.5.4").first).to_be_visible()
    expect(page.get_by_text("OutOfMemoryError").first).to_be_visible()


def test_filters_are_kept_in_the_address(page: Page) -> None:
    page.goto("/incidents")
    expect(rows(page)).to_have_count(50)
    page.get_by_role("combobox", name="any severity").select_option("warn")
    expect(page).to_have_url(re.compile("severity=warn"))
    page.get_by_role("searchbox", name="Search incidents").fill("crate_0")
    expect(page).to_have_url(re.compile("q=crate_0"))
    expect(rows(page)).to_have_count(4)  # 00, 03, 06, 09
    page.reload()
    expect(rows(page)).to_have_count(4)
    expect(page.get_by_role("searchbox", name="Search incidents")).to_have_value("crate_0")


def test_pages_follow_each_other_and_lead_back(page: Page) -> None:
    page.goto("/incidents?sort=opened_at")
    expect(rows(page)).to_have_count(50)
    first = links(page)
    page.get_by_role("button", name="Next").click()
    expect(page).to_have_url(re.compile("cursor="))
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    second = links(page)
    assert second
    assert set(first).isdisjoint(second)
    page.get_by_role("button", name="Previous").click()
    expect(rows(page)).to_have_count(50)
    assert links(page) == first


def test_the_keyboard_walks_chooses_acts_and_undoes(page: Page) -> None:
    page.goto("/incidents?q=crate_1&sort=opened_at")
    expect(rows(page)).to_have_count(10)
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_role("toolbar")).to_contain_text("2 chosen")
    page.keyboard.press("a")
    expect(page.get_by_text("Acknowledged 2 incidents.").first).to_be_visible()
    # They stay where they are, and say what they are now.
    expect(rows(page)).to_have_count(10)
    expect(rows(page).nth(0)).to_contain_text("acknowledged")
    page.get_by_role("button", name="Undo").click()
    expect(rows(page).nth(0)).not_to_contain_text("acknowledged")
    page.goto("/incidents?q=crate_1&status=acknowledged")
    expect(page.get_by_text("No incident fits these filters.")).to_be_visible()
    page.keyboard.press("/")
    page.get_by_role("combobox", name=re.compile("Search datasets")).fill("crate 17")
    page.get_by_role("listbox", name="What was found").get_by_role("option").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("crate_17")


def test_an_incident_is_muted_assigned_commented_resolved_and_reopened_in_place(page: Page) -> None:
    page.goto("/incidents?q=crate_22")
    rows(page).first.get_by_role("link").first.click()
    page.get_by_role("button", name="Assign").click()
    page.get_by_role("textbox", name="name").fill("ann")
    page.get_by_role("textbox", name="name").press("Enter")
    expect(page.get_by_text("assigned to ann", exact=True)).to_be_visible()
    page.get_by_role("textbox", name="Comment").fill("the scale is broken")
    page.get_by_role("textbox", name="Comment").press("Enter")
    expect(page.get_by_role("note")).to_contain_text("the scale is broken")
    page.get_by_role("button", name="Mute").click()
    page.get_by_role("button", name="1 week").click()
    expect(page.get_by_text("muted until")).to_be_visible()
    page.get_by_role("button", name="Unmute").click()
    expect(page.get_by_text("muted until")).to_be_hidden()
    page.get_by_role("button", name="Resolve").click()
    page.get_by_role("textbox", name="note").fill("new scale")
    page.get_by_role("button", name="Fixed").click()
    expect(page.get_by_role("button", name="Reopen")).to_be_visible()
    page.get_by_role("button", name="Undo").last.click()
    expect(page.get_by_role("button", name="Acknowledge")).to_be_visible()


def test_consequences_are_folded_beneath_their_root(page: Page) -> None:
    page.goto("/incidents")
    row = rows(page).filter(has_text="shop.marts.mart_sales")
    # How many there are depends on the day that the demo is played on.
    row.get_by_text(re.compile(r"\d more failures? with this root")).click()
    expect(row).to_contain_text("dash_revenue")


def test_time_slides_and_two_instants_are_compared(page: Page) -> None:
    page.goto(f"/lineage?node={REPORT}")
    expect(page.locator(".react-flow__node").filter(has_text="weekly_report")).to_be_visible()
    expect(page.locator(".react-flow__node").filter(has_text="exchange_rates")).to_have_count(0)
    thumb = page.get_by_role("slider", name="As of")
    thumb.focus()
    for _ in range(5):
        page.keyboard.press("PageDown")
    expect(page).to_have_url(re.compile("as_of="))
    expect(page.locator(".react-flow__node").filter(has_text="exchange_rates")).to_be_visible()

    page.get_by_role("button", name="Now", exact=True).click()
    page.get_by_role("button", name="Compare", exact=True).click()
    gone = page.locator(".react-flow__node .node.removed")
    expect(gone).to_contain_text("exchange_rates")
    expect(page).to_have_url(re.compile("from="))
    page.reload()
    expect(gone).to_contain_text("exchange_rates")
    page.get_by_text("The same as a list").click()
    expect(page.get_by_role("row").filter(has_text="exchange_rates")).to_contain_text("gone since")


def test_lineage_goes_from_column_to_column(page: Page) -> None:
    page.goto("/lineage")
    page.get_by_role("searchbox", name="Show the lineage of").fill("mart_sales")
    page.get_by_role("list", name="What was found").get_by_role("button", name=re.compile("mart_sales")).first.click()
    page.get_by_role("button", name="columns").click()
    expect(page.locator(".react-flow__node").filter(has_text="stg_orders")).to_contain_text("amount")


def test_a_suggestion_is_accepted_with_one_click(page: Page) -> None:
    page.goto("/status")
    orphans = page.locator("#orphans")
    expect(orphans).to_contain_text("stock-checks/stock_levels")
    orphans.get_by_role("button", name="Accept").click()
    expect(page.get_by_text("It stands under Settings").first).to_be_visible()
    expect(orphans).not_to_contain_text("stock-checks/stock_levels")
    page.goto("/settings?part=patterns")
    expect(page.get_by_role("row").filter(has_text="stock-checks/{table}")).to_be_visible()


def test_health_tells_that_nothing_was_lost_and_why_something_was_refused(page: Page) -> None:
    page.goto("/status")
    expect(page.get_by_role("row").filter(has_text="http").first).to_contain_text("0")
    page.get_by_role("button", name="Look at each, and drive in again").click()
    page.locator("summary").filter(has_text="eventTime is required").click()
    page.get_by_role("button", name="Judge it again").click()
    expect(page.get_by_text("still refused").first).to_be_visible()


def test_a_route_of_alerts_is_added_tried_paused_and_removed(page: Page) -> None:
    page.goto("/settings?part=routes")
    page.get_by_label("Name", exact=True).fill("the rest")
    page.get_by_label("Kind").select_option("webhook")
    page.get_by_label("Address").fill("http://127.0.0.1:9/hook")
    page.get_by_label("only what is for no other route").check()
    page.get_by_label("tell when it is over, too").uncheck()
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("It is shown now and never again")).to_be_visible()
    route = page.get_by_role("row").filter(has_text="the rest")
    expect(route).to_contain_text("default")
    route.get_by_role("button", name="Test").click()
    expect(page.get_by_text("the rest did not take it").first).to_contain_text("private address")
    route.get_by_role("button", name="Pause").click()
    expect(route).to_contain_text("paused")
    route.get_by_role("button", name="Remove").click()
    route.get_by_role("button", name="Remove it for good").click()
    expect(page.get_by_text("nobody is told of anything")).to_be_visible()


def test_who_needs_a_key_signs_in_and_out(browser: Browser, postgres: Postgres, migrated_template: str) -> None:
    with (
        new_database(postgres, migrated_template) as name,
        reachable_directory() as directory,
        running(directory, database=Database(database_url(postgres, name))) as server,
    ):
        with server.database.connect("test", autocommit=True) as connection:
            secret = create_key(connection, "ann", ["read", "act"], actor="test").secret
        wait_until(lambda: server.get("/api/v1/incidents").status == 401, "the server wants a key")
        page = browser.new_page(base_url=server.url)
        page.goto("/jobs?q=orders")
        expect(page).to_have_url(re.compile("/sign-in"))
        page.get_by_label("Key").fill("corr_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("does not know the key")
        page.get_by_label("Key").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(re.compile(r"/jobs\?q=orders"))
        assert secret not in page.evaluate("document.cookie + JSON.stringify(localStorage)")
        page.goto("/settings")
        expect(page.get_by_text("This takes a key with the scope admin")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page).to_have_url(re.compile("/sign-in"))
        assert page.context.cookies() == []
        page.close()


def test_an_empty_server_teaches_what_to_send(browser: Browser, postgres: Postgres, migrated_template: str) -> None:
    with (
        new_database(postgres, migrated_template) as name,
        reachable_directory() as directory,
        running(directory, database=Database(database_url(postgres, name))) as server,
    ):
        page = browser.new_page(base_url=server.url)
        page.goto("/")
        page.get_by_role("tab", name="dbt").click()
        expect(page.get_by_text(f"OPENLINEAGE_URL={server.url}")).to_be_visible()
        page.close()


PATHS = {
    "incidents": "/incidents",
    "incident": "/incidents?q=mart_sales",
    "lineage": f"/lineage?node={ORDERS}",
    "jobs": "/jobs",
    "job": "/jobs/dbt-prod/model.shop.stg_orders",
    "datasets": "/datasets",
    "dataset": "/datasets/postgres%3A%2F%2Fwarehouse.shop.example%3A5432%2Fshop.staging.stg_orders",
    "health": "/status",
    "settings": "/settings",
    "sign in": "/sign-in",
    "nothing": "/no-such-page",
}


def opened(page: Page, name: str) -> None:
    page.goto(PATHS[name])
    if name == "incident":
        rows(page).first.get_by_role("link").first.click()
        expect(page.get_by_role("region", name="What happened")).to_be_visible()
    page.wait_for_load_state("networkidle")


def serious_faults(page: Page) -> list[tuple[str, list[str]]]:
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        (fault["id"], [node["html"][:200] for node in fault["nodes"][:3]])
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("name", PATHS)
def test_a_page_is_for_everyone_in_light_and_dark_and_on_a_phone(page: Page, name: str) -> None:
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    opened(page, name)
    # Through the debugger: the pages' own policy lets no such script in.
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert serious_faults(page) == []
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert serious_faults(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert serious_faults(page) == []

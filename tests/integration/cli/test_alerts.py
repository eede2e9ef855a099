"""`correlator alerts` as a person types it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from correlator.cli.main import main
from correlator.store.database import Database
from tests.integration.alerts import receivers
from tests.integration.alerts.receivers import Receiver, Reply
from tests.integration.alerts.shop import decide, open_shop, raw_fails


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receivers.receiver() as made:
        yield made


def run(database: Database, *arguments: str, **environment: str) -> Result:
    usual = {"CORRELATOR_DATABASE_URL": database.url, "COLUMNS": "200"}
    return CliRunner().invoke(main, ["alerts", *arguments], env=usual | environment)


def told(result: Result) -> Any:
    return json.loads(result.stdout)


def test_routes_are_added_listed_and_removed_and_a_secret_is_shown_once(database: Database) -> None:
    assert "nobody is told" in run(database, "routes", "list").stdout
    made = run(database, "routes", "add", "team", "--kind", "webhook", "--url", "https://x.example/y", "--owner", "a*")
    assert made.exit_code == 0
    assert "is for owner a*" in made.stdout
    secret = made.stdout.split("never again:")[1].strip()
    assert len(secret) > 30

    pager = run(
        database,
        "routes",
        "add",
        "pager",
        "--kind",
        "pagerduty",
        "--default",
        "--json",
        CORRELATOR_ALERT_SECRET="r-key",  # noqa: S106 (none)
    )
    assert told(pager)["url"] == "https://events.pagerduty.com/…"
    listed = run(database, "routes", "list")
    assert "team  webhook https://x.example/…, for owner a*" in listed.stdout
    assert "pager  pagerduty https://events.pagerduty.com/…, for everything, where no other route is" in listed.stdout
    for shown in (listed, run(database, "routes", "list", "--json"), pager):
        assert secret not in shown.output
        assert "r-key" not in shown.output

    assert run(database, "routes", "remove", "team").exit_code == 0
    assert [one["name"] for one in told(run(database, "routes", "list", "--json"))["items"]] == ["pager"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("add", "a", "--kind", "slack"), 2, "--url is missing"),
        (("add", "a", "--kind", "slack", "--url", "ftp://x"), 2, "url:"),
        (("add", "a", "--kind", "pagerduty"), 1, "routing key"),
        (("add", "taken", "--kind", "slack", "--url", "https://x.example"), 1, "already a route named 'taken'"),
        (("remove", "nobody"), 1, "no route named 'nobody'"),
    ],
)
def test_what_makes_no_route_is_told(database: Database, arguments: tuple[str, ...], code: int, words: str) -> None:
    assert run(database, "routes", "add", "taken", "--kind", "slack", "--url", "https://y.example").exit_code == 0

    result = run(database, "routes", *arguments)

    assert result.exit_code == code
    assert words in result.stderr


def test_an_address_that_alerts_never_go_to_is_told_when_it_is_added(database: Database) -> None:
    def added(name: str, url: str, *more: str) -> str:
        result = run(database, "routes", "add", name, "--kind", "slack", "--url", url, *more)
        assert result.exit_code == 0
        return result.stderr

    assert "nothing will reach it. localhost is 127.0.0.1: a private address" in added("one", "http://localhost:9/x")
    assert "nothing will reach it. 169.254.1.1" in added("two", "http://169.254.1.1/x", "--alerts-allow-private")
    assert added("three", "http://10.0.0.1/x", "--alerts-allow-private") == ""
    assert added("four", "https://hooks.example/x") == ""


def test_a_test_says_what_the_receiver_answers(database: Database, receiver: Receiver) -> None:
    for kind in ("webhook", "slack", "pagerduty"):
        run(database, "routes", "add", kind, "--kind", kind, "--url", receiver.url, "--secret", "hush")
    receiver.replies = [Reply(200), Reply(403, body=b"invalid_token")]

    allowed = run(database, "test", "slack", "--alerts-allow-private")
    refused = run(database, "test", "slack", "--alerts-allow-private")
    private = run(database, "test", "slack")
    missing = run(database, "test", "nobody")
    everybody = run(database, "test", "--json", "--alerts-allow-private")

    assert (allowed.exit_code, "slack (http://127.0.0.1" in allowed.stdout) == (0, True)
    assert "took it: 200 OK: ok" in allowed.stdout
    assert (refused.exit_code, "did not take it: 403 Forbidden: invalid_token" in refused.stdout) == (1, True)
    assert (private.exit_code, "alerts_allow_private" in private.stdout) == (1, True)
    assert (missing.exit_code, "no route named 'nobody'" in missing.stderr) == (1, True)
    assert [one["is_taken"] for one in told(everybody)["items"]] == [True, True, True]
    said = [one.json() for one in receiver.received]
    assert "A test of Correlator's alerts" in said[0]["text"]
    assert {one.get("event_action") for one in said} == {None, "trigger", "resolve"}
    assert all(one["routing_key"] == "hush" for one in said if "event_action" in one)
    assert "test" in {one.get("event") for one in said}


def test_what_was_told_is_listed_and_what_failed_is_sent_again(database: Database) -> None:
    assert "Nobody was told of anything." in run(database, "list").stdout
    run(database, "routes", "add", "team", "--kind", "slack", "--url", "https://x.example/hush")
    with database.connect("test", autocommit=True) as connection:
        open_shop(connection)
        raw_fails(connection)
        decide(connection)
        connection.execute("UPDATE kept.alert_outbox SET given_up_at = now(), attempts = 7, last_error = '410 Gone'")

    listed = run(database, "list").stdout
    assert "opened on team\n  not_null of column id failed on raw\n  7 attempts: 410 Gone" in listed
    (item,) = told(run(database, "list", "--state", "failed", "--json"))["items"]
    assert (item["state"], item["attempts"], item["route"]) == ("failed", 7, "team")
    assert "No alert is sent." in run(database, "list", "--state", "sent").stdout

    wrong = run(database, "retry", "999")
    assert (wrong.exit_code, "no alerts that failed" in wrong.stderr) == (1, True)
    assert run(database, "retry", str(item["id"])).stdout.startswith("1 to be sent again")
    assert [one["state"] for one in told(run(database, "list", "--json"))["items"]] == ["pending"]
    assert told(run(database, "retry", "--json")) == {"retried": 0}

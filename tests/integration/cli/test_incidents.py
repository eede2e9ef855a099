"""`correlator incidents` and `correlator explain` as a person types them."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner, Result

from correlator.cli.main import main
from correlator.store.database import Database
from tests.integration.correlation.stories import checked, ran, run_id, sized, tell, urn


@pytest.fixture
def shop(database: Database) -> Database:
    with database.connect("test", autocommit=True) as connection:
        tell(
            connection,
            *(ran("load", f"load {n}", n, n + 0.5, writes=[sized("raw", 1000 + n)]) for n in range(6)),
            ran("stage", "stage 1", 6, 7, reads=["raw"], writes=["staged"]),
            checked("staged", "good", 8, good=True, test="row_count", column=""),
            ran("load", "load bad", 10, 11, writes=[sized("raw", 3)]),
            ran("stage", "stage bad", 12, 13, reads=["raw"], writes=["staged"]),
            ran("mart", "mart bad", 14, 15, reads=["staged"], writes=["mart"]),
            checked("staged", "bad", 16, good=False, test="row_count", column=""),
        )
    return database


def run(database: Database, *arguments: str) -> Result:
    environment = {"CORRELATOR_DATABASE_URL": database.url, "COLUMNS": "200"}
    return CliRunner().invoke(main, [*arguments], env=environment)


def listed(database: Database) -> Any:
    return json.loads(run(database, "incidents", "--json").stdout)


def test_incidents_lists_what_is_open_with_its_cause(shop: Database) -> None:
    result = run(shop, "incidents")

    assert result.exit_code == 0
    assert listed(shop)["items"][0]["id"] in result.stdout
    assert "row_count on staged" in result.stdout
    assert "3 rows written" in result.stdout


def test_incidents_has_consequences_under_their_root_and_lines_that_are_not_cut(shop: Database) -> None:
    with shop.connect("test", autocommit=True) as connection:
        tell(connection, checked("mart", "mart red", 17, good=False, test="row_count", column=""))

    narrow = CliRunner().invoke(main, ["incidents"], env={"CORRELATOR_DATABASE_URL": shop.url, "COLUMNS": "40"})

    assert len(listed(shop)["items"]) == 1
    assert "  row_count on staged, and 1 more by it\n" in narrow.stdout
    assert "row_count on mart" not in narrow.stdout
    assert "  row_count on mart\n" in run(shop, "incidents", "--each").stdout


def test_incidents_in_json_are_those_of_the_api(shop: Database) -> None:
    found = listed(shop)

    assert found.keys() == {"facts_as_of", "items", "is_more"}
    (item,) = found["items"]
    assert (item["kind"], item["status"], item["dataset"]["urn"]) == ("test", "open", urn("staged"))


@pytest.mark.parametrize("arguments", [("--status", "resolved"), ("--owner", "nobody"), ("--text", "no such words")])
def test_incidents_says_when_there_is_none(shop: Database, arguments: tuple[str, ...]) -> None:
    result = run(shop, "incidents", *arguments)

    assert (result.exit_code, result.stdout) == (0, "No incident like that.\n")


def test_incidents_says_when_all_is_well(database: Database) -> None:
    assert run(database, "incidents").stdout == "Nothing is open.\n"


def test_explain_tells_cause_evidence_impact_and_way(shop: Database) -> None:
    incident = listed(shop)["items"][0]["id"]

    result = run(shop, "explain", incident)

    assert result.exit_code == 0
    assert "row_count failed on staged: load: 3 rows written" in result.stdout
    assert run_id("load bad") in result.stdout
    cause = next(line for line in result.stdout.splitlines() if "◀ cause" in line)
    assert urn("raw") in cause
    assert f"affected  {urn('mart')}" in result.stdout
    assert "\x1b" not in result.stdout


def test_explain_in_json_is_the_whole_answer_by_any_failure(shop: Database) -> None:
    with shop.connect("test", autocommit=True) as connection:
        tell(connection, checked("staged", "bad again", 18, good=False, test="row_count", column=""))
        rows = connection.execute("SELECT id, incident_id FROM failures ORDER BY at DESC").fetchall()
    failure, incident = rows[0]
    assert failure != incident

    found = json.loads(run(shop, "explain", str(failure), "--json").stdout)

    assert UUID(found["id"]) == incident
    assert found["candidates"][0]["run_id"] == run_id("load bad")
    assert found["candidates"][0]["distance"] == 1


def test_explain_says_when_there_is_no_such_incident(shop: Database) -> None:
    missing = uuid4()

    result = run(shop, "explain", str(missing))

    assert result.exit_code == 1
    assert f"There is no incident {missing}" in result.stderr


def test_explain_says_where_the_ids_are_to_who_gives_something_else(shop: Database) -> None:
    result = run(shop, "explain", "INC-1")

    assert result.exit_code == 2
    assert "'INC-1' is not the id of an incident; `correlator incidents` lists them." in result.stderr

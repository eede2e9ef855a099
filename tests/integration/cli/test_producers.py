"""`correlator producers` as a person types it."""

import json

from click.testing import CliRunner, Result

from correlator.cli.main import main
from correlator.rulebook.fold import fold
from correlator.rulebook.problems import Problem
from correlator.store.database import Database
from correlator.store.rejects import Reject, keep_rejects
from correlator.store.staging import prepare
from tests.integration.correlation.test_producers import DBT, ran
from tests.integration.store.merging import SOURCE, apply


def run(database: Database, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["producers", *arguments], env={"CORRELATOR_DATABASE_URL": database.url})


def test_nobody_is_told_when_nobody_has_sent(database: Database) -> None:
    assert run(database).stdout == "Nobody has sent anything yet.\n"


def test_each_producer_has_a_line_and_one_for_each_complaint(database: Database) -> None:
    with database.connect("test", autocommit=True) as connection:
        prepare(connection, SOURCE)
        apply(connection, fold([*ran("a", "COMPLETE"), *ran("b", "START")]))
        nameless = Problem("job.name", "required", "job.name is required")
        keep_rejects(connection, "http", [Reject(raw=b"{}", layer=1, problems=(nameless,), producer=DBT)])

    result = run(database)

    assert result.exit_code == 0
    first, *complaints, last = result.stdout.splitlines()
    assert first.startswith("https://github.com/OpenLineage/OpenLineage/integration/dbt 1.54.0  2 jobs, ")
    assert complaints == [
        "    1 event rejected [required]: job.name is required",
        "    1 jobs whose last run has no START",
        "    1 jobs with a run that never ended",
    ]
    assert last.startswith("Looked at the 2 jobs heard of last")


def test_json_is_what_http_answers(database: Database) -> None:
    with database.connect("test", autocommit=True) as connection:
        prepare(connection, SOURCE)
        apply(connection, fold(ran("a", "START", "COMPLETE")))

    answer = json.loads(run(database, "--json").stdout)

    assert answer.keys() == {"facts_as_of", "looked_at", "items"}
    assert (answer["items"][0]["version"], answer["items"][0]["jobs"]) == ("1.54.0", 1)

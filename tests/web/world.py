"""What the pages show in tests and screenshots: the demo's shop, and beside it what the shop does not have.

Sixty crates whose tests fail (for paging), a schema that lost a column, an engine that was exchanged, an input that was
taken away (for comparing), a test with a name of its own for its table (for suggestions), and an event that is none.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from tests.integration.cli.command import correlator
from tests.integration.pipeline.pipelines import QUICKLY
from tests.integration.server.running import Server
from tests.unit.rulebook.histories import SCHEMA, Json, facet

STORE = "postgres://store.example:5432"
LAKE = "s3://lake"
CRATES = 60
_NAMES = UUID(int=9)


def play(server: Server, database_url: str) -> None:
    """All of it, through the ordinary doors, and then one run of the pipeline."""
    shop = correlator("demo", "--url", server.url, "--fast")
    assert shop.returncode == 0, shop.stderr
    now = datetime.now(UTC)
    batch = json.dumps(list(events(now))).encode()
    taken = server.post("/api/v1/lineage/batch", batch, content_type="application/json").json()
    assert taken["summary"]["failed"] == 0, taken["failed_events"][:3]
    server.post("/api/v1/lineage", b'{"eventType": "COMPLETE", "job": {"namespace": "sandbox"}}')
    merged = subprocess.run(  # noqa: S603 (our own command)
        [
            *(sys.executable, "-m", "correlator.cli.main", "pipeline", "batch"),
            *("--database-url", database_url, "--data-dir", str(server.data_dir)),
            *("--no-archive", "--spark-conf", QUICKLY),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert merged.returncode == 0, merged.stderr


def events(now: datetime) -> Iterator[Json]:
    today = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    for day in range(12, -1, -1):
        at = today - timedelta(days=day)
        yield from _customers(at, is_broken=day == 0)
        yield from _forecast(at, is_upgraded=day == 0)
        yield from _report(at, has_rates=day > 3)
        if day < 6:
            yield from _warehouse(at, is_bad=day == 0)
    for crate in range(CRATES):
        for day in (8, 7, 6):
            yield from _crate(crate, today - timedelta(days=day, minutes=crate), is_bad=day == 6)


def _customers(at: datetime, *, is_broken: bool) -> Iterator[Json]:
    """A loader whose source renamed a column, and a test that misses it two jobs later."""
    columns = ["id", "customer_ref" if is_broken else "customer_id", "country", "created_at"]
    code = facet(
        type="git",
        url="https://git.example/store/loaders",
        repoUrl="https://git.example/store/loaders.git",
        path="loaders/customers.py",
        version="a41f9c2b7e10" if is_broken else "77be0135cc21",
    )
    raw = _table("raw.customers", columns, rows=81_204)
    clean = _table("clean.customers", ["id", "customer_id", "country"], rows=81_150)
    yield from _ran(
        "load_customers", at, 4, writes=[raw], job_facets={"sourceCodeLocation": code}, owner="team:platform"
    )
    yield from _ran("clean_customers", at + timedelta(minutes=6), 3, reads=["raw.customers"], writes=[clean])
    found = 48_213 if is_broken else 0
    yield from _tested(
        "clean.customers",
        "not_null",
        "customer_id",
        at + timedelta(minutes=11),
        is_bad=is_broken,
        message=f"{found} of 81,150 values are null",
        expected="0",
        actual=str(found),
    )
    yield from _ran(
        "customer_value", at + timedelta(minutes=14), 5, reads=["clean.customers"], writes=["marts.customer_value"]
    )
    yield from _ran(
        "churn_features", at + timedelta(minutes=20), 5, reads=["marts.customer_value"], writes=["ml.churn_features"]
    )


def _forecast(at: datetime, *, is_upgraded: bool) -> Iterator[Json]:
    """A job that fails with a new engine."""
    engine = facet(name="spark", version="3.5.4" if is_upgraded else "3.5.1", openlineageAdapterVersion="1.42.0")
    facets = {"processing_engine": engine}
    if is_upgraded:
        facets["errorMessage"] = facet(
            message="java.lang.OutOfMemoryError: Java heap space",
            programmingLanguage="java",
            stackTrace="at org.apache",
        )
    state = "FAIL" if is_upgraded else "COMPLETE"
    yield from _ran(
        "forecast_demand",
        at - timedelta(minutes=30),
        20,
        reads=["clean.customers"],
        writes=["marts.demand"],
        state=state,
        facets=facets,
        owner="team:planning",
    )


def _report(at: datetime, *, has_rates: bool) -> Iterator[Json]:
    reads = ["marts.customer_value", *(["ref.exchange_rates"] if has_rates else [])]
    yield from _ran("weekly_report", at + timedelta(minutes=40), 2, reads=reads, writes=["reports.weekly"])


def _warehouse(at: datetime, *, is_bad: bool) -> Iterator[Json]:
    """Written under one name, tested under another."""
    written = {"namespace": LAKE, "name": "warehouse/stock_levels", "facets": {"schema": _schema(["sku", "level"])}}
    yield from _ran("stock_levels", at, 3, writes=[written])
    tested = {"namespace": "stock-checks", "name": "stock_levels", "facets": {"schema": _schema(["sku", "level"])}}
    yield from _tested(
        tested,
        "row_count_between",
        "",
        at + timedelta(minutes=5),
        is_bad=is_bad,
        message="31,020 rows, expected 900,000 to 1,400,000",
        job="stock_suite",
    )


def _crate(number: int, at: datetime, *, is_bad: bool) -> Iterator[Json]:
    name = f"crates.crate_{number:02}"
    yield from _ran(f"fill_crate_{number:02}", at, 2, writes=[_table(name, ["id", "weight"], rows=1_000 + number)])
    yield from _tested(
        name,
        "accepted_range",
        "weight",
        at + timedelta(minutes=3),
        is_bad=is_bad,
        message="7 weights are out of range",
        severity="warn" if number % 3 == 0 else "error",
    )


def _schema(columns: list[str]) -> Json:
    return facet(
        fields=[{"name": column, "type": "bigint" if column.endswith("id") else "varchar"} for column in columns]
    )


def _table(name: str, columns: list[str], rows: int) -> Json:
    return {
        "namespace": STORE,
        "name": name,
        "facets": {"schema": _schema(columns)},
        "outputFacets": {"outputStatistics": facet(rowCount=rows, size=rows * 90)},
    }


def _ran(
    job: str,
    at: datetime,
    minutes: float,
    *,
    reads: list[Any] | None = None,
    writes: list[Any] | None = None,
    state: str = "COMPLETE",
    facets: Json | None = None,
    job_facets: Json | None = None,
    owner: str | None = None,
) -> Iterator[Json]:
    owned = {"ownership": facet(owners=[{"name": owner, "type": "TEAM"}])} if owner else {}
    said = {
        "producer": "https://git.example/store/loaders",
        "schemaURL": SCHEMA,
        "run": {"runId": str(uuid5(_NAMES, f"{job} {at:%Y-%m-%d}")), "facets": facets or {}},
        "job": {"namespace": "store", "name": job, "facets": {**(job_facets or {}), **owned}},
        "inputs": [_named(one) for one in reads or []],
        "outputs": [_named(one) for one in writes or []],
    }
    yield {**said, "eventType": "START", "eventTime": at.isoformat()}
    yield {**said, "eventType": state, "eventTime": (at + timedelta(minutes=minutes)).isoformat()}


def _tested(
    table: str | Json,
    test: str,
    column: str,
    at: datetime,
    *,
    is_bad: bool,
    message: str = "",
    job: str | None = None,
    **said: str,
) -> Iterator[Json]:
    result: Json = {"assertion": test, "success": not is_bad, **({"column": column} if column else {}), **said}
    if is_bad:
        result["message"] = message
    read = _named(table)
    read = {**read, "inputFacets": {"dataQualityAssertions": facet(assertions=[result])}}
    name = job or f"check_{read['name'].rpartition('.')[2]}"
    yield from _ran(name, at, 1, reads=[read])


def _named(one: str | Json) -> Json:
    return {"namespace": STORE, "name": one} if isinstance(one, str) else one

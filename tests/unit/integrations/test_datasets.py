"""A table that one tool writes and another tests is one dataset."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import make_url

from correlator.integrations.great_expectations.datasets import dataset_name, file_name


def table(url: str, name: str, schema: str | None = None, default_schema: str | None = None) -> SimpleNamespace:
    engine = SimpleNamespace(url=make_url(url), dialect=SimpleNamespace(default_schema_name=default_schema))
    datasource = SimpleNamespace(name="warehouse", get_engine=lambda: engine)
    return SimpleNamespace(name="my asset", datasource=datasource, table_name=name, schema_name=schema)


@pytest.mark.parametrize(
    ("asset", "namespace", "name"),
    [
        (table("postgresql://u:p@db:5433/shop", "orders", "sales"), "postgres://db:5433", "shop.sales.orders"),
        (table("postgresql+psycopg2://u:p@db/shop", "orders"), "postgres://db:5432", "shop.public.orders"),
        (table("postgresql://db/shop", "orders", None, "staging"), "postgres://db:5432", "shop.staging.orders"),
        (table("postgresql://db/shop", 'sales."Orders"'), "postgres://db:5432", "shop.sales.Orders"),
        (table("postgresql:///shop?host=/run/pg", "orders"), "postgres://localhost:5432", "shop.public.orders"),
        (table("postgresql://[::1]:5432/shop", "orders"), "postgres://[::1]:5432", "shop.public.orders"),
        (table("mysql+pymysql://u:p@db/shop", "orders"), "mysql://db:3306", "shop.orders"),
        (table("mysql+pymysql://u:p@db/shop", "orders", "other"), "mysql://db:3306", "other.orders"),
        (table("mssql+pyodbc://u:p@db/shop", "orders"), "mssql://db:1433", "shop.dbo.orders"),
        (table("oracle://me:p@db/?service_name=XE", "orders"), "oracle://db:1521", "XE.me.orders"),
        (
            table("snowflake://u:p@org-acc/DB/SALES?warehouse=w", "ORDERS"),
            "snowflake://org-acc",
            "DB.SALES.ORDERS",
        ),
        (table("snowflake://u:p@xy12345/DB", "T", "S"), "snowflake://xy12345.us-west-1.aws", "DB.S.T"),
        (table("snowflake://u:p@xy12345.eu-west-1/DB", "T", "S"), "snowflake://xy12345.eu-west-1.aws", "DB.S.T"),
        (table("bigquery://proj/sales", "orders"), "bigquery", "proj.sales.orders"),
        (table("bigquery://proj", "sales.orders"), "bigquery", "proj.sales.orders"),
        (
            table("databricks://token:x@dbc.example?http_path=/a&catalog=main&schema=sales", "orders"),
            "databricks://dbc.example",
            "main.sales.orders",
        ),
        (table("trino://u@trino:8443/hive/sales", "orders"), "trino://trino:8443", "hive.sales.orders"),
        (
            table("awsathena+rest://@athena.eu-west-1.amazonaws.com:443/sales", "orders"),
            "awsathena://athena.eu-west-1.amazonaws.com",
            "AwsDataCatalog.sales.orders",
        ),
        (table("clickhouse://u:p@ch:9000/shop", "orders"), "clickhouse://ch:9000", "shop.orders"),
        (table("sqlite:////srv/shop.db", "orders"), "sqlite:///srv/shop.db", "orders"),
        (table("duckdb:////srv/tiny.duckdb", "m1"), "duckdb:///srv/tiny.duckdb", "tiny.main.m1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_table_is_named_by_its_connection(asset: Any, namespace: str, name: str) -> None:
    assert dataset_name(asset, {}) == (namespace, name)


@pytest.mark.parametrize(
    "asset",
    [
        table("sqlite://", "orders"),
        table("sqlite:///:memory:", "orders"),
        table("postgresql://db", "orders"),
        table("mssql+pyodbc:///?odbc_connect=DSN", "orders"),
        table("bigquery://", "orders"),
        SimpleNamespace(
            name="my asset", datasource=SimpleNamespace(name="warehouse", get_engine=None), query="SELECT 1"
        ),
        SimpleNamespace(name="my asset", datasource=SimpleNamespace(name="warehouse")),
    ],
)
def test_what_has_no_name_of_its_own_is_called_by_datasource_and_asset(asset: Any) -> None:
    assert dataset_name(asset, {}) == ("warehouse", "my asset")


def test_a_schema_that_was_not_given_may_be_an_object_that_says_so() -> None:
    asset = table("postgresql://db/shop", "orders")
    asset.schema_name = object()

    assert dataset_name(asset, {}).name == "shop.public.orders"


def test_no_password_gets_into_a_name() -> None:
    for url in ("postgresql://me:secret@db/shop", "snowflake://me:secret@acc/d/s", "trino://me:secret@t/c/s"):
        assert "secret" not in str(dataset_name(table(url, "orders"), {}))


@pytest.mark.parametrize(
    ("path", "namespace", "name"),
    [
        ("/srv/in/orders.csv", "file", "/srv/in/orders.csv"),
        ("file:///srv/orders.csv", "file", "/srv/orders.csv"),
        ("file://nas/srv/orders.csv", "file://nas", "/srv/orders.csv"),
        ("s3a://lake/raw/orders.parquet", "s3://lake", "raw/orders.parquet"),
        ("gs://lake/orders", "gs://lake", "orders"),
        ("abfss://c@acc.dfs.core.windows.net/orders", "abfss://c@acc.dfs.core.windows.net", "orders"),
        ("dbfs:/mnt/orders", "dbfs", "/mnt/orders"),
        ("https://u:p@example.com/orders.csv?token=1", "https://example.com", "/orders.csv"),
    ],
)
def test_a_file_is_named_by_its_path(path: str, namespace: str, name: str) -> None:
    assert file_name(path) == (namespace, name)


def test_the_file_of_a_batch_is_its_own_dataset() -> None:
    asset = SimpleNamespace(name="my asset", datasource=SimpleNamespace(name="lake"))

    assert dataset_name(asset, {"path": "s3a://lake/raw/1.csv"}) == ("s3://lake", "raw/1.csv")
    reading = SimpleNamespace(**vars(asset), filepath_or_buffer=Path("/srv/a.csv"))
    assert dataset_name(reading, {}) == ("file", "/srv/a.csv")

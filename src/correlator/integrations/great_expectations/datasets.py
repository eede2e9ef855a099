"""What a tested table or file is called, so that who wrote it and who tests it mean the same dataset.

By the naming rules of OpenLineage; where its dbt integration departs from them (Redshift, Databricks), as that does,
because a table that dbt writes and Great Expectations tests must be one. Nothing here connects to anything.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit


class DatasetName(NamedTuple):
    namespace: str
    name: str


class _NotNameableError(Exception):
    """Something that the name needs is not known."""


class _Table(NamedTuple):
    url: Any
    """SQLAlchemy's, of the datasource."""
    parts: tuple[str, ...]
    """Table last; before it schema and database, as far as the asset names them."""
    default_schema: str | None
    """As the server has told SQLAlchemy."""

    @property
    def database(self) -> str:
        return _known(unquote(self.url.database or ""))

    def server(self, scheme: str, port: int | None = None) -> str:
        host = self.url.host or _one(self.url.query.get("host"))
        # A socket is on this machine. It has no name that another machine would know.
        host = "localhost" if host.startswith("/") else _known(host)
        number = self.url.port or port
        return f"{scheme}://{f'[{host}]' if ':' in host else host}" + (f":{number}" if number else "")

    def named(self, *, schema: str | None = None, database: str | None = None) -> str:
        """The table with as many parts before it as given: what the asset says, else these."""
        wanted = [part for part in (database, schema) if part is not None]
        own = list(self.parts[:-1])[-len(wanted) :] if wanted else []
        return ".".join([*(_known(part) for part in [*wanted[: len(wanted) - len(own)], *own]), self.parts[-1]])


def dataset_name(asset: Any, batch_spec: Mapping[str, Any]) -> DatasetName:
    """The name of what an asset of Great Expectations stands for; else the names of datasource and asset."""
    datasource = asset.datasource
    try:
        if getattr(asset, "table_name", None) and hasattr(datasource, "get_engine"):
            return _table_name(asset, datasource.get_engine())
        path = _path_of(asset, batch_spec)
        if path is not None:
            return file_name(path)
    except _NotNameableError:
        pass
    return DatasetName(str(datasource.name), str(asset.name))


def file_name(path: str) -> DatasetName:
    scheme, separator, rest = path.partition("://")
    if not separator:
        if path.startswith("dbfs:"):
            return DatasetName("dbfs", path.removeprefix("dbfs:"))
        return DatasetName("file", os.path.abspath(path))  # noqa: PTH100 (`resolve` would follow links)
    scheme = _FILE_SCHEMES.get(scheme.lower(), scheme.lower())
    host, _, key = rest.partition("/")
    if scheme == "file":
        return DatasetName(f"file://{host}" if host else "file", f"/{key}")
    if scheme in ("http", "https"):
        parts = urlsplit(path)
        return DatasetName(f"{scheme}://{parts.netloc.rpartition('@')[2]}", parts.path)
    return DatasetName(f"{scheme}://{host}", key)


_FILE_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "wasbs"}


def _path_of(asset: Any, batch_spec: Mapping[str, Any]) -> str | None:
    for found in (batch_spec.get("path"), getattr(asset, "filepath_or_buffer", None), getattr(asset, "path", None)):
        if isinstance(found, str | PurePath) and str(found):
            return str(found)
    return None


def _table_name(asset: Any, engine: Any) -> DatasetName:
    schema = getattr(asset, "schema_name", None)
    # A schema that was not given may also be an object that says so.
    said = [schema if isinstance(schema, str) else "", str(asset.table_name)]
    parts = tuple(part for one in said for part in _identifiers(one))
    table = _Table(engine.url, parts, getattr(engine.dialect, "default_schema_name", None))
    rule = _RULES.get(engine.url.get_backend_name())
    if rule is None:
        raise _NotNameableError
    return DatasetName(*rule(table))


def _identifiers(name: str) -> list[str]:
    """`shop."Orders"` as shop and Orders: quotes say how to spell a name, and are no part of it."""
    if '"' not in name and "`" not in name and "[" not in name:
        return [part for part in name.split(".") if part]
    found, part, closing = [], "", ""
    for character in name:
        if closing:
            part, closing = (part, "") if character == closing else (part + character, closing)
        elif character in '"`[':
            closing = "]" if character == "[" else character
        elif character == ".":
            found.append(part)
            part = ""
        else:
            part += character
    return [one for one in [*found, part] if one]


def _known(part: str | None) -> str:
    if not part:
        raise _NotNameableError
    return part


def _one(value: Any) -> str:
    """A parameter of a URL, which may stand there several times."""
    return str(value[0]) if isinstance(value, tuple | list) else str(value or "")


# The rules, by SQLAlchemy's name of the system


def _postgres(table: _Table) -> tuple[str, str]:
    schema = table.default_schema or "public"
    return table.server("postgres", 5432), table.named(schema=schema, database=table.database)


def _redshift(table: _Table) -> tuple[str, str]:
    schema = table.default_schema or "public"
    return table.server("redshift", 5439), table.named(schema=schema, database=table.database)


def _mysql(table: _Table) -> tuple[str, str]:
    return table.server("mysql", 3306), table.named(database=table.database)


def _mssql(table: _Table) -> tuple[str, str]:
    schema = table.default_schema or "dbo"
    return table.server("mssql", 1433), table.named(schema=schema, database=table.database)


def _oracle(table: _Table) -> tuple[str, str]:
    service = _one(table.url.query.get("service_name")) or table.database
    schema = table.default_schema or table.url.username
    return table.server("oracle", 1521), table.named(schema=schema or "", database=service)


def _snowflake(table: _Table) -> tuple[str, str]:
    database, _, schema = table.database.partition("/")
    schema = schema or table.default_schema or ""
    return f"snowflake://{_snowflake_account(_known(table.url.host))}", table.named(schema=schema, database=database)


def _snowflake_account(host: str) -> str:
    """An organisation's account has no region; a locator has region and cloud, which are filled in as dbt does."""
    account, *place = host.lower().removesuffix(".snowflakecomputing.com").split(".")
    if "-" in account:
        return account
    return ".".join([account, *(place + ["us-west-1", "aws"][len(place) :])])


def _bigquery(table: _Table) -> tuple[str, str]:
    return "bigquery", table.named(schema=table.url.database or "", database=table.url.host or "")


def _databricks(table: _Table) -> tuple[str, str]:
    query = table.url.query
    catalog = _one(query.get("catalog")) or "hive_metastore"
    schema = _one(query.get("schema")) or table.default_schema or "default"
    return f"databricks://{_known(table.url.host)}", table.named(schema=schema, database=catalog)


def _trino(table: _Table) -> tuple[str, str]:
    catalog, _, schema = table.database.partition("/")
    scheme = table.url.get_backend_name()
    return table.server(scheme, 8080), table.named(schema=schema or table.default_schema or "", database=catalog)


def _athena(table: _Table) -> tuple[str, str]:
    catalog = _one(table.url.query.get("catalog_name")) or "AwsDataCatalog"
    host = _known(table.url.host)
    return f"awsathena://{host}", table.named(schema=table.url.database or "default", database=catalog)


def _clickhouse(table: _Table) -> tuple[str, str]:
    return table.server("clickhouse", 8123), table.named(database=table.url.database or "default")


def _hive(table: _Table) -> tuple[str, str]:
    return table.server("hive", 10000), table.named(database=table.url.database or "default")


def _teradata(table: _Table) -> tuple[str, str]:
    return table.server("teradata", 1025), table.named(database=table.url.database or table.default_schema or "")


def _duckdb(table: _Table) -> tuple[str, str]:
    path = _file_of(table)
    return f"duckdb://{path}", table.named(schema="main", database=PurePath(path).stem)


def _sqlite(table: _Table) -> tuple[str, str]:
    return f"sqlite://{_file_of(table)}", table.parts[-1]


def _file_of(table: _Table) -> str:
    path = table.database
    if path.startswith(":memory:"):
        raise _NotNameableError
    return os.path.abspath(path)  # noqa: PTH100


_RULES: Final[Mapping[str, Callable[[_Table], tuple[str, str]]]] = {
    "awsathena": _athena,
    "bigquery": _bigquery,
    "clickhouse": _clickhouse,
    "clickhousedb": _clickhouse,
    "cockroachdb": _postgres,
    "databricks": _databricks,
    "duckdb": _duckdb,
    "hive": _hive,
    "mariadb": _mysql,
    "mssql": _mssql,
    "mysql": _mysql,
    "oracle": _oracle,
    "postgresql": _postgres,
    "presto": _trino,
    "redshift": _redshift,
    "snowflake": _snowflake,
    "sqlite": _sqlite,
    "teradatasql": _teradata,
    "trino": _trino,
}

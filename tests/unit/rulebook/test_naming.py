import pytest

from correlator.rulebook.naming import (
    class_name,
    dataset_urn,
    look_alikes,
    normalize_namespace,
    same_names,
    storable,
)

# Every row of OpenLineage's table of dataset names (website/docs/spec/naming.md), each choice of a row as its own case.
CANONICAL = [
    ("awsathena://athena.eu-west-1.amazonaws.com", "AwsDataCatalog.shop.orders"),
    ("arn:aws:glue:us-east-1:123456789012", "table/Shop/Orders"),
    ("azurecosmos://acct.documents.azure.com/dbs/ShopDb", "colls/Orders"),
    ("azurekusto://shop.kusto.windows.net", "Shop/Orders"),
    ("sqlserver://synapse.example.com:1433", "dbo.Orders"),
    ("bigquery", "my-project.shop.orders"),
    ("cassandra://cassandra.example.com:9042", "shop.orders"),
    ("milvus://milvus.example.com:19530", "default.embeddings"),
    ("fabric-warehouse://abc.datawarehouse.fabric.microsoft.com", "shop.dbo.orders"),
    ("fabric-warehouse://abc.datawarehouse.fabric.microsoft.com:1433", "shop.dbo.orders"),
    ("mysql://mysql.example.com:3306", "shop.orders"),
    ("crate://crate.example.com:5432", "crate.doc.orders"),
    ("db2://db2.example.com:50000", "SHOP.SALES.ORDERS"),
    ("hive://hive.example.com:10000", "default.orders"),
    ("mssql://mssql.example.com:1433", "shop.dbo.orders"),
    ("oceanbase://ob.example.com:2881", "shop.orders"),
    ("oracle://ora.example.com:1521", "XE.SALES.ORDERS"),
    ("postgres://pg.example.com:5432", "shop.public.orders"),
    ("teradata://td.example.com:1025", "shop.orders"),
    ("redshift://cluster-1.eu-west-1:5439", "shop.public.orders"),
    ("snowflake://myorg-account1", "SHOP.PUBLIC.ORDERS"),
    ("snowflake://xy12345.us-gov.us-west-2.aws", "SHOP.PUBLIC.ORDERS"),
    ("spanner://my-project:my-instance", "shop.public.orders"),
    ("trino://trino.example.com:8080", "hive.shop.orders"),
    ("unitycatalog://uc.example.com", "main.shop.orders"),
    ("unitycatalog://uc.example.com:8443", "main.shop.orders"),
    ("abfss://container@service.dfs.core.windows.net", "raw/orders"),
    ("dbfs://my-workspace", "mnt/orders"),
    ("gs://my-bucket", "raw/orders.parquet"),
    ("hdfs://namenode.example.com:8020", "warehouse/orders"),
    ("kafka://broker.example.com:9092", "orders.v1"),
    ("file", "data/orders.csv"),
    ("file://nas.example.com", "data/orders.csv"),
    ("box://api.box.com:443/123456", "raw/Orders.csv"),
    ("filenet://fn.example.com:9443/OS1", "raw/Orders.csv"),
    ("s3://my-bucket", "raw/Orders.parquet"),
    ("mssharepoint://example.sharepoint.com:443/sites/Shop", "raw/Orders.xlsx"),
    ("wasbs://container@service.dfs.core.windows.net", "raw/orders"),
    ("pubsub", "topic:my-project:orders"),
    ("pubsub", "subscription:my-project:orders-sub"),
    ("inmemory://", "tmp_8d1f"),
]


@pytest.mark.parametrize(("namespace", "name"), CANONICAL)
def test_a_canonical_name_is_joined_and_otherwise_left_alone(namespace: str, name: str) -> None:
    assert normalize_namespace(namespace) == namespace
    assert dataset_urn(namespace, name) == f"{namespace}/{name}"


@pytest.mark.parametrize(
    "namespace",
    [
        "food_delivery",
        "postgres_prod",
        "SnowflakeOpenLineage",
        "duckdb:///data/Demo/x.duckdb",
        "file:/data/Demo/Warehouse",
        "/tmp/Alter_Test",  # noqa: S108
        "jdbc:oracle:thin:@Ora:1521:XE",
        "What? No; URL#here",
        "://Host",
        "1s3://Bucket",
        "",
    ],
)
def test_what_is_no_url_of_a_server_survives(namespace: str) -> None:
    assert normalize_namespace(namespace) == namespace


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("postgresql://DB", "postgres://db:5432"),
        ("PostgreSQL://Db.Example.COM:5432", "postgres://db.example.com:5432"),
        ("s3a://Bucket", "s3://bucket"),
        ("s3n://bucket", "s3://bucket"),
        ("gcs://bucket", "gs://bucket"),
        ("abfs://c@s.dfs.core.windows.net", "abfss://c@s.dfs.core.windows.net"),
        ("wasb://c@s.blob.core.windows.net", "wasbs://c@s.blob.core.windows.net"),
        ("jdbc:postgresql://h/db", "postgres://h:5432/db"),
        ("JDBC:jdbc:mysql://H:3307", "mysql://h:3307"),
    ],
)
def test_schemes_that_mean_one_thing_are_one(written: str, meant: str) -> None:
    assert normalize_namespace(written) == meant


@pytest.mark.parametrize(
    ("scheme", "port"),
    [
        ("cassandra", 9042),
        ("crate", 5432),
        ("db2", 50000),
        ("hdfs", 8020),
        ("hive", 10000),
        ("kafka", 9092),
        ("milvus", 19530),
        ("mssql", 1433),
        ("mysql", 3306),
        ("oceanbase", 2881),
        ("oracle", 1521),
        ("postgres", 5432),
        ("redshift", 5439),
        ("sqlserver", 1433),
        ("teradata", 1025),
        ("trino", 8080),
    ],
)
def test_a_missing_port_is_the_default_one_and_any_other_stays(scheme: str, port: int) -> None:
    assert normalize_namespace(f"{scheme}://h") == f"{scheme}://h:{port}"
    assert normalize_namespace(f"{scheme}://h:") == f"{scheme}://h:{port}"
    assert normalize_namespace(f"{scheme}://h/path") == f"{scheme}://h:{port}/path"
    assert normalize_namespace(f"{scheme}://h:{port + 1}") == f"{scheme}://h:{port + 1}"


@pytest.mark.parametrize(
    "namespace",
    [
        "unitycatalog://h",
        "fabric-warehouse://h",
        "snowflake://org-account",
        "spanner://project",
        "mongodb://a,b",
        "box://h/123",
        "postgres:///db",
        "postgres://",
        "postgres://:",
    ],
)
def test_no_port_is_invented_where_the_rule_has_none_or_there_is_no_host(namespace: str) -> None:
    assert normalize_namespace(namespace) == namespace


def test_two_servers_on_one_host_stay_two() -> None:
    assert dataset_urn("postgres://h:5432", "db.t") != dataset_urn("postgres://h:5433", "db.t")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("postgres://[::1]:5432", "postgres://[::1]:5432"),
        ("postgres://[FE80::1]", "postgres://[fe80::1]:5432"),
        ("postgres://u:p@[::1]/db", "postgres://[::1]:5432/db"),
        ("s3://[::1]", "s3://[::1]"),
        ("postgres://::1", "postgres://::1"),
    ],
)
def test_ipv6_addresses_survive(written: str, meant: str) -> None:
    assert normalize_namespace(written) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("kafka://b1:9092,b2:9092", "kafka://b1:9092,b2:9092"),
        ("kafka://B1,b2:9093, b3", "kafka://b1:9092,b2:9093,b3:9092"),
        ("kafka://[::1],[::2]:9093", "kafka://[::1]:9092,[::2]:9093"),
        ("mongodb://u:p@A:27017,B/db?replicaSet=x", "mongodb://a:27017,b/db"),
    ],
)
def test_lists_of_hosts_survive_and_each_gets_its_port(written: str, meant: str) -> None:
    assert normalize_namespace(written) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("postgres://user:secret@h:5432", "postgres://h:5432"),
        ("postgres://user@h", "postgres://h:5432"),
        ("postgres://user:@h", "postgres://h:5432"),
        ("postgres://user:se@cret@h", "postgres://h:5432"),
        ("postgres://user:5432@h", "postgres://h:5432"),
        ("postgres://user:sec/ret@h/db", "postgres://h:5432/db"),
        ("postgres://user:sec#ret@h", "postgres://h:5432"),
        ("postgres://user:sec?r;et@h", "postgres://h:5432"),
        ("s3n://AKIA:abc/def@Bucket", "s3://bucket"),
        ("postgres://h:5432?user=u&password=secret", "postgres://h:5432"),
        ("postgres://h?user=u@example.com", "postgres://h:5432"),
        ("postgres://h/db#secret", "postgres://h:5432/db"),
        ("jdbc:sqlserver://H;databaseName=x;user=u@d;password=secret", "sqlserver://h:1433"),
        ("jdbc:sqlserver://h:1434;encrypt=true", "sqlserver://h:1434"),
        ("mongodb+srv://u:p@Cluster.example.com/Db?w=1", "mongodb+srv://cluster.example.com/Db"),
    ],
)
def test_credentials_and_query_are_removed(written: str, meant: str) -> None:
    assert normalize_namespace(written) == meant


@pytest.mark.parametrize(
    "namespace",
    ["kafka://b1:9092/x@y", "kafka://b1:9092,b2:9093/x@y", "azurecosmos://h/dbs/x@y", "http://[::1]:80/x@y"],
)
def test_an_at_sign_in_the_path_is_no_end_of_credentials(namespace: str) -> None:
    assert normalize_namespace(namespace) == namespace


def test_before_the_at_sign_of_azure_stands_a_container_and_its_case_stays() -> None:
    assert normalize_namespace("ABFSS://MyData@Acct.dfs.core.windows.net") == "abfss://MyData@acct.dfs.core.windows.net"
    assert (
        normalize_namespace("wasb://MyData@Acct.blob.core.windows.net") == "wasbs://MyData@acct.blob.core.windows.net"
    )
    name = "abfss://MyData@Acct.dfs.core.windows.net/raw"
    assert dataset_urn("spark", name) == f"spark/{name}"


def test_the_path_of_a_namespace_keeps_its_case() -> None:
    assert normalize_namespace("AzureCosmos://Host/dbs/ShopDb") == "azurecosmos://host/dbs/ShopDb"


@pytest.mark.parametrize(
    ("namespace", "name", "urn"),
    [
        ("s3://b", "x", "s3://b/x"),
        ("s3://b", "/x", "s3://b/x"),
        ("s3://b/", "x", "s3://b/x"),
        ("s3a://B//", "//x", "s3://b/x"),
        ("file", "/a/b", "file/a/b"),
        ("file://", "/a/b", "file:///a/b"),
        ("duckdb:///x.db", "t", "duckdb:///x.db/t"),
        ("hdfs://nn/user/hive/", "default.t", "hdfs://nn:8020/user/hive/default.t"),
        ("bigquery/", "p.d.t", "bigquery/p.d.t"),
        ("s3://b", "dir//x/", "s3://b/dir//x/"),
        ("s3://b", "Dir/X", "s3://b/Dir/X"),
        ("", "t", "/t"),
    ],
)
def test_namespace_and_name_are_joined_by_exactly_one_slash(namespace: str, name: str, urn: str) -> None:
    assert dataset_urn(namespace, name) == urn


def test_the_slashes_of_a_scheme_are_not_the_joining_one() -> None:
    assert dataset_urn("inmemory://", "t") == "inmemory:///t"
    assert dataset_urn("inmemory:///", "/t") == "inmemory:///t"
    assert dataset_urn("file://", "h/t") != dataset_urn("file://h", "t")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("postgres://u:p@h/db.t", "postgres://h/db.t"),
        ("jdbc:postgresql://u:p/w@H/db.t", "jdbc:postgresql://H/db.t"),
        ("https://token@example.com/x.csv", "https://example.com/x.csv"),
        ("from mysql://a:b@h/x to mysql://c:d@h/y", "from mysql://h/x to mysql://h/y"),
        ("s3://Bucket/me@example.com/x", "s3://Bucket/me@example.com/x"),
        ("https://h?mail=me@example.com", "https://h?mail=me@example.com"),
        ("mail:me@example.com", "mail:me@example.com"),
        ("@stage/x", "@stage/x"),
    ],
)
def test_credentials_inside_a_name_are_removed_and_nothing_else(name: str, kept: str) -> None:
    assert dataset_urn("ns", name) == f"ns/{kept}"


def test_characters_that_postgresql_cannot_hold_are_replaced() -> None:
    assert dataset_urn("s3://b\x00", "x\ud800\udc00y\x00") == "s3://b\ufffd/x\ufffd\ufffdy\ufffd"
    assert storable("größe \U0001f600") == "größe \U0001f600"


def test_a_long_namespace_follows_the_same_rules() -> None:
    host = "a" * 5_000
    assert dataset_urn(f"PostgreSQL://u:p@{host.upper()}", "t") == f"postgres://{host}:5432/t"


def test_megabytes_of_unfinished_credentials_cost_no_more_than_reading_them() -> None:
    # Quadratic work would take hours here.
    name = "@" + "://a:b" * 300_000
    assert dataset_urn("ns", name) == f"ns/{name}"
    assert normalize_namespace(f"x://h/{name}") == f"x://h/{name}"


def test_aliases_chain_into_classes() -> None:
    classes = same_names([("a", "b"), ("c", "d"), ("b", "c"), ("x", "y"), ("z", "z")])
    assert classes == {
        **dict.fromkeys("abcd", frozenset("abcd")),
        **dict.fromkeys("xy", frozenset("xy")),
        "z": frozenset("z"),
    }


def test_no_aliases_make_no_classes() -> None:
    assert same_names([]) == {}


def test_a_class_is_called_by_its_patterns_target_then_its_table_then_its_least_urn() -> None:
    members = ["s3://b/t", "glue/t", "postgres://h:5432/t"]
    assert class_name(members, pattern_targets=["z/t", "y/t"], table_symlinks=["a/t"]) == "y/t"
    assert class_name(members, table_symlinks=["s3://b/t", "hive/t"]) == "hive/t"
    assert class_name(members) == class_name(reversed(members)) == "glue/t"


def test_a_class_without_members_is_refused() -> None:
    with pytest.raises(ValueError, match="no members"):
        class_name([])


def test_look_alikes_end_in_the_same_parts_the_longest_end_first() -> None:
    candidates = [
        "postgres://prod:5432/crm.orders",
        "snowflake://acct/ANALYTICS.PUBLIC.ORDERS",
        "s3://lake/public/orders",
        "postgres://prod:5432/analytics.public.customers",
        "postgres_prod/analytics.public.orders",
    ]
    urn = "postgres://prod:5432/analytics.public.orders"
    expected = [
        "postgres_prod/analytics.public.orders",
        "snowflake://acct/ANALYTICS.PUBLIC.ORDERS",
        "s3://lake/public/orders",
    ]
    assert look_alikes(urn, candidates) == expected
    assert look_alikes(urn, reversed(candidates)) == expected
    assert look_alikes(urn, candidates, limit=1) == expected[:1]
    assert look_alikes(urn, candidates, limit=10) == [*expected, "postgres://prod:5432/crm.orders"]


def test_a_name_is_not_its_own_look_alike_and_each_is_suggested_once() -> None:
    assert look_alikes("a/t", ["a/t", "b/t", "b/t"]) == ["b/t"]


def test_a_name_without_parts_looks_like_nothing() -> None:
    assert look_alikes("//", ["a/t", "/"]) == []


def test_a_shared_file_ending_makes_no_look_alike() -> None:
    assert look_alikes("file/in/orders.csv", ["file/in/people.csv", "s3://b/orders.csv.gz", "pg/public.orders"]) == [
        "pg/public.orders",
        "s3://b/orders.csv.gz",
    ]

"""What is hidden when facets and texts are shown."""

import pytest

from correlator.config import ServerSettings
from correlator.rulebook.redaction import HIDDEN, Redaction

USUAL = Redaction(ServerSettings().redact)


@pytest.mark.parametrize(
    "facets",
    [
        {"environmentVariables": {"environmentVariables": [{"name": "X", "value": "hush"}]}},
        {"spark_properties": {"properties": {"spark.hadoop.fs.s3a.secret.key": "hush"}}},
        {"connection": {"Password": "hush", "deep": [{"API_KEY": {"any": ["hush"]}}]}},
        {"sql": {"query": "CREATE USER me WITH PASSWORD 'hush'"}},
        {"sql": {"query": "copy t from 's3://b' credentials 'aws_secret=hush'"}},
        {"sql": {"query": 'ALTER USER me IDENTIFIED BY "hush"'}},
        {"sql": {"query": "options (secret_key => 'it''s hush')"}},
        {"source": {"uri": "postgresql://me:hush@db/x", "list": ["jdbc:mysql://u:hush@h:1/d"]}},
    ],
)
def test_secrets_are_hidden(facets: dict[str, object]) -> None:
    shown = str(USUAL.facets(facets))
    assert "hush" not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "facets",
    [
        {"sql": {"query": "SELECT 'a', \"b\" FROM t WHERE password_hash = x"}},
        {"source": {"uri": "postgres://db:5432/shop", "mail": "me@example.com"}},
        {"source": {"uri": "abfss://container@account.dfs.core.windows.net/path"}},
        {"stats": {"rowCount": 7, "none": None, "flag": True, "list": [1, "two"]}},
    ],
)
def test_what_is_no_secret_is_shown_as_it_is(facets: dict[str, object]) -> None:
    assert USUAL.facets(facets) == facets


def test_paths_go_key_by_key() -> None:
    one = Redaction(["run.*.inner", "job.**.x", "exact"])
    assert one.facets({"run": {"a": {"inner": 1, "other": 2}, "inner": 3}}) == {
        "run": {"a": {"inner": HIDDEN, "other": 2}, "inner": 3}
    }
    assert one.facets({"job": {"x": 1, "a": {"b": {"x": 2}}}}) == {"job": {"x": HIDDEN, "a": {"b": {"x": HIDDEN}}}}
    assert one.facets({"exact": {"all": 1}, "exactly": 2}) == {"exact": HIDDEN, "exactly": 2}
    assert Redaction().facets({"password": "shown"}) == {"password": "shown"}

"""Who has sent an event, and in which version."""

import pytest

from correlator.rulebook.producers import producer_name

OPENLINEAGE = "https://github.com/OpenLineage/OpenLineage"


@pytest.mark.parametrize(
    ("producer", "name", "version"),
    [
        (f"{OPENLINEAGE}/tree/1.54.0/integration/dbt", f"{OPENLINEAGE}/integration/dbt", "1.54.0"),
        (f"{OPENLINEAGE}/tree/1.53.0/integration/spark", f"{OPENLINEAGE}/integration/spark", "1.53.0"),
        (
            "https://github.com/apache/airflow/tree/providers-openlineage/2.20.3",
            "https://github.com/apache/airflow/providers-openlineage",
            "2.20.3",
        ),
        ("https://github.com/correlator-io/correlator/0.1.0", "https://github.com/correlator-io/correlator", "0.1.0"),
        ("https://example.com/blob/v1-0-0/client", "https://example.com/client", "1-0-0"),
        ("https://example.com/tool/2.0.0rc1+local", "https://example.com/tool", "2.0.0rc1+local"),
        ("https://example.com/tool", "https://example.com/tool", None),
        ("https://10.0.0.1/tool/7", "https://10.0.0.1/tool/7", None),
        ("$VERSION", "$VERSION", None),
        ("", "", None),
    ],
)
def test_the_version_is_the_part_that_looks_like_one(producer: str, name: str, version: str | None) -> None:
    assert producer_name(producer) == (name, version)

"""Questions against the OpenAPI document: made-up requests to a server that knows a few things, and to a locked one."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from correlator import __version__
from correlator.config import ServerSettings
from correlator.rulebook.fold import fold
from correlator.server.api.catalogue import OPERATIONS
from correlator.server.api.operations import Operation
from correlator.server.openapi import document
from correlator.store.api_keys import create_key
from correlator.store.database import Database
from correlator.store.staging import prepare
from tests.integration.conftest import Postgres, database_url, new_database
from tests.integration.server.serving import Client, serving
from tests.integration.store.merging import SOURCE, apply
from tests.unit.rulebook.histories import assertions, dataset, run_event

# A key would lock the server for all that comes after, and a made-up route may lead to somebody's machine.
DESCRIBED = (
    schemathesis.openapi.from_dict(
        document(ServerSettings(), __version__),
        config=SchemathesisConfig.from_dict({"generation": {"deterministic": True}}),
    )
    .exclude(tag=["ingest", "operation"])
    .exclude(operation_id=["createKey", "testAlertRoute"])
)


@pytest.fixture(scope="module")
def open_server(postgres: Postgres, migrated_template: str) -> Iterator[Client]:
    with new_database(postgres, migrated_template) as name:
        database = Database(database_url(postgres, name))
        with database.connect("test", autocommit=True) as connection:
            prepare(connection, SOURCE)
            tested = dataset("b", inputFacets=assertions({"assertion": "unique", "success": False}))
            events = [
                run_event("COMPLETE", 0, job="0", run="0", inputs=[dataset("a")], outputs=[dataset("b")]),
                run_event("COMPLETE", 1, job="test", run="t", inputs=[tested]),
            ]
            apply(connection, fold(events))
        with serving(database) as client:
            yield client


@pytest.fixture(scope="module")
def locked_server(postgres: Postgres, migrated_template: str) -> Iterator[tuple[Client, str]]:
    with new_database(postgres, migrated_template) as name:
        database = Database(database_url(postgres, name))
        with database.connect("test", autocommit=True) as connection:
            other = create_key(connection, "other", ["ingest"], actor="test").secret
        with serving(database) as client:
            yield client, other


@DESCRIBED.parametrize()
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_to_a_question_is_as_documented(case: "schemathesis.Case[Any]", open_server: Client) -> None:
    # What a schema cannot say: which cursors there are, what a pattern may mean, that no name holds a NUL.
    url = f"http://127.0.0.1:{open_server.port}"
    case.call_and_validate(base_url=url, excluded_checks=[positive_data_acceptance])


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_nothing_is_answered_without_the_right_key(operation: Operation, locked_server: tuple[Client, str]) -> None:
    client, other = locked_server
    path = re.sub(r"\{[^}]*\}", "1", operation.path)
    assert client.ask(operation.method, path).status == 401
    refused = client.ask(operation.method, path, x_api_key=other)
    assert refused.status == 403
    assert f"needs the scope {operation.scope}" in refused.json()["detail"]


def test_a_slash_in_disguise_opens_no_other_door(postgres: Postgres, migrated_template: str) -> None:
    with new_database(postgres, migrated_template) as name:
        database = Database(database_url(postgres, name))
        with database.connect("test", autocommit=True) as connection:
            reader = create_key(connection, "reader", ["read"], actor="test").secret
        with serving(database) as client:
            for path in ("/api/v1%2Fkeys", "/api/v1/keys%2F", "/api/v1/datasets%2F..%2Fkeys", "/api/v1/%6beys"):
                answer = client.ask("GET", path, x_api_key=reader)
                assert answer.status in {403, 404}
                assert b"prefix" not in answer.body

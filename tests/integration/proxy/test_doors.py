"""What the proxy answers, on each of its paths."""

import gzip
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.transport.http import HttpConfig, HttpTransport

from tests.integration.proxy.backends import Backend, backend
from tests.integration.proxy.proxies import BATCH, EVENTS, ONE, Proxy, broken, event, proxy
from tests.integration.server.running import wait_until


class Place(NamedTuple):
    proxy: Proxy
    backend: Backend


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with backend() as there, proxy(tmp_path_factory.mktemp("proxy"), "--destination", f"prod={there.url}") as made:
        yield Place(made, there)


def test_an_event_is_answered_200_and_arrives(place: Place) -> None:
    answer = place.proxy.post(event("one"))
    assert (answer.status, answer.json()["status"]) == (200, "buffered")
    assert answer.header("X-Correlation-ID") == answer.json()["correlation_id"]
    place.backend.wait_for(lambda: "one" in place.backend.marks, "the event arrives")


def test_the_official_client_can_point_at_it(place: Place) -> None:
    client = OpenLineageClient(transport=HttpTransport(HttpConfig(url=f"http://127.0.0.1:{place.proxy.port}")))
    run = Run("01908cc8-0000-7000-8000-000000000001")
    client.emit(
        RunEvent(
            eventTime="2026-11-01T10:00:00Z",
            run=run,
            job=Job("tests", "client"),
            eventType=RunState.START,
            producer="https://p",
        )
    )
    place.backend.wait_for(
        lambda: any(each["job"]["name"] == "client" for each in place.backend.accepted), "the client's event arrives"
    )


def test_an_array_is_kept_in_its_order_on_both_endpoints(place: Place) -> None:
    for path in (BATCH, EVENTS):
        marks = [f"{path} {number}" for number in range(25)]
        answer = place.proxy.post([event(mark) for mark in marks], path)
        assert answer.status == 200
        place.backend.wait_for(lambda: marks[-1] in place.backend.marks, "the array arrives")  # noqa: B023
        assert [mark for mark in place.backend.marks if mark in marks] == marks


def test_a_batch_is_answered_as_the_specification_has_it(place: Place) -> None:
    answer = place.proxy.post([event(1), broken(2), event(3)], BATCH)
    assert answer.status == 207
    said = answer.json()
    assert said["status"] == "partial_success"
    assert said["summary"] == {"received": 3, "successful": 2, "failed": 1, "retriable": 0, "non_retriable": 1}
    (failed,) = said["failed_events"]
    assert (failed["index"], failed["retriable"]) == (1, False)
    assert "job" in failed["reason"]


def test_of_an_array_the_part_that_complies_is_kept_and_each_has_its_result(place: Place) -> None:
    answer = place.proxy.post([broken("bad"), event("good")], EVENTS)
    assert answer.status == 207
    said = answer.json()
    assert (said["stored"], said["failed"], said["summary"]) == (1, 1, {"total": 2, "success": 1, "failed": 1})
    assert [(each["status"], each["outcome"]) for each in said["results"]] == [(400, "error"), (200, "success")]
    place.backend.wait_for(lambda: "good" in place.backend.marks, "the good one arrives")
    assert "bad" not in place.backend.marks


@pytest.mark.parametrize("path", [ONE, EVENTS])
def test_one_event_that_does_not_comply_is_answered_400_with_every_reason(place: Place, path: str) -> None:
    wrong = broken("wrong") | {"eventType": "FINISHED"}
    answer = place.proxy.post(wrong, path)
    assert answer.status == 400
    assert answer.header("Content-Type") == "application/problem+json"
    said = answer.json()
    errors = said["errors"] if path == ONE else said["results"][0]["errors"]
    assert len(errors) >= 1
    assert said["type"] == "urn:correlator:problem:not-compliant"


def test_an_array_of_which_nothing_complies_is_answered_400(place: Place) -> None:
    for path in (BATCH, EVENTS):
        answer = place.proxy.post([broken(1), broken(2)], path)
        assert answer.status == 400
        assert answer.json()["type"] == "urn:correlator:problem:not-compliant"


def test_a_standard_facet_that_breaks_its_schema_is_refused_under_spec(place: Place) -> None:
    facet = {"_producer": "https://p", "_schemaURL": "https://openlineage.io/spec/facets/1-0-1/SQLJobFacet.json"}
    wrong = event("facet") | {"job": {"namespace": "tests", "name": "load", "facets": {"sql": facet}}}
    answer = place.proxy.post(wrong)
    assert answer.status == 400
    assert "job.facets.sql.query is required" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status"), [(b"{", 400), (b"[{", 400), (b"\xff", 400), (b"", 400), (b"[]", 400), (b'"text"', 400)]
)
def test_what_is_no_event_at_all_is_answered_400_and_its_bytes_are_kept(place: Place, body: bytes, status: int) -> None:
    assert place.proxy.post(body).status == status


def test_packed_bodies_are_taken(place: Place) -> None:
    answer = place.proxy.post(gzip.compress(json.dumps(event("packed")).encode()), content_encoding="gzip")
    assert answer.status == 200
    place.backend.wait_for(lambda: "packed" in place.backend.marks, "it arrives")
    assert place.proxy.post(b"no gzip at all", content_encoding="gzip").status == 400


def test_a_byte_order_mark_and_line_breaks_do_no_harm_in_a_batch(place: Place) -> None:
    for number in range(3):
        body = b"\xef\xbb\xbf" + json.dumps(event(f"bom {number}"), indent=2).encode()
        assert place.proxy.post(body).status == 200
    place.backend.wait_for(lambda: "bom 2" in place.backend.marks, "they arrive")


def test_probes_and_health_tell_how_it_is(place: Place) -> None:
    assert place.proxy.get("/ping").json() == {"status": "ok"}
    assert place.proxy.get("/ready").json() == {"status": "ready"}
    place.proxy.wait_until_forwarded()
    health = place.proxy.health()
    assert (health["status"], health["trouble"]) == ("ok", None)
    assert health["destinations"][0]["name"] == "prod"
    assert health["buffer"]["file_bytes"] > 0


def test_metrics_are_told_to_prometheus_and_as_openmetrics(place: Place) -> None:
    def figures(text: str) -> dict[str, float]:
        return {name: float(value) for name, value in re.findall(r"^correlator_proxy_(\S+) (\S+)$", text, re.MULTILINE)}

    before = figures(place.proxy.get("/metrics").body.decode())
    place.proxy.post(event("counted"))
    place.proxy.post(broken("counted too"))
    place.proxy.wait_until_forwarded()
    page = place.proxy.get("/metrics")
    assert (page.header("Content-Type") or "").startswith("text/plain; version=0.0.4")
    after = figures(page.body.decode())
    grown = {name: after[name] - before[name] for name in after if after[name] != before.get(name)}
    assert grown["received_total"] == 2
    assert grown["invalid_total"] == 1
    assert grown["written_total"] == 1
    assert grown['sent_total{destination="prod"}'] == 1
    for name in ("failed_total", "retried_total", "dropped_total", "lag_events", "lag_seconds"):
        assert f'{name}{{destination="prod"}}' in after
    for name in ("buffer_bytes", "buffer_age_seconds", "buffer_file_bytes"):
        assert name in after
    opened = place.proxy.get("/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert (opened.header("Content-Type") or "").startswith("application/openmetrics-text")
    assert opened.body.endswith(b"# EOF\n")


def test_other_paths_and_methods_are_refused_in_words(place: Place) -> None:
    assert place.proxy.get("/api/v1/lineage").status == 405
    assert place.proxy.get("/api/v1/incidents").status == 404


# --- other ways to set it up


@contextmanager
def with_one_event(directory: Path, *arguments: str, **environ: str) -> Iterator[Place]:
    with backend() as there, proxy(directory, "--destination", there.url, *arguments, environ=environ) as made:
        yield Place(made, there)


def test_policy_correlator_refuses_at_once_what_the_server_would(tmp_path: Path) -> None:
    without_type = {name: value for name, value in event("typeless").items() if name != "eventType"}
    with with_one_event(tmp_path, "--policy", "correlator", "--no-metrics") as place:
        answer = place.proxy.post(without_type)
        assert (answer.status, "eventType is required" in answer.json()["detail"]) == (400, True)
        assert place.proxy.get("/metrics").status == 404


def test_handlers_get_what_fails_and_one_that_raises_changes_no_answer(tmp_path: Path) -> None:
    (tmp_path / "house_handlers.py").write_text(
        "class Raising:\n    def handle(self, events):\n        raise ValueError('no, thank you')\n"
    )
    handlers = [f"--failed-event-handler={name}" for name in ("log", "file", "sqlite", "house_handlers:Raising")]
    with with_one_event(tmp_path, *handlers, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}") as place:
        answer = place.proxy.post(broken("for all"))
        assert answer.status == 400
        (line,) = (tmp_path / "proxy" / "failed-events.jsonl").read_text().splitlines()
        assert json.loads(json.loads(line)["raw"])["mark"] == "for all"
        place.proxy.wait_for_words("no, thank you")
        place.proxy.wait_for_words("failed event (request)")
        metrics = place.proxy.get("/metrics").body.decode()
        assert 'handler_failures_total{handler="house_handlers:Raising"} 1' in metrics


def test_several_destinations_each_get_everything_and_statsd_is_told(tmp_path: Path) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd,
        backend() as second,
    ):
        statsd.bind(("127.0.0.1", 0))
        statsd.settimeout(30)
        place_to = f"127.0.0.1:{statsd.getsockname()[1]}"
        lines = tmp_path / "out" / "events.jsonl"
        options = ("--destination", f"second={second.url}", "--destination", f"file:{lines}", "--statsd", place_to)
        with with_one_event(tmp_path, *options, "--statsd-interval", "50ms", "--statsd-tags") as place:
            for number in range(5):
                place.proxy.post(event(number))
            place.proxy.wait_until_forwarded()
            assert place.backend.marks == second.marks == list(range(5))
            assert [json.loads(line)["mark"] for line in lines.read_text().splitlines()] == list(range(5))
            told = ""
            while "sent:5|c|#destination:second" not in told:
                told += statsd.recv(65536).decode() + "\n"
                sums = [int(n) for n in re.findall(r"sent:(\d+)\|c\|#destination:second", told)]
                if sum(sums) == 5:
                    break
            assert "openlineage.proxy." in told


def test_a_destination_that_was_removed_holds_nothing_any_more(tmp_path: Path) -> None:
    with backend() as there:
        arguments = ("--partition-bytes", "600", "--retention-bytes", "100MB")
        away = "gone=http://127.0.0.1:9"
        with proxy(tmp_path, *arguments, "--destination", f"there={there.url}", "--destination", away) as first:
            for number in range(10):
                first.post(event(number))
            wait_until(lambda: first.destination("there")["lag_events"] == 0, "one has all")
            assert first.destination("gone")["lag_events"] == 10
            assert first.stop() == 0
        with proxy(tmp_path, *arguments, "--destination", f"there={there.url}") as second:
            wait_until(lambda: second.health()["buffer"]["partitions"] == 1, "what nobody waits for is removed")
        assert there.marks == list(range(10))

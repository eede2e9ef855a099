"""A real broker as a destination."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from correlator.proxy.destinations.kafka import key_of
from tests.integration.pipeline.brokers import Broker, running_broker
from tests.integration.proxy.proxies import BATCH, event, proxy
from tests.integration.server.running import wait_until

TOPIC = "openlineage.events"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if shutil.which("java") is None:
        pytest.skip("a broker needs Java")
    with running_broker(tmp_path_factory.mktemp("broker")) as made:
        made.create(TOPIC, 4)
        yield made


def read(broker: Broker, count: int) -> list[tuple[str, Any, int]]:
    """Key, event and partition of so many messages."""
    consumer = Consumer(
        {"bootstrap.servers": broker.servers, "group.id": "proxy tests", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    found: list[tuple[str, Any, int]] = []
    try:
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None, f"{len(found)} of {count} messages came"
            assert message.error() is None, message.error()
            key, value, partition = message.key(), message.value(), message.partition()
            assert isinstance(key, bytes)
            assert value is not None
            assert partition is not None
            found.append((key.decode(), json.loads(value), partition))
    finally:
        consumer.close()
    return found


def test_events_arrive_in_order_for_each_run_also_when_the_broker_was_killed_meanwhile(
    broker: Broker, tmp_path: Path
) -> None:
    destination = f"kafka:{broker.servers}/{TOPIC};reconnect.backoff.max.ms=200"
    with proxy(tmp_path, "--destination", destination, "--destination-timeout", "3s") as made:
        first = [event(number, job=f"job {number % 7}") for number in range(60)]
        assert made.post(first, BATCH).status == 200
        made.wait_until_forwarded()
        broker.kill()
        second = [event(number, job=f"job {number % 7}") for number in range(60, 120)]
        for each in second:
            assert made.post(each).status == 200
        wait_until(lambda: made.destination()["state"] == "retrying", "it notices that the broker is gone")
        broker.start()
        made.wait_until_forwarded()
        found = read(broker, 120)
    assert {each["mark"] for _, each, _ in found} == set(range(120))
    for number in range(7):
        marks = [each["mark"] for key, each, _ in found if key == f"run:tests/job {number}"]
        firsts = list(dict.fromkeys(marks))
        assert firsts == sorted(firsts) == list(range(number, 120, 7))
        assert len({partition for key, _, partition in found if key == f"run:tests/job {number}"}) == 1


def test_a_topic_that_is_not_there_is_waited_for_loudly(broker: Broker, tmp_path: Path) -> None:
    destination = f"wrong=kafka:{broker.servers}/no.such.topic"
    with proxy(tmp_path, "--destination", destination, "--destination-timeout", "2s") as made:
        made.post(event(1))
        made.wait_for_words("wrong: ")
        told = made.destination()
        assert (told["lag_events"], told["failed"], told["dropped"]) == (1, 0, 0)


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ({}, "run:tests/load"),
        (
            {"run": {"runId": "r", "facets": {"parent": {"job": {"namespace": "dag", "name": "daily"}}}}},
            "run:dag/daily",
        ),
        (
            {
                "run": {
                    "runId": "r",
                    "facets": {
                        "parent": {
                            "job": {"namespace": "dag", "name": "daily"},
                            "root": {"job": {"namespace": "dag", "name": "top"}},
                        }
                    },
                }
            },
            "run:dag/top",
        ),
        ({"run": {"runId": "r", "facets": {"parentRun": {"job": {"namespace": "a", "name": "old"}}}}}, "run:a/old"),
        ({"run": {"runId": "r", "facets": {"parent": {"job": 5}}}}, "run:tests/load"),
    ],
)
def test_the_key_is_that_of_the_topmost_job_that_the_run_names(extra: dict[str, Any], key: str) -> None:
    assert key_of(json.dumps(event(1) | extra).encode()) == key.encode()


def test_events_without_a_run_are_keyed_by_what_they_tell_of() -> None:
    job = {"job": {"namespace": "n", "name": "j"}}
    dataset = {"dataset": {"namespace": "n", "name": "d"}}
    assert key_of(json.dumps(job).encode()) == b"job:n/j"
    assert key_of(json.dumps(dataset).encode()) == b"dataset:n/d"

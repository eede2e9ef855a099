"""Topics of a real broker, through the real command, into facts, ledger, rejected events and archive."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pyarrow.dataset as pads
import pytest
from confluent_kafka import Consumer, TopicPartition
from openlineage.client.event_v2 import (
    DatasetEvent,
    Job,
    JobEvent,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
    StaticDataset,
)
from openlineage.client.facet_v2 import documentation_dataset, documentation_job
from openlineage.client.transport.kafka import KafkaConfig, KafkaTransport

from correlator.config import PipelineSettings
from correlator.pipeline.sources.kafka import KAFKA
from correlator.rulebook.events import Rejection
from correlator.rulebook.fold import fold
from correlator.rulebook.judging import Judge
from correlator.store.audit import settle_losses
from correlator.store.database import Database
from correlator.store.fact_rows import read_facts
from correlator.store.ledger import lag_of, lags
from correlator.store.merge import FACTS
from correlator.store.retention import ARCHIVE
from tests.integration.conftest import Postgres, database_url, new_database, reachable_directory
from tests.integration.events import run_event
from tests.integration.pipeline import maven
from tests.integration.pipeline.brokers import Broker, running_broker
from tests.integration.pipeline.pipelines import Stream, run_audit, run_batch, running_stream
from tests.integration.store.merging import differences

PRODUCER = "https://example.com/producer"
judge = Judge.within(PipelineSettings())


class Message(NamedTuple):
    """As another client reads it."""

    origin: str
    offset: int
    key: bytes | None
    headers: list[tuple[str, bytes]]
    value: bytes


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with reachable_directory() as directory, running_broker(directory) as running:
        yield running


@pytest.fixture(scope="module")
def connector() -> str:
    return ",".join(map(str, maven.jars(*maven.CONNECTORS)))


class Place(NamedTuple):
    """A database and a directory, with the settings that name them."""

    database: Database
    directory: Path
    settings: dict[str, str]


@contextmanager
def new_place(
    postgres: Postgres, template: str, broker: Broker, connector: str, topics: Iterable[str]
) -> Iterator[Place]:
    with reachable_directory() as directory, new_database(postgres, template) as name:
        url = database_url(postgres, name)
        settings = {
            "database_url": url,
            "data_dir": str(directory),
            "spark_master": "local[2]",
            "log_source": "false",
            "kafka_servers": broker.servers,
            "kafka_topics": ",".join(topics),
            "kafka_jars": connector,
            "archive_min_events": "1",
            "archive_delay": "1s",
            "log_format": "console",
        }
        yield Place(Database(url), directory, settings)


STREAMED = {"kinds": 3, "poison": 2, "killed": 3, "widened": 1, "later": 2}
"""The topics that one stream reads. The last is made by its test."""


@pytest.fixture(scope="class")
def place(postgres: Postgres, migrated_template: str, broker: Broker, connector: str) -> Iterator[Place]:
    with new_place(postgres, migrated_template, broker, connector, STREAMED) as made:
        yield made


@pytest.fixture(scope="class")
def stream(place: Place, broker: Broker) -> Iterator[Stream]:
    for topic, partitions in STREAMED.items():
        if topic != "later":
            broker.create(topic, partitions)
    with running_stream(place.settings, place.directory / "stream.log") as running:
        yield running


class TestStream:
    """One process reads all these topics; each test has its own."""

    def test_events_of_all_kinds_become_facts_and_are_archived_with_key_headers_and_offset(
        self, broker: Broker, place: Place, stream: Stream
    ) -> None:
        transport = KafkaTransport(KafkaConfig({"bootstrap.servers": broker.servers, "log_level": "0"}, "kinds"))
        for event in official_events():
            transport.emit(event)
        assert transport.close()
        producer = broker.producer()
        for number in range(20):
            raw = json.dumps(run_event(run_id=str(UUID(int=number)), job=f"job {number}"))
            producer.produce("kinds", raw, headers=[("tenant", b"shop"), ("tenant", b"\xff")])
        producer.flush()

        stream.wait_until(lambda: read_of(place, "kinds") == 26)
        sent = messages(broker, "kinds")
        assert {m.key for m in sent} == {b"run:shop/load", b"job:shop/load", b"dataset:postgres://db/orders", None}
        check_facts(broker, place)
        check_ledger(broker, place, "kinds")
        stream.wait_until(lambda: archived(place, "kinds") == sorted(sent))

    def test_what_is_no_event_is_rejected_with_a_reason_and_holds_nothing_up(
        self, broker: Broker, place: Place, stream: Stream
    ) -> None:
        producer = broker.producer(**{"message.max.bytes": 4_000_000})
        poison: list[bytes | None] = [b"not JSON", None, b"", b"[]", b"\xff" * 1_000_000, b'{"a": ' * 10_000]
        for partition in (0, 1):
            for value in poison:
                producer.produce("poison", value, partition=partition)
            producer.produce("poison", json.dumps(run_event(job=f"behind {partition}")), partition=partition)
        producer.flush()

        stream.wait_until(lambda: read_of(place, "poison") == 14)
        with place.database.connect("test") as connection:
            kept = connection.execute("SELECT raw, problems FROM rejected_events WHERE source = 'kafka'").fetchall()
        assert sorted(len(raw) for raw, _ in kept) == sorted(len(value or b"") for value in [*poison, *poison])
        assert all(problems for _, problems in kept)
        check_facts(broker, place)
        check_ledger(broker, place, "poison")

    def test_nothing_is_lost_or_doubled_when_the_broker_is_killed_with_messages_in_flight(
        self, broker: Broker, place: Place, stream: Stream
    ) -> None:
        total, some = 3_000, threading.Semaphore(0)
        producer = broker.producer(**{"enable.idempotence": "true", "linger.ms": 2, "batch.size": 20_000})
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            some.release()
            if error is not None:
                failed.append(error)

        def produce() -> None:
            for number in range(total):
                raw = json.dumps(run_event(run_id=str(UUID(int=1_000 + number)), job=f"of {number % 50}"))
                producer.produce("killed", raw, key=str(number), on_delivery=delivered)
                producer.poll(0.001)
            producer.flush()

        producing = threading.Thread(target=produce)
        producing.start()
        for _ in range(500):
            assert some.acquire(timeout=120)
        broker.kill()
        assert producing.is_alive()
        broker.start()
        producing.join()
        assert not failed

        stream.wait_until(lambda: read_of(place, "killed") == total)
        assert len(messages(broker, "killed")) == total
        check_facts(broker, place)
        check_ledger(broker, place, "killed")

    def test_a_partition_and_a_topic_that_are_made_later_are_read_from_their_beginning(
        self, broker: Broker, place: Place, stream: Stream
    ) -> None:
        stream.wait_until(lambda: "there is no topic later" in stream.log)
        producer = broker.producer()
        producer.produce("widened", json.dumps(run_event(job="first")), partition=0)
        producer.flush()
        stream.wait_until(lambda: read_of(place, "widened") == 1)
        broker.widen("widened", 2)
        broker.create("later", 2)
        fresh = broker.producer()
        fresh.produce("widened", json.dumps(run_event(job="second")), partition=1)
        for partition in (0, 1):
            fresh.produce("later", json.dumps(run_event(job=f"late {partition}")), partition=partition)
        fresh.flush()

        stream.wait_until(lambda: (read_of(place, "widened"), read_of(place, "later")) == (2, 2))
        check_facts(broker, place)
        check_ledger(broker, place, "widened")
        check_ledger(broker, place, "later")

    def test_how_far_it_is_behind_the_topics_is_known_to_the_database(self, place: Place, stream: Stream) -> None:
        with place.database.connect("test", autocommit=True) as connection:

            def behind(reader: str) -> int | None:
                lag = lag_of(lags(connection), KAFKA, reader)
                return None if lag is None else lag.events

            stream.wait_until(lambda: behind(FACTS) == 0)
            stream.wait_until(lambda: behind(ARCHIVE) is not None)


@pytest.mark.long
def test_what_was_read_is_known_without_a_checkpoint_and_what_is_gone_is_told(
    postgres: Postgres, migrated_template: str, broker: Broker, connector: str
) -> None:
    topics = {"steady": 2, "again": 2, "short": 1}
    for topic, partitions in topics.items():
        broker.create(topic, partitions)
        fill(broker, topic, 10, partitions)
    poisoned = broker.producer()
    poisoned.produce("steady", b"poison", partition=0)
    poisoned.flush()
    with new_place(postgres, migrated_template, broker, connector, topics) as place:
        place.settings["pipeline_batch_events"] = "25"
        first = run_batch(place.settings)
        assert first.returncode == 0, first.stderr
        assert "31 events read" in first.stderr
        old = [message for topic in topics for message in messages(broker, topic)]
        check_facts(broker, place, topics)
        assert len([m for topic in topics for m in archived(place, topic)]) == 30

        # The checkpoints go; more comes; a topic is made again and is longer than it was; and one is cut at its start.
        place.settings["checkpoint_dir"] = str(place.directory / "others")
        broker.delete("again")
        broker.create("again", 2)
        fill(broker, "again", 30, 2)
        fill(broker, "steady", 4, 2)
        fill(broker, "short", 10, 1)
        lost = messages(broker, "short")[10:15]
        broker.forget_before("short", 0, 15)
        told = audited(place, 1)
        assert [("again" in sentence, "short" in sentence) for sentence in told["wrong"]].count((False, True)) == 2
        assert "For the facts: offsets 10 to 14 of short/0 are lost" in "".join(told["wrong"])
        # What was refused at the very end of a partition is no place in the archive, and waits there.
        assert (told["missing"], told["said"]) == (5, "5 partitions, 39 messages behind, the archive 40")
        second = run_batch(place.settings)
        assert second.returncode == 0, second.stderr
        assert "39 events read" in second.stderr
        assert "again/0 is another one than before" in second.stderr
        assert "offsets 10 to 14 of short/0 are lost" in second.stderr
        everything = [*old, *(message for topic in topics for message in messages(broker, topic))]
        assert not {m.value for m in lost} & {m.value for m in everything}
        with place.database.connect("test", autocommit=True) as connection:
            assert settle_losses(connection) == 6  # of three partitions, by both readers
        told = audited(place, 0)
        assert (told["missing"], told["said"]) == (0, "5 partitions, 0 messages behind, the archive 0")
        assert sum("offsets 10 to 14 of short/0 are lost" in sentence for sentence in told["notes"]) == 2
        check_equal(place, everything)

        # As if the database had been restored from a moment before all this: everything is read once more.
        with place.database.connect("test", autocommit=True) as connection:
            connection.execute("UPDATE source_origins SET position = NULL")
        third = run_batch(place.settings)
        assert third.returncode == 0, third.stderr
        assert "50 events read" in third.stderr
        assert "lost" not in third.stderr
        check_equal(place, everything)
        with place.database.connect("test") as connection:
            assert connection.execute("SELECT raw FROM rejected_events").fetchall() == [(b"poison",)]


def test_a_broker_that_does_not_answer_is_named(
    postgres: Postgres, migrated_template: str, broker: Broker, connector: str
) -> None:
    with new_place(postgres, migrated_template, broker, connector, ["any"]) as place:
        place.settings["kafka_servers"] = "127.0.0.1:9"
        place.settings["kafka_options"] = "kafka.default.api.timeout.ms=2000,kafka.request.timeout.ms=1000"
        told = run_batch(place.settings)
    assert told.returncode == 2
    assert "the broker at 127.0.0.1:9 could not be asked" in told.stderr


def test_a_connector_that_cannot_be_fetched_is_named_with_what_to_do(
    postgres: Postgres, migrated_template: str, broker: Broker
) -> None:
    with new_place(postgres, migrated_template, broker, "", ["any"]) as place:
        place.settings["kafka_packages"] = "org.example:no-such-connector:1.0"
        place.settings["spark_conf"] = f"spark.jars.ivy={place.directory}/ivy"
        told = run_batch(place.settings)
    assert told.returncode == 2
    assert "It had to fetch org.example:no-such-connector:1.0 from Maven" in told.stderr
    assert "kafka_jars" in told.stderr


# What came of it


def audited(place: Place, code: int) -> Any:
    """What `correlator audit` has to say of the topics."""
    told = run_audit(place.settings)
    assert told.returncode == code, told.stdout + told.stderr
    return next(check for check in json.loads(told.stdout)["checks"] if check["name"] == "kafka")


def read_of(place: Place, topic: str) -> int:
    """How many messages of a topic the ledger has."""
    return sum(span["events"] for span in spans(place) if span["origin"].rpartition("/")[0] == topic)


def spans(place: Place) -> list[Any]:
    with place.database.connect("test") as connection:
        rows = connection.execute("SELECT offsets FROM pipeline_batches WHERE offsets IS NOT NULL").fetchall()
    return [span for (offsets,) in rows for span in offsets]


def check_ledger(broker: Broker, place: Place, topic: str) -> None:
    """Every offset of every partition is in exactly one batch."""
    of_partition = defaultdict(list)
    for span in spans(place):
        name, _, partition = span["origin"].rpartition("/")
        if name == topic:
            of_partition[int(partition)].append(span)
    for partition, found in of_partition.items():
        found.sort(key=lambda span: span["first"])
        expected = 0
        for span in found:
            assert span["first"] == expected
            assert span["events"] == span["last"] - span["first"] + 1
            expected = span["last"] + 1
        assert expected == broker.end(topic, partition)


def check_facts(broker: Broker, place: Place, topics: Iterable[str] = STREAMED) -> None:
    there = [topic for topic in topics if topic in broker.admin.list_topics(timeout=60).topics]
    check_equal(place, [message for topic in there for message in messages(broker, topic)])


def check_equal(place: Place, sent: Iterable[Message]) -> None:
    """The tables are what the rulebook makes of the messages."""
    verdicts = [judge(message.value) for message in sent]
    with place.database.connect("test") as connection:
        found = read_facts(connection)
    assert differences(found, fold([v for v in verdicts if not isinstance(v, Rejection)])) == []


def archived(place: Place, topic: str) -> list[Message]:
    """The messages of a topic in the directories that count."""
    with place.database.connect("test") as connection:
        directories = [row[0] for row in connection.execute("SELECT directory FROM archive_batches").fetchall()]
    paths = [path for each in directories for path in (place.directory / "archive" / each).rglob("*.parquet")]
    if not paths:
        return []
    rows = pads.dataset([str(path) for path in paths]).to_table().to_pylist()
    return sorted(
        Message(
            row["origin"],
            row["position"],
            row["key"],
            [(header["key"], header["value"]) for header in row["headers"] or []],
            row["raw"],
        )
        for row in rows
        if row["origin"].rpartition("/")[0] == topic
    )


# What is sent


def official_events() -> list[RunEvent | JobEvent | DatasetEvent]:
    """As the official client makes them: a run, twice retried, its job and its dataset."""
    job = Job("shop", "load")
    orders = OutputDataset("postgres://db", "orders")
    described = StaticDataset(
        "postgres://db",
        "orders",
        facets={"documentation": documentation_dataset.DocumentationDatasetFacet("All orders.")},
    )
    runs = [
        RunEvent(eventTime=f"2026-11-01T10:0{minute}:00Z", run=Run(run), job=job, eventType=state, producer=PRODUCER)
        for run in (str(uuid4()), str(uuid4()))
        for minute, state in enumerate((RunState.START, RunState.COMPLETE))
    ]
    documented = Job("shop", "load", facets={"documentation": documentation_job.DocumentationJobFacet("Loads.")})
    return [
        *runs,
        JobEvent(eventTime="2026-11-01T09:00:00Z", job=documented, producer=PRODUCER, outputs=[orders]),
        DatasetEvent(eventTime="2026-11-01T09:00:00Z", dataset=described, producer=PRODUCER),
    ]


def fill(broker: Broker, topic: str, events: int, partitions: int) -> None:
    """Events that nobody else sends."""
    before = sum(broker.end(topic, partition) for partition in range(partitions))
    producer = broker.producer()
    for number in range(events):
        raw = json.dumps(run_event(run_id=str(uuid4()), job=f"{topic} {number}"))
        producer.produce(topic, raw, partition=number % partitions)
    producer.flush()
    assert sum(broker.end(topic, partition) for partition in range(partitions)) == before + events


def messages(broker: Broker, topic: str) -> list[Message]:
    """All that there is in a topic, read by a client of its own."""
    partitions = broker.admin.list_topics(topic, timeout=60).topics[topic].partitions
    ends = {partition: broker.end(topic, partition) for partition in partitions}
    consumer = Consumer(
        {"bootstrap.servers": broker.servers, "group.id": "test", "auto.offset.reset": "earliest", "log_level": 0}
    )
    found: list[Message] = []
    try:
        for partition, end in ends.items():
            first, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
            consumer.assign([TopicPartition(topic, partition, first)])
            offset = first - 1
            while offset < end - 1:
                message = consumer.poll(60)
                assert message is not None
                assert message.error() is None
                offset = message.offset() or 0
                headers: Any = message.headers() or []
                found.append(Message(f"{topic}/{partition}", offset, message.key(), headers, message.value() or b""))
    finally:
        consumer.close()
    return sorted(found)

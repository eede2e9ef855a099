"""What a broker says of topics: which there are, their partitions, and from where to where each can be read.

Asked with the client that Spark's connector brings along, so with the same options and the same rights.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

_PREFIX: Final = "kafka."
_PATIENCE: Final = {"default.api.timeout.ms": "20000", "request.timeout.ms": "10000"}


class BrokerError(Exception):
    """The broker could not be asked. Its text says what to do."""


class Extent(msgspec.Struct, frozen=True):
    """What a partition holds: the offset of its first message, and the one that its next will have."""

    first: int
    end: int


class Topic(msgspec.Struct, frozen=True):
    name: str
    id: str | None
    """One that is deleted and made again has another. A broker before 2.8 has none."""
    partitions: Mapping[int, Extent]


def look_at(spark: SparkSession, names: Iterable[str], options: Mapping[str, str]) -> dict[str, Topic]:
    """Those of the topics that there are, by name."""
    # PySpark has no other way to classes of the JVM.
    jvm: Any = spark._jvm  # noqa: SLF001
    properties = jvm.java.util.Properties()
    said = {name.removeprefix(_PREFIX): value for name, value in options.items() if name.startswith(_PREFIX)}
    for name, value in {**_PATIENCE, **said}.items():
        properties.setProperty(name, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
    except Py4JJavaError as error:
        raise BrokerError(f"kafka: the client cannot be made of kafka_options: {_words(error)}") from None
    except (Py4JError, TypeError):
        raise BrokerError("kafka: Spark runs without its Kafka connector; say kafka_packages or kafka_jars.") from None
    try:
        return _described(jvm, admin, names)
    except Py4JJavaError as error:
        servers = said.get("bootstrap.servers", "")
        raise BrokerError(
            f"kafka: the broker at {servers} could not be asked: {_words(error)} "
            "Is it there, and do kafka_servers and the security options of kafka_options fit it?"
        ) from None
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(1))


def _described(jvm: Any, admin: Any, names: Iterable[str]) -> dict[str, Topic]:
    there = set(admin.listTopics().names().get())
    found = jvm.java.util.ArrayList()
    for name in names:
        if name in there:
            found.add(name)
    topics = {}
    for description in admin.describeTopics(found).allTopicNames().get().values():
        name, unique = description.name(), description.topicId()
        numbers = [partition.partition() for partition in description.partitions()]
        first = _offsets(jvm, admin, name, numbers, jvm.org.apache.kafka.clients.admin.OffsetSpec.earliest())
        end = _offsets(jvm, admin, name, numbers, jvm.org.apache.kafka.clients.admin.OffsetSpec.latest())
        is_none = unique.equals(jvm.org.apache.kafka.common.Uuid.ZERO_UUID)
        extents = {number: Extent(first[number], end[number]) for number in numbers}
        topics[name] = Topic(name, None if is_none else unique.toString(), extents)
    return topics


def _offsets(jvm: Any, admin: Any, topic: str, numbers: Iterable[int], which: Any) -> dict[int, int]:
    asked = jvm.java.util.HashMap()
    for number in numbers:
        asked.put(jvm.org.apache.kafka.common.TopicPartition(topic, number), which)
    answers = admin.listOffsets(asked).all().get()
    return {partition.partition(): answers[partition].offset() for partition in answers}


def _words(error: Py4JJavaError) -> str:
    """What Java says, of the innermost cause; without the stack."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return f"{(cause.getMessage() or cause.getClass().getSimpleName()).strip().rstrip('.')}."

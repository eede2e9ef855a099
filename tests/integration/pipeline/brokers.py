"""A real broker: one node of Kafka in KRaft mode, in a process that a test can kill and start again."""

import base64
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.integration.pipeline import maven

T = TypeVar("T")

_PATIENCE = 180
_QUIET = {"log_level": 0, "socket.timeout.ms": 20_000, "reconnect.backoff.max.ms": 500}


class Broker:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._classpath = ":".join(map(str, maven.jars(maven.BROKER)))
        port, controller = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        self._port = port
        self._settings = directory / "server.properties"
        self._settings.write_text(_SETTINGS.format(port=port, controller=controller, log_dir=directory / "log"))
        cluster = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        subprocess.run(  # noqa: S603 (Kafka's own tool, with arguments of our own)
            self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings)),
            check=True,
            capture_output=True,
            timeout=_PATIENCE,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        self.admin = AdminClient({"bootstrap.servers": self.servers, **_QUIET})

    def start(self) -> None:
        with (self._directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                self._java("kafka.Kafka", str(self._settings)), stdout=log, stderr=log
            )
        deadline = time.monotonic() + _PATIENCE
        while True:
            assert self._process.poll() is None, (self._directory / "broker.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                assert time.monotonic() < deadline, "the broker does not listen"
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """kill -9: nothing is flushed, nobody is told."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.servers, **_QUIET, **settings})

    def create(self, topic: str, partitions: int) -> None:
        """Right after it was deleted, the name may still be taken."""
        _again(lambda: self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_PATIENCE))
        # The controller has it; the broker, which the clients ask, learns of it a moment later.
        _until(lambda: topic in self.admin.list_topics(timeout=_PATIENCE).topics)
        for partition in range(partitions):
            self.end(topic, partition)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(_PATIENCE)
        _until(lambda: topic not in self.admin.list_topics(timeout=_PATIENCE).topics)

    def widen(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(_PATIENCE)

    def forget_before(self, topic: str, partition: int, offset: int) -> None:
        """What retention does, at once."""
        for deleted in self.admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            deleted.result(_PATIENCE)

    def end(self, topic: str, partition: int) -> int:
        """The offset that its next message will have. A partition that was just made has no leader yet."""
        where = TopicPartition(topic, partition)
        # A consumer of its own each time: one that knows the topic does not ask again how many partitions it has.
        watcher = Consumer({"bootstrap.servers": self.servers, "group.id": "watcher", **_QUIET})
        try:
            return int(_again(lambda: watcher.get_watermark_offsets(where, timeout=10))[1])
        finally:
            watcher.close()

    def _java(self, *command: str) -> list[str]:
        java = shutil.which("java")
        assert java is not None
        return [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", self._classpath, *command]


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _again(call: Callable[[], T]) -> T:
    """Until the broker does not refuse any more."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return call()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextmanager
def running_broker(directory: Path) -> Iterator[Broker]:
    broker = Broker(directory)
    try:
        yield broker
    finally:
        broker.kill()


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


_SETTINGS = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={log_dir}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
message.max.bytes=4000000
"""

"""A Kafka topic. The key is that of the run's hierarchy, so that a run and all it started stay in order.

Each batch is handed to the producer in order and waited for; the producer is idempotent, so what it sends again itself
neither doubles nor overtakes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from correlator.proxy.destinations import ACCEPTED, DestinationError, Later, Options, Refused, Result, Spec

try:
    from confluent_kafka import KafkaError, KafkaException, Producer
except ModuleNotFoundError as error:
    raise DestinationError(
        "A destination kafka: needs the package confluent-kafka: pip install 'openlineage-correlator[proxy-kafka]'"
    ) from error

_SLICE_SECONDS: Final = 0.2
_SETTLING_SECONDS: Final = 5.0
_FOR_GOOD: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD})
_MISDIRECTED: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 (so they are called)
        KafkaError._AUTHENTICATION,  # noqa: SLF001
    }
)


class KafkaDestination:
    def __init__(self, spec: Spec, timeout: float) -> None:
        servers, slash, topic = spec.target.partition(":")[2].rpartition("/")
        if not slash or not servers or not topic:
            raise DestinationError(f"{spec.target!r} is not written kafka:HOST:PORT,…/TOPIC.")
        self._topic = topic
        self._timeout = timeout
        self._settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "client.id": "correlator-proxy",
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "lz4",
            "linger.ms": 0,
            "message.max.bytes": 64 * 2**20,
            "queue.buffering.max.kbytes": 64 * 1024,
            "delivery.timeout.ms": max(1000, int(timeout * 1000)),
            "socket.timeout.ms": max(1000, int(timeout * 1000)),
            "log_level": 0,
            **_file_options(Options(spec).rest()),
        }
        self._producer: Producer | None = None
        self._is_interrupted = False

    def send(self, events: Sequence[bytes]) -> Sequence[Result]:
        results: list[Result | None] = [None] * len(events)
        try:
            if self._producer is None:
                self._producer = Producer(self._settings)
            for index, event in enumerate(events):
                self._producer.produce(self._topic, event, key_of(event), on_delivery=_into(results, index))
        except (KafkaException, BufferError, ValueError) as error:
            failed = Later(f"the producer failed: {error}")
        else:
            failed = Later("it does not answer in time (destination_timeout)")
        self._settle(results)
        told = [failed if result is None else result for result in results]
        if any(isinstance(result, Later) for result in told):
            # What may still be on its way must not come after what is sent again.
            self.close()
        return told

    def _settle(self, results: Sequence[Result | None]) -> None:
        waited = 0.0
        while self._producer is not None and waited < self._timeout + _SETTLING_SECONDS and not self._is_interrupted:
            if self._producer.flush(_SLICE_SECONDS) == 0 or all(results):
                return
            waited += _SLICE_SECONDS

    def interrupt(self) -> None:
        self._is_interrupted = True

    def close(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(_SLICE_SECONDS)
            self._producer = None


def make(spec: Spec, timeout: float) -> KafkaDestination:
    return KafkaDestination(spec, timeout)


def _into(results: list[Result | None], index: int) -> Callable[[KafkaError | None, object], None]:
    def told(error: KafkaError | None, _: object) -> None:
        if error is None:
            results[index] = ACCEPTED
        elif error.code() in _FOR_GOOD:
            results[index] = Refused(f"Kafka refused it: {error.str()}", answer=error.str())
        else:
            results[index] = Later(error.str(), is_misdirected=error.code() in _MISDIRECTED)

    return told


def _file_options(options: dict[str, str]) -> dict[str, str]:
    """Options are those of librdkafka; `NAME_file` reads one from a file, for passwords."""
    found = {}
    for name, value in options.items():
        if name.endswith("_file"):
            with open(value, encoding="utf-8") as file:  # noqa: PTH123
                found[name.removesuffix("_file")] = file.read().strip()
        else:
            found[name] = value
    return found


class _Name(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _Root(msgspec.Struct):
    job: _Name | None = None


class _Parent(msgspec.Struct):
    job: _Name | None = None
    root: _Root | None = None


class _RunFacets(msgspec.Struct):
    parent: _Parent | None = None
    parentRun: _Parent | None = None  # noqa: N815 (its old name)


class _Run(msgspec.Struct):
    facets: _RunFacets | None = None


class _Event(msgspec.Struct):
    run: _Run | None = None
    job: _Name | None = None
    dataset: _Name | None = None


_decode: Final = msgspec.json.Decoder(_Event).decode


def key_of(event: bytes) -> bytes:
    """As OpenLineage's own Kafka transport has it: `run:` and the topmost job that is known, `job:`, `dataset:`."""
    try:
        said = _decode(event)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # A facet of another shape: the event alone tells its key.
        said = _decode_without_facets(event)
    if said.run is not None and said.job is not None:
        facets = said.run.facets
        parent = None if facets is None else facets.parent or facets.parentRun
        root = None if parent is None or parent.root is None else parent.root.job
        job = root or (None if parent is None else parent.job) or said.job
        return f"run:{job.namespace}/{job.name}".encode()
    if said.dataset is not None:
        return f"dataset:{said.dataset.namespace}/{said.dataset.name}".encode()
    job = said.job or _Name()
    return f"job:{job.namespace}/{job.name}".encode()


class _Bare(msgspec.Struct):
    run: msgspec.Raw = msgspec.Raw()
    job: _Name | None = None
    dataset: _Name | None = None


_decode_bare: Final = msgspec.json.Decoder(_Bare).decode


def _decode_without_facets(event: bytes) -> _Event:
    bare = _decode_bare(event)
    return _Event(_Run() if bytes(bare.run) else None, bare.job, bare.dataset)

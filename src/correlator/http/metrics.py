"""Figures for Prometheus (text format 0.0.4) and OpenMetrics: counters, gauges, histograms; those of every request.

Made for being counted in the middle of a request: to observe is a look into a dict and an addition. Each series has one
thread that writes it (the event loop its own, a committer its own), so nothing is locked; whoever renders only reads.
What is read is a `Family`, a plain value, so that several processes can be added up (`shared_figures`).
"""

import os
import resource
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

DURATIONS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
_MOST_SERIES = 1000
"""A label whose values a client could choose would otherwise fill the memory."""
_OTHER = "other"

START_TIME: Final = "process_start_time_seconds"


Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Together: TypeAlias = Literal["sum", "least", "most"]
"""What the figures of several processes are together."""


class Family(msgspec.Struct, frozen=True):
    """All samples of one name at one moment."""

    name: str
    kind: Kind
    about: str
    samples: dict[str, float]
    """By what stands before the value: name and labels."""
    together: Together = "sum"
    labels: tuple[str, ...] = ()
    """What tells its samples apart, be there any or not."""

    def lines(self) -> Iterator[str]:
        """As Prometheus reads it, HELP and TYPE first. Nothing where there is no sample."""
        if self.samples:
            about = self.about.replace("\\", "\\\\").replace("\n", "\\n")
            yield f"# HELP {self.name} {about}"
            yield f"# TYPE {self.name} {self.kind}"
            for sample, value in self.samples.items():
                yield f"{sample} {_number(value)}"

    def open_lines(self) -> Iterator[str]:
        """The same as OpenMetrics 1.0 has it: a counter's family is called without the `_total` of its samples."""
        if self.samples:
            name = self.name.removesuffix("_total") if self.kind == "counter" else self.name
            about = self.about.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
            yield f"# TYPE {name} {self.kind}"
            yield f"# HELP {name} {about}"
            for sample, value in self.samples.items():
                yield f"{sample} {_number(value)}"


class Metric(Protocol):
    def family(self) -> Family:
        """What it has come to."""


def render(families: Iterable[Family]) -> bytes:
    return "".join(f"{line}\n" for family in families for line in family.lines()).encode()


def render_open(families: Iterable[Family]) -> bytes:
    return ("".join(f"{line}\n" for family in families for line in family.open_lines()) + "# EOF\n").encode()


class Counter:
    """It only ever grows. One series for each combination of the labels' values."""

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()) -> None:
        self._name = name
        self._about = about
        self._labels = tuple(labels)
        self._counts: dict[tuple[str | int, ...], float] = {} if self._labels else {(): 0}

    def add(self, labels: tuple[str | int, ...] = (), amount: float = 1) -> None:
        try:
            self._counts[labels] += amount
        except KeyError:
            if len(self._counts) >= _MOST_SERIES:
                labels = (_OTHER,) * len(self._labels)
            self._counts[labels] = self._counts.get(labels, 0) + amount

    def value(self, labels: tuple[str | int, ...] = ()) -> float:
        return self._counts.get(labels, 0)

    def family(self) -> Family:
        samples = {self._name + _labelled(self._labels, labels): count for labels, count in list(self._counts.items())}
        return Family(self._name, "counter", self._about, samples, labels=self._labels)


class Gauge:
    """A value that is asked for when somebody looks. What cannot be told (None) is left out."""

    def __init__(
        self,
        name: str,
        about: str,
        read: Callable[[], float | None],
        *,
        kind: Kind = "gauge",
        together: Together = "sum",
    ) -> None:
        self._name = name
        self._about = about
        self._read = read
        self._kind = kind
        self._together = together

    def family(self) -> Family:
        value = self._read()
        samples = {} if value is None else {self._name: value}
        return Family(self._name, self._kind, self._about, samples, self._together)


class Readings:
    """Values that somebody else keeps, one for each combination of the labels' values, asked for like a gauge."""

    def __init__(
        self,
        name: str,
        about: str,
        labels: Sequence[str],
        read: Callable[[], Iterable[tuple[tuple[str, ...], float]]],
        *,
        kind: Kind = "gauge",
        together: Together = "most",
    ) -> None:
        self._name = name
        self._about = about
        self._labels = tuple(labels)
        self._read = read
        self._kind = kind
        self._together = together

    def family(self) -> Family:
        samples = {self._name + _labelled(self._labels, values): value for values, value in self._read()}
        return Family(self._name, self._kind, self._about, samples, self._together, self._labels)


class Info:
    """A gauge that is always 1: what it says stands in its labels."""

    def __init__(self, name: str, about: str, labels: dict[str, str]) -> None:
        self._name = name
        self._about = about
        self._values = labels

    def family(self) -> Family:
        sample = self._name + _labelled(tuple(self._values), tuple(self._values.values()))
        return Family(self._name, "gauge", self._about, {sample: 1}, "most", tuple(self._values))


class Histogram:
    """How often a value fell below each bound, with their sum and their number."""

    def __init__(
        self, name: str, about: str, bounds: Sequence[float] = DURATIONS, *, labels: Sequence[str] = ()
    ) -> None:
        self._name = name
        self._about = about
        self._bounds = tuple(bounds)
        self._labels = tuple(labels)
        self._series: dict[tuple[str | int, ...], list[float]] = {}
        if not self._labels:
            self._new(())

    def observe(self, value: float, labels: tuple[str | int, ...] = ()) -> None:
        series = self._series.get(labels) or self._new(labels)
        series[bisect_left(self._bounds, value)] += 1
        series[-1] += value

    def _new(self, labels: tuple[str | int, ...]) -> list[float]:
        if len(self._series) >= _MOST_SERIES:
            labels = (_OTHER,) * len(self._labels)
        # One count for each bound, one for what is above them all, and the sum.
        return self._series.setdefault(labels, [0] * (len(self._bounds) + 1) + [0.0])

    def family(self) -> Family:
        names = (*self._labels, "le")
        samples: dict[str, float] = {}
        for labels, series in list(self._series.items()):
            *counts, total = tuple(series)
            below = 0.0
            for bound, count in zip((*map(_number, self._bounds), "+Inf"), counts, strict=True):
                below += count
                samples[f"{self._name}_bucket{_labelled(names, (*labels, bound))}"] = below
            samples[f"{self._name}_sum{_labelled(self._labels, labels)}"] = total
            samples[f"{self._name}_count{_labelled(self._labels, labels)}"] = below
        return Family(self._name, "histogram", self._about, samples, labels=self._labels)


class HttpMetrics:
    """What is counted of every request, whoever serves it, and what its server adds."""

    def __init__(self, version: str) -> None:
        self._metrics: list[Metric] = []
        self.requests = self.counter(
            "correlator_http_requests_total", "Requests by endpoint and status.", ("endpoint", "status")
        )
        self.request_seconds = self.histogram(
            "correlator_http_request_duration_seconds",
            "From the first line of a request to the end of its answer.",
            DURATIONS,
            ("endpoint",),
        )
        self.refused = self.counter(
            "correlator_http_refused_total",
            "Requests refused as a whole, by the slug of the problem (see /docs).",
            ("reason",),
        )
        self.body_bytes = self.counter("correlator_http_body_bytes_total", "Bytes of bodies as they were sent.")
        self.add(Info("correlator_build_info", "The version that runs.", {"version": version, "python": _python()}))
        for gauge in process_gauges():
            self.add(gauge)

    def count_events(self, endpoint: str, received: int, stored: int, duplicates: int, rejected: int) -> None:
        """What became of the events of one request."""
        raise NotImplementedError

    def add(self, metric: Metric) -> None:
        self._metrics.append(metric)

    def gauge(self, name: str, about: str, read: Callable[[], float | None], *, together: Together = "sum") -> None:
        """Something that another part knows and that is asked when somebody looks."""
        self.add(Gauge(name, about, read, together=together))

    def counter(self, name: str, about: str, labels: Sequence[str] = ()) -> Counter:
        counter = Counter(name, about, labels)
        self.add(counter)
        return counter

    def histogram(
        self, name: str, about: str, bounds: Sequence[float] = DURATIONS, labels: Sequence[str] = ()
    ) -> Histogram:
        histogram = Histogram(name, about, bounds, labels=labels)
        self.add(histogram)
        return histogram

    def families(self) -> list[Family]:
        return [metric.family() for metric in self._metrics]


def _labelled(names: Sequence[str], values: Sequence[str | int]) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escaped(value: str | int) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def process_gauges() -> tuple[Gauge, ...]:
    """The names that Prometheus's own clients use. Elsewhere than on Linux some are missing."""
    started_at = time.time()
    page = os.sysconf("SC_PAGE_SIZE")
    return (
        Gauge("process_cpu_seconds_total", "User and system time of the server.", time.process_time, kind="counter"),
        Gauge(START_TIME, "When the server started, as Unix time.", lambda: started_at, together="least"),
        Gauge("process_resident_memory_bytes", "Memory of the server.", lambda: _resident_pages(page)),
        Gauge("process_open_fds", "Open file descriptors.", _open_descriptors),
        Gauge(
            "process_max_fds",
            "The limit of file descriptors of one process.",
            lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            together="least",
        ),
    )


def _resident_pages(page: int) -> float | None:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * page
    except (OSError, IndexError, ValueError):
        return None


def _open_descriptors() -> float | None:
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return None

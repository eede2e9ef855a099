"""Metrics by statsd over UDP: counters as what has been added since the last time, gauges as they are.

A family is told under a prefix, its labels at the end of the name (`sent.prod`) or as dogstatsd's tags
(`sent|#destination:prod`). Nothing waits for anybody: what a network loses is lost, which is statsd's bargain.
"""

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final

from correlator.http.metrics import Family

_LONGEST_PACKET: Final = 1400
"""What a usual network carries in one piece."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_SAMPLE: Final = re.compile(r"([a-z_]+)(?:\{(.*)\})?")
_LABEL: Final = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')

_log = logging.getLogger(__name__)


class Statsd:
    """Tells the figures every so many seconds, in a thread of its own."""

    def __init__(
        self,
        address: tuple[str, int],
        families: Callable[[], Iterable[Family]],
        *,
        prefix: str,
        has_tags: bool,
        seconds: float,
    ) -> None:
        self._address = address
        self._families = families
        self._prefix = prefix
        self._has_tags = has_tags
        self._seconds = seconds
        self._told: dict[str, float] = {}
        self._socket: socket.socket | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="statsd", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What has been counted since the last time is told too."""
        self._stopping.set()
        self._thread.join(self._seconds)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._stopping.wait(self._seconds)
            try:
                self._tell()
            except OSError as error:
                _log.debug("statsd at %s cannot be told: %s", self._address, error)
        if self._socket is not None:
            self._socket.close()

    def _tell(self) -> None:
        if self._socket is None:
            family, kind, protocol, _, address = socket.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)[0]
            self._socket = socket.socket(family, kind, protocol)
            self._socket.connect(address)
        packet = b""
        for line in self._lines():
            if packet and len(packet) + 1 + len(line) > _LONGEST_PACKET:
                self._socket.send(packet)
                packet = b""
            packet = packet + b"\n" + line if packet else line
        if packet:
            self._socket.send(packet)

    def _lines(self) -> Iterable[bytes]:
        for family in self._families():
            if family.kind == "histogram":
                continue  # statsd makes its own, of single values
            for sample, value in family.samples.items():
                if family.kind == "gauge":
                    yield self._line(sample, value, "g")
                else:
                    added = value - self._told.get(sample, 0)
                    self._told[sample] = value
                    if added:
                        yield self._line(sample, added, "c")

    def _line(self, sample: str, value: float, kind: str) -> bytes:
        found = _SAMPLE.fullmatch(sample)
        name, labels = (sample, "") if found is None else (found[1], found[2] or "")
        name = name.removeprefix("correlator_proxy_").removesuffix("_total")
        pairs = [(key, _UNFIT.sub("_", text)) for key, text in _LABEL.findall(labels)]
        if self._has_tags:
            tags = ",".join(f"{key}:{text}" for key, text in pairs)
            return f"{self._prefix}{name}:{value:.15g}|{kind}{'|#' + tags if tags else ''}".encode()
        # A dot would make a new level of what is one word.
        end = "".join("." + text.replace(".", "_") for _, text in pairs)
        return f"{self._prefix}{name}{end}:{value:.15g}|{kind}".encode()

"""Metrics by statsd, on a real socket."""

import socket
from collections.abc import Iterator

import pytest

from correlator.http.metrics import Counter, Family, Gauge, Histogram, Readings
from correlator.proxy.statsd import Statsd


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(30)
        yield made


def told(listener: socket.socket) -> list[str]:
    return listener.recv(65536).decode().split("\n")


def test_counters_are_told_as_what_was_added_and_gauges_as_they_are(listener: socket.socket) -> None:
    received = Counter("correlator_proxy_received_total", "Events.")
    received.add((), 5)
    families = lambda: [received.family(), Gauge("correlator_proxy_buffer_bytes", "Bytes.", lambda: 12.5).family()]  # noqa: E731
    statsd = Statsd(listener.getsockname(), families, prefix="ol.", has_tags=False, seconds=0.05)
    statsd.start()
    assert told(listener) == ["ol.received:5|c", "ol.buffer_bytes:12.5|g"]
    assert told(listener) == ["ol.buffer_bytes:12.5|g"]
    received.add((), 2)
    while "ol.received:2|c" not in (lines := told(listener)):
        assert lines == ["ol.buffer_bytes:12.5|g"]
    statsd.stop()


@pytest.mark.parametrize(
    ("has_tags", "line"),
    [
        (True, "sent:3|c|#destination:https_lineage.example.com_8080"),
        (False, "sent.https_lineage_example_com_8080:3|c"),
    ],
)
def test_a_destination_is_a_tag_or_a_part_of_the_name(listener: socket.socket, has_tags: bool, line: str) -> None:  # noqa: FBT001
    sent = Readings(
        "correlator_proxy_sent_total",
        "Sent.",
        ("destination",),
        lambda: [(("https://lineage.example.com:8080",), 3)],
        kind="counter",
    )
    statsd = Statsd(listener.getsockname(), lambda: [sent.family()], prefix="", has_tags=has_tags, seconds=60)
    statsd.start()
    # What was counted until the end is told at the end.
    statsd.stop()
    assert told(listener) == [line]


def test_no_packet_is_larger_than_a_network_carries(listener: socket.socket) -> None:
    families = [
        Gauge(f"correlator_proxy_gauge_{letter * 50}", "One.", lambda: 1).family()
        for letter in "abcdefghijklmnopqrstuvwxyz" * 3
    ]
    statsd = Statsd(listener.getsockname(), lambda: families, prefix="", has_tags=False, seconds=60)
    statsd.start()
    statsd.stop()
    lines: list[str] = []
    while len(lines) < len(families):
        packet = listener.recv(65536)
        assert len(packet) <= 1400
        lines += packet.decode().split("\n")
    assert len(lines) == len(families)


def test_histograms_are_left_out_and_nobody_listening_is_no_trouble() -> None:
    histogram = Histogram("correlator_proxy_commit_events", "Events.", (1, 2))
    histogram.observe(1)
    calls: list[int] = []

    def families() -> list[Family]:
        calls.append(1)
        return [histogram.family(), Gauge("correlator_proxy_x", "X.", lambda: 1).family()]

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        address = gone.getsockname()
    statsd = Statsd(address, families, prefix="", has_tags=False, seconds=0.01)
    statsd.start()
    while len(calls) < 4:
        pass
    statsd.stop()

"""What Prometheus reads."""

import re

from correlator.http.metrics import Counter, Gauge, Histogram, Info, render, render_open
from correlator.server.metrics import Metrics

SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\.)*"(,[a-z]+="(?:[^"\\\n]|\\.)*")*\})? [-+0-9.e]+')


def test_a_counter_has_one_series_for_each_combination_of_labels() -> None:
    counter = Counter("requests_total", "How many.", ("path", "status"))
    counter.add(("/a", 200))
    counter.add(("/a", 200), 2)
    counter.add(("/b", 404))
    assert list(counter.family().lines()) == [
        "# HELP requests_total How many.",
        "# TYPE requests_total counter",
        'requests_total{path="/a",status="200"} 3',
        'requests_total{path="/b",status="404"} 1',
    ]


def test_a_counter_without_labels_is_there_from_the_start() -> None:
    assert "restarts_total 0" in Counter("restarts_total", "How often.").family().lines()


def test_labels_and_help_are_escaped() -> None:
    counter = Counter("odd_total", "Two\nlines \\ one", ("what",))
    counter.add(('quote " back \\ line \n',))
    assert list(counter.family().lines()) == [
        "# HELP odd_total Two\\nlines \\\\ one",
        "# TYPE odd_total counter",
        'odd_total{what="quote \\" back \\\\ line \\n"} 1',
    ]


def test_labels_that_never_end_are_counted_together() -> None:
    counter = Counter("many_total", "Many.", ("what",))
    for number in range(5000):
        counter.add((str(number),))
    assert len(list(counter.family().lines())) < 1100
    assert counter.value(("other",)) == 4000
    histogram = Histogram("many", "Many.", (1,), labels=("what",))
    for number in range(5000):
        histogram.observe(1, (str(number),))
    assert sum(line.startswith("many_count") for line in histogram.family().lines()) < 1100


def test_the_buckets_of_a_histogram_are_cumulative() -> None:
    histogram = Histogram("seconds", "How long.", (0.1, 1, 2.5), labels=("path",))
    for value in (0.05, 0.1, 0.5, 2.5, 99):
        histogram.observe(value, ("/a",))
    assert list(histogram.family().lines())[2:] == [
        'seconds_bucket{path="/a",le="0.1"} 2',
        'seconds_bucket{path="/a",le="1"} 3',
        'seconds_bucket{path="/a",le="2.5"} 4',
        'seconds_bucket{path="/a",le="+Inf"} 5',
        'seconds_sum{path="/a"} 102.15',
        'seconds_count{path="/a"} 5',
    ]


def test_a_gauge_that_cannot_be_told_is_left_out() -> None:
    assert not list(Gauge("head", "The head.", lambda: None).family().lines())
    assert "head 7" in Gauge("head", "The head.", lambda: 7).family().lines()


def test_what_a_build_is_stands_in_labels() -> None:
    assert 'build{version="1.0"} 1' in Info("build", "It.", {"version": "1.0"}).family().lines()


def test_every_line_of_the_server_is_one_that_prometheus_reads() -> None:
    metrics = Metrics("1.2.3")
    metrics.gauge("correlator_in_flight_bytes", "Bytes.", lambda: 12.5)
    metrics.requests.add(("/api/v1/lineage", 200))
    metrics.request_seconds.observe(0.003, ("/api/v1/lineage",))
    metrics.count_events("/api/v1/lineage", 3, 1, 1, 1)
    text = render(metrics.families()).decode()
    assert text.endswith("\n")
    declared = set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            name = line.split()[2]
            assert name not in declared
            declared.add(name)
        elif not line.startswith("# HELP"):
            assert SAMPLE.fullmatch(line), line
    assert 'correlator_events_total{endpoint="/api/v1/lineage",outcome="received"} 3' in text
    assert "process_resident_memory_bytes" in text


def test_openmetrics_calls_a_counter_without_its_ending_and_has_an_end() -> None:
    counter = Counter("sent_total", 'It says "sent".', ("to",))
    counter.add(("prod",), 2)
    assert render_open([counter.family(), Gauge("lag", "How far.", lambda: 1.5).family()]).decode().splitlines() == [
        "# TYPE sent counter",
        '# HELP sent It says \\"sent\\".',
        'sent_total{to="prod"} 2',
        "# TYPE lag gauge",
        "# HELP lag How far.",
        "lag 1.5",
        "# EOF",
    ]

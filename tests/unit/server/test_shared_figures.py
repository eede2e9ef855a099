"""The figures of several processes, told as one."""

from pathlib import Path

import pytest

from correlator.http.metrics import Counter, Family, Gauge, Histogram
from correlator.server import shared_figures
from correlator.server.shared_figures import SharedFigures, combined


def samples(families: list[Family]) -> dict[str, float]:
    return {sample: value for family in families for sample, value in family.samples.items()}


def test_counters_and_histograms_add_up_for_each_combination_of_labels() -> None:
    counters = [Counter("requests_total", "How many.", ("path",)) for _ in range(2)]
    counters[0].add(("/a",), 2)
    counters[1].add(("/a",), 3)
    counters[1].add(("/b",), 1)
    histograms = [Histogram("seconds", "How long.", (1, 2)) for _ in range(2)]
    histograms[0].observe(0.5)
    histograms[1].observe(1.5)
    together = combined(
        [[counter.family(), histogram.family()] for counter, histogram in zip(counters, histograms, strict=True)]
    )
    assert samples(together) == {
        'requests_total{path="/a"}': 5,
        'requests_total{path="/b"}': 1,
        'seconds_bucket{le="1"}': 1,
        'seconds_bucket{le="2"}': 2,
        'seconds_bucket{le="+Inf"}': 2,
        "seconds_sum": 2,
        "seconds_count": 2,
    }
    assert [family.name for family in together] == ["requests_total", "seconds"]


def test_a_gauge_says_what_several_are_together() -> None:
    def gauges(value: float) -> list[Family]:
        return [
            Gauge("waiting", "", lambda: value).family(),
            Gauge("up", "", lambda: value, together="least").family(),
            Gauge("head", "", lambda: value, together="most").family(),
        ]

    assert samples(combined([gauges(1), gauges(3)])) == {"waiting": 4, "up": 1, "head": 3}


def test_whoever_is_asked_tells_everything(tmp_path: Path) -> None:
    first, second = SharedFigures(tmp_path, "first"), SharedFigures(tmp_path, "second")
    counters = [Counter("events_total", ""), Counter("events_total", "")]
    counters[0].add((), 2)
    counters[1].add((), 5)
    first.publish([counters[0].family()])
    assert samples(second.of_all([counters[1].family()])) == {"events_total": 7}
    assert samples(first.of_all([counters[0].family()])) == {"events_total": 7}


def test_who_takes_the_place_of_a_dead_one_goes_on_from_its_counters_alone(tmp_path: Path) -> None:
    def figures(count: float) -> list[Family]:
        counter = Counter("events_total", "")
        counter.add((), count)
        return [counter.family(), Gauge("waiting", "", lambda: count).family()]

    SharedFigures(tmp_path, "place").publish(figures(7))
    successor = SharedFigures(tmp_path, "place")
    assert samples(successor.of_all(figures(1))) == {"events_total": 8, "waiting": 1}
    assert samples(successor.of_all(figures(2))) == {"events_total": 9, "waiting": 2}
    assert samples(SharedFigures(tmp_path, "place").of_all(figures(1))) == {"events_total": 10, "waiting": 1}


def test_what_a_dead_one_had_waiting_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter("events_total", "")
    counter.add((), 3)
    SharedFigures(tmp_path, "dead").publish([counter.family(), Gauge("waiting", "", lambda: 4).family()])
    alive = SharedFigures(tmp_path, "alive")
    own = [Gauge("waiting", "", lambda: 1).family()]
    assert samples(alive.of_all(own)) == {"waiting": 5, "events_total": 3}
    monkeypatch.setattr(shared_figures, "_STALE_SECONDS", 0)
    assert samples(alive.of_all(own)) == {"waiting": 1, "events_total": 3}


def test_without_the_directory_each_tells_its_own(tmp_path: Path) -> None:
    figures = SharedFigures(tmp_path / "gone", "place")
    assert samples(figures.of_all([Gauge("waiting", "", lambda: 1).family()])) == {"waiting": 1}

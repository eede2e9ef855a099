"""What the server tells of the pipeline: another process, which leaves its ledger in the database."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, TypeAlias

from correlator.http.metrics import Readings
from correlator.server.answers import PipelineHealth
from correlator.server.housekeeping import Sight
from correlator.store.ledger import Lag, SourceTotals, lag_of_facts

Look: TypeAlias = Callable[[], Sight | None]

_SOURCE: Final = ("source",)
_READER: Final = ("source", "reader")


def pipeline_health(sight: Sight) -> PipelineHealth:
    lag = lag_of_facts(sight.lags)
    # A position that runs ahead of the log is for `correlator audit` to tell.
    return PipelineHealth(
        lag_events=max(0, lag.events),
        lag_seconds=lag.seconds,
        last_batch_at=max((totals.committed_at for totals in sight.pipeline), default=None),
    )


def pipeline_figures(look: Look) -> tuple[Readings, ...]:
    """Every worker sees the same database: together they have what the last one saw."""
    return (
        Readings(
            "correlator_pipeline_events_total",
            "Events that the pipeline took from a source, by outcome: read = applied + duplicate + rejected.",
            ("source", "outcome"),
            lambda: _outcomes(_totals(look)),
            kind="counter",
        ),
        Readings(
            "correlator_pipeline_batches_total",
            "Batches that the pipeline has merged.",
            _SOURCE,
            lambda: [((totals.source,), totals.batches) for totals in _totals(look)],
            kind="counter",
        ),
        Readings(
            "correlator_pipeline_last_batch_seconds",
            "How long the last batch took, from its first task to its commit.",
            _SOURCE,
            lambda: [((totals.source,), totals.seconds) for totals in _totals(look)],
        ),
        Readings(
            "correlator_pipeline_last_batch_timestamp_seconds",
            "When the last batch was merged, as Unix time.",
            _SOURCE,
            lambda: [((totals.source,), totals.committed_at.timestamp()) for totals in _totals(look)],
        ),
        Readings(
            "correlator_pipeline_lag_events",
            "Events that a reader (facts or archive) has not read yet; of files nobody has counted them.",
            _READER,
            partial(_by_reader, look, lambda lag: lag.events),
        ),
        Readings(
            "correlator_pipeline_lag_seconds",
            "How long the oldest event has waited that a reader has not read yet.",
            _READER,
            partial(_by_reader, look, lambda lag: lag.seconds),
        ),
    )


def _totals(look: Look) -> list[SourceTotals]:
    sight = look()
    return [] if sight is None else sight.pipeline


def _outcomes(everything: Iterable[SourceTotals]) -> Iterator[tuple[tuple[str, str], float]]:
    for totals in everything:
        yield (totals.source, "read"), totals.read
        yield (totals.source, "applied"), totals.applied
        yield (totals.source, "duplicate"), totals.duplicates
        yield (totals.source, "rejected"), totals.rejected


def _by_reader(look: Look, value: Callable[[Lag], float]) -> list[tuple[tuple[str, str], float]]:
    sight = look()
    return [] if sight is None else [((lag.source, lag.reader), value(lag)) for lag in sight.lags]

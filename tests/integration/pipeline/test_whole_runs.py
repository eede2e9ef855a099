"""Runs that a task reads from their start to their end are staged by it, and need no shuffle."""

import pytest

from correlator.pipeline import stages
from correlator.pipeline.stages import Kind, StagedRuns, Staging, _fold_arrivals
from correlator.rulebook import facts as f
from correlator.rulebook.bundles import merge_bundles
from correlator.rulebook.decode import judge
from correlator.rulebook.fold import fold
from correlator.store.database import Database
from correlator.store.fact_rows import read_facts
from correlator.store.merge import merge
from correlator.store.staging import begin, parts, prepare, stage
from tests.integration.pipeline.histories import accepted, raws_of
from tests.integration.store.merging import SOURCE, batch_of, differences
from tests.property.test_stage_properties import batch_of as arrow_batch_of
from tests.unit.rulebook.histories import OTHER_RUN, RUN, Json, dataset, run_json


def test_only_what_is_not_whole_goes_through_the_shuffle(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run is whole in the first batch and once more in the second; another is apart; more come in later parts."""
    monkeypatch.setattr(stages, "_PART_RUNS", 2)
    first = [told("START", 0, RUN), told("COMPLETE", 1, RUN), told("START", 1, OTHER_RUN)]
    second = [told("START", 2, RUN), told("COMPLETE", 3, RUN, output="late"), told("COMPLETE", 3, OTHER_RUN)]
    third, fourth = (
        [told(state, minute, f"33333333-3333-4333-8333-{minute:012}") for state in ("START", "COMPLETE")]
        for minute in (5, 6)
    )
    raws = [raws_of(history) for history in (first, second, third, fourth)]
    with database.connect("test", autocommit=True) as connection:
        prepare(connection, SOURCE)
        attempt = begin(connection, SOURCE)

        with StagedRuns(Staging(database.url, SOURCE, attempt)) as take_whole:
            batches = [arrow_batch_of(some, 100 * number) for number, some in enumerate(raws)]
            parcels = list(_fold_arrivals(batches, judge, take_whole))

        sent = merge_bundles(parcel.payload for parcel in parcels if parcel.kind == Kind.BUNDLE)
        of_runs = {row["identity"][4] for row in sent.rows(f.JOB_RUNS).values()}
        assert of_runs == {RUN, OTHER_RUN}
        assert len(parts(connection, attempt)) == 2
        stage(connection, attempt, sent, number=attempt.part(1))
        merge(connection, attempt, batch_of())

        assert differences(fold(accepted([raw for some in raws for raw in some])), read_facts(connection)) == []


def told(state: str, minute: int, run: str, output: str = "orders") -> Json:
    return run_json(state, minute, run=run, outputs=[dataset(output)])

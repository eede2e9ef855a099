"""What is said of one entity travels in one parcel, however much it is."""

from correlator.rulebook import facts as f
from correlator.rulebook.bundles import bundles, merge_bundles, unbundle
from correlator.rulebook.fold import fold
from correlator.rulebook.identity import job_key, job_run_key
from tests.unit.rulebook.histories import RUN, dataset, job_event, run_event

MANY = 5_000


def test_a_run_that_several_batches_name_is_one_run_where_they_meet() -> None:
    start, end = run_event("START", 0, inputs=[dataset("orders")]), run_event("COMPLETE", 5, outputs=[dataset("sales")])
    entity = b"r" + job_run_key("airflow", "etl.orders", RUN)

    sent = [dict(bundles(fold([event])))[entity] for event in (end, start)]
    merged = merge_bundles(sent)

    (row,) = merged.rows(f.JOB_RUNS).values()
    whole = fold([start, end])
    assert row == whole.rows(f.JOB_RUNS)[entity[1:],]
    assert merged.rows(f.LINEAGE_EDGES) == whole.rows(f.LINEAGE_EDGES)


def test_a_run_with_thousands_of_outputs_comes_through_whole() -> None:
    outputs = [dataset(f"table_{number}") for number in range(MANY)]
    first = run_event("START", 0, outputs=outputs[: MANY // 2 + 7])
    second = run_event("COMPLETE", 5, outputs=outputs[MANY // 2 - 7 :])
    whole = fold([first, second])

    sent = [bundle for event in (second, first) for bundle in bundles(fold([event]))]

    assert len(whole.rows(f.LINEAGE_EDGES)) == MANY
    assert merge_bundles(payload for _, payload in sent) == whole
    largest = dict(bundles(whole))[b"r" + job_run_key("airflow", "etl.orders", RUN)]
    assert sum(table is f.LINEAGE_EDGES for table, _, _ in unbundle(largest)) == MANY


def test_a_job_with_thousands_of_declarations_comes_through_whole() -> None:
    events = [job_event(number / 60, job="load", inputs=[dataset(f"table_{number % 3}")]) for number in range(MANY)]
    whole = fold(events)

    sent = [bundle for part in (events[1::2], events[::2]) for bundle in bundles(fold(part))]

    assert len(whole.rows(f.DECLARATIONS)) == MANY
    assert merge_bundles(payload for _, payload in sent) == whole
    of_job = dict(bundles(whole))[b"j" + job_key("airflow", "load")]
    assert sum(table is f.DECLARATIONS for table, _, _ in unbundle(of_job)) == MANY

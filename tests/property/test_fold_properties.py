"""P2: the facts are a function of the set of events. Order, duplication and batching change nothing."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from correlator.rulebook import facts as f
from correlator.rulebook.bundles import bundles, merge_bundles, unbundle
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection, RunEvent
from correlator.rulebook.facts import Facts
from correlator.rulebook.fold import fold, fold_batch
from correlator.rulebook.gists import lineage
from correlator.rulebook.identity import content_digest, idempotency_key
from correlator.rulebook.run_cycle import TERMINAL
from correlator.rulebook.runs import run_view
from correlator.rulebook.statements import statement
from tests.unit.rulebook.histories import DB, PRODUCER, SCHEMA, Json, assertions, at, dataset, facet, parent, run_json

# A small world, so that events meet: the same runs, tables and instants again and again.
RUNS = st.sampled_from(["11111111-1111-4111-8111-111111111111", "not-a-uuid", "33333333-3333-4333-8333-333333333333"])
JOBS = st.sampled_from(["load", "transform"])
MINUTES = st.integers(0, 4)
NAMES = st.sampled_from(["orders", "sales", "orders__tmp"])
NAMESPACES = st.sampled_from([DB, "postgresql://DB", "s3://bucket"])
COLUMNS = st.lists(st.sampled_from(["id", "amount", "city"]), unique=True, max_size=3)
TYPES = st.sampled_from(["START", "RUNNING", "COMPLETE", "FAIL", "ABORT", "OTHER"])


def maybe(strategy: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """One facet, or none, as a dict to merge."""
    return st.one_of(st.just({}), strategy)


def merged(*strategies: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.tuples(*strategies).map(lambda parts: {key: value for part in parts for key, value in part.items()})


SCHEMAS = COLUMNS.map(lambda columns: {"schema": facet(fields=[{"name": column} for column in columns])})
DELETED = st.sampled_from(["schema", "documentation", "symlinks"]).map(lambda key: {key: facet(_deleted=True)})
DOCUMENTED = st.sampled_from(["a", "b"]).map(lambda text: {"documentation": facet(description=text)})
RENAMED = st.builds(
    lambda ns, name: {
        "lifecycleStateChange": facet(lifecycleStateChange="RENAME", previousIdentifier={"namespace": ns, "name": name})
    },
    NAMESPACES,
    NAMES,
)
SOURCED = st.dictionaries(st.sampled_from(["id", "amount"]), st.tuples(NAMESPACES, NAMES), max_size=2).map(
    lambda sources: {
        "columnLineage": facet(
            fields={
                column: {"inputFields": [{"namespace": namespace, "name": name, "field": "id"}]}
                for column, (namespace, name) in sources.items()
            }
        )
    }
)
BROKEN = st.just({"ownership": facet(owners="nobody")})
TESTED = st.builds(
    lambda column, success, severity: assertions(
        {"assertion": "not_null", "column": column, "success": success, "severity": severity}
    ),
    st.sampled_from(["id", "amount"]),
    st.booleans(),
    st.sampled_from(["warn", "error"]),
)
COUNTED = st.integers(0, 3).map(lambda rows: {"outputStatistics": facet(rowCount=rows)})
VERSIONED = st.sampled_from(["1", "2"]).map(lambda version: {"version": facet(datasetVersion=version)})

DATASET_FACETS = merged(*map(maybe, (SCHEMAS, DELETED, DOCUMENTED, RENAMED, SOURCED, BROKEN, VERSIONED)))
INPUTS = st.builds(
    lambda name, ns, facets, own: dataset(name, ns, facets=facets, inputFacets=own),
    NAMES,
    NAMESPACES,
    DATASET_FACETS,
    maybe(TESTED),
)
OUTPUTS = st.builds(
    lambda name, ns, facets, own: dataset(name, ns, facets=facets, outputFacets=own),
    NAMES,
    NAMESPACES,
    DATASET_FACETS,
    merged(maybe(COUNTED), maybe(TESTED)),
)
LINEAGE = st.builds(
    lambda target, sources: {
        "lineage": facet(
            entries=[
                {
                    "type": "DATASET",
                    "namespace": DB,
                    "name": target,
                    "inputs": [{"type": "DATASET", "namespace": DB, "name": source} for source in sources],
                }
            ]
        )
    },
    NAMES,
    st.lists(NAMES, max_size=2),
)
JOB_FACETS = merged(
    maybe(st.sampled_from(["select 1", "select 2"]).map(lambda query: {"sql": facet(query=query)})),
    maybe(st.just({"sql": facet(_deleted=True)})),
    maybe(
        st.sampled_from(["BATCH", "STREAMING"]).map(
            lambda kind: {"jobType": facet(processingType=kind, integration="X", jobType="TEST")}
        )
    ),
    maybe(LINEAGE),
)
RUN_FACETS = merged(
    maybe(st.builds(lambda run, root: parent(run, "dag", root), RUNS, st.one_of(st.none(), RUNS))),
    maybe(st.just({"errorMessage": facet(message="boom", programmingLanguage="python")})),
    maybe(MINUTES.map(lambda minute: {"nominalTime": facet(nominalStartTime=at(minute))})),
    maybe(st.integers(0, 1).map(lambda n: {"my_custom": facet(n=n)})),
    maybe(st.sampled_from(["pass", "fail"]).map(lambda s: {"test": facet(tests=[{"name": "t", "status": s}])})),
)
RUN_EVENTS = st.builds(
    lambda event_type, minute, run, job, inputs, outputs, run_facets, job_facets: run_json(
        event_type,
        minute,
        run=run,
        job=job,
        inputs=inputs,
        outputs=outputs,
        run_facets=run_facets,
        job_facets=job_facets,
    ),
    TYPES,
    MINUTES,
    RUNS,
    JOBS,
    st.lists(INPUTS, max_size=2),
    st.lists(OUTPUTS, max_size=2),
    RUN_FACETS,
    JOB_FACETS,
)
JOB_EVENTS = st.builds(
    lambda minute, job, facets, inputs: {
        "eventTime": at(minute),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "job": {"namespace": "airflow", "name": job, "facets": facets},
        "inputs": inputs,
    },
    MINUTES,
    JOBS,
    JOB_FACETS,
    st.lists(INPUTS, max_size=1),
)
DATASET_EVENTS = st.builds(
    lambda minute, name, facets: {
        "eventTime": at(minute),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "dataset": dataset(name, facets=facets),
    },
    MINUTES,
    NAMES,
    DATASET_FACETS,
)
HISTORIES = st.lists(st.one_of(RUN_EVENTS, RUN_EVENTS, RUN_EVENTS, JOB_EVENTS, DATASET_EVENTS), min_size=1, max_size=8)


def judged(text: str) -> Event:
    event = judge(text.encode())
    assert not isinstance(event, Rejection), event.sentence
    return event


def written_otherwise(event: Json) -> str:
    """The same content with other white space, order of keys and offset."""
    moved = event | {"eventTime": event["eventTime"].replace("Z", "+00:00")}
    return json.dumps(_backwards(moved), indent=1)


def _backwards(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _backwards(member) for key, member in reversed(value.items())}
    return [_backwards(item) for item in value] if isinstance(value, list) else value


@given(history=HISTORIES, data=st.data())
@settings(max_examples=400, deadline=None)
def test_any_order_duplication_and_split_gives_equal_facts(history: list[Json], data: st.DataObject) -> None:
    events = [judged(json.dumps(event)) for event in history]
    expected = fold(events)

    again = [judged(written_otherwise(event)) for event in data.draw(st.lists(st.sampled_from(history), max_size=4))]
    shuffled = data.draw(st.permutations(events + again))
    batches: list[list[Event]] = [[], [], []]
    for event in shuffled:
        batches[data.draw(st.integers(0, 2))].append(event)
    together = Facts()
    for batch in batches:
        together.merge(fold(batch))

    assert fold(shuffled) == expected
    assert together == expected


@given(history=HISTORIES, data=st.data())
@settings(max_examples=300, deadline=None)
def test_bundles_of_any_split_merge_to_the_facts_of_the_whole(history: list[Json], data: st.DataObject) -> None:
    events = [judged(json.dumps(event)) for event in history]
    batches: list[list[Event]] = [[], [], []]
    for event in data.draw(st.permutations(events)):
        batches[data.draw(st.integers(0, 2))].append(event)
    sent = [bundle for batch in batches for bundle in bundles(fold(batch))]
    met: dict[bytes, list[bytes]] = {}
    for entity, payload in data.draw(st.permutations(sent)):
        met.setdefault(entity, []).append(payload)

    apart = [merge_bundles(payloads) for payloads in met.values()]
    together = Facts()
    for facts in apart:
        together.merge(facts)

    expected = fold(events)
    assert together == expected
    # Entities share no row, so that each can be merged and written by itself.
    assert sum(map(len, apart)) == len(expected)
    assert merge_bundles(payload for _, payload in sent) == expected


@given(history=HISTORIES)
@settings(max_examples=100, deadline=None)
def test_every_row_is_in_the_bundle_of_one_entity_and_comes_out_as_it_went_in(history: list[Json]) -> None:
    facts = fold(judged(json.dumps(event)) for event in history)
    sent = list(bundles(facts))

    out = [(table.name, key, row) for _, payload in sent for table, key, row in unbundle(payload)]
    assert sorted(out, key=lambda row: row[:2]) == sorted(
        ((table.name, key, row) for table, key, row in facts), key=lambda row: row[:2]
    )
    assert {len(entity) for entity, _ in sent} == {17}
    assert len({entity for entity, _ in sent}) == len(sent)


@given(history=HISTORIES)
@settings(max_examples=200, deadline=None)
def test_events_one_by_one_give_the_facts_of_the_batch(history: list[Json]) -> None:
    events = [judged(json.dumps(event)) for event in history]
    facts = Facts()
    for event in events:
        facts.take(fold_batch([event]))

    assert facts == fold(events)


@given(text=RUN_EVENTS)
@settings(max_examples=300, deadline=None)
def test_the_edges_of_a_run_are_what_its_event_states(text: Json) -> None:
    """The fold takes an event's statement apart by who makes it, since each part comes again; together it is the whole.

    Of an output whose sources are told, the edge keeps by what.
    """
    event = judged(json.dumps(text))
    said, facts = lineage(statement(event)), fold([event])
    edges = {(dataset, role): row for (_, dataset, role), row in facts.rows(f.LINEAGE_EDGES).items()}
    (run,) = facts.rows(f.JOB_RUNS).values()

    stated: dict[tuple[bytes, str], tuple[int]] = {}
    for role, boundaries in (("input", said.inputs), ("output", said.outputs)):
        for ref, origin in boundaries:
            # One dataset may be named in two spellings; the stronger statement counts.
            stated[ref.key, role] = min(origin, stated.get((ref.key, role), origin))
    assert {key: row["origin"] for key, row in edges.items()} == stated
    assert {key: row["told"] for key, row in edges.items() if "told" in row} == {
        (output, "output"): by for output, by in said.told if (output, "output") in edges
    }
    assert {key[1:] for key in facts.rows(f.COLUMN_EDGES)} == set(said.columns)
    assert ("explicit" in run) == said.is_explicit


CHANGED = st.sampled_from([None, True, 1, 1.5, "x", "\x00", [], {}, [1], {"x": 1}, {"x": "1"}])
"""Values that are told apart."""


@given(history=st.lists(st.one_of(RUN_EVENTS, JOB_EVENTS, DATASET_EVENTS), min_size=1, max_size=3), data=st.data())
@settings(max_examples=300, deadline=None)
def test_two_events_have_one_digest_exactly_when_they_say_the_same(history: list[Json], data: st.DataObject) -> None:
    """The same: equal once decoded, but for how the time is written."""
    changed = [_changed(event, data) for event in history]
    verdicts = [(event, judge(json.dumps(event).encode())) for event in history + changed]
    accepted = [(event, verdict) for event, verdict in verdicts if not isinstance(verdict, Rejection)]

    for one, mine in accepted:
        assert content_digest(judged(written_otherwise(one))) == content_digest(mine)
        for other, theirs in accepted:
            same = mine.event_time == theirs.event_time and _canonical(one) == _canonical(other)
            assert (content_digest(mine) == content_digest(theirs)) == same
            # So an event's content tells a duplicate by itself, without the key.
            assert idempotency_key(mine) == idempotency_key(theirs) or not same


def _canonical(event: Json) -> str:
    """JSON tells 1, 1.0 and true apart, and Python does not."""
    return json.dumps(event | {"eventTime": ""}, sort_keys=True)


def _changed(event: Json, data: st.DataObject) -> Json:
    """With one member added, removed or changed, at any depth."""
    copy: Json = json.loads(json.dumps(event))
    place: Any = copy
    while True:
        inner = [member for member in (place.values() if isinstance(place, dict) else place) if member]
        inner = [member for member in inner if isinstance(member, dict | list)]
        if not inner or data.draw(st.booleans()):
            break
        place = data.draw(st.sampled_from(inner))
    if isinstance(place, list):
        place.append(data.draw(CHANGED))
        return copy
    key = data.draw(st.sampled_from([*place, "inputs", "outputs", "facets", "unknown"]))
    if key in place and data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(CHANGED)
    return copy


@given(history=HISTORIES)
@settings(max_examples=200, deadline=None)
def test_folding_the_facts_into_themselves_changes_nothing(history: list[Json]) -> None:
    facts = fold(judged(json.dumps(event)) for event in history)
    twice = fold(judged(json.dumps(event)) for event in history)
    twice.merge(facts)

    assert twice == facts


@given(history=st.lists(RUN_EVENTS, min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_the_state_of_a_run_is_its_first_end_else_its_last_sign_of_life(history: list[Json]) -> None:
    """The rule of the design, written down a second time the slow way: by sorting the events themselves."""
    events = [event for text in history if isinstance(event := judged(json.dumps(text)), RunEvent)]
    facts = fold(events)

    for row in facts.rows(f.JOB_RUNS).values():
        _, _, _, job, run = row["identity"]
        own = [event for event in events if (event.job.name, event.run.run_id) == (job, run)]
        view = run_view(row)
        ends = sorted(
            (event.event_time, ["FAIL", "ABORT", "COMPLETE"].index(event.event_type))
            for event in own
            if event.event_type in TERMINAL and event.event_type is not None
        )
        alive = sorted(
            (event.event_time, ["START", "RUNNING"].index(event.event_type))
            for event in own
            if event.event_type in ("START", "RUNNING")
        )
        if ends:
            expected: Any = (["FAIL", "ABORT", "COMPLETE"][ends[0][1]], ends[0][0])
        else:
            expected = (["START", "RUNNING"][alive[-1][1]] if alive else "OTHER", None)
        starts = [event.event_time for event in own if event.event_type == "START"]
        assert (view.state, view.ended_at) == expected
        assert view.started_at == min(starts or [event.event_time for event in own])


@given(history=HISTORIES)
@settings(max_examples=200, deadline=None)
def test_every_row_that_is_referred_to_exists(history: list[Json]) -> None:
    facts = fold(judged(json.dumps(event)) for event in history)
    datasets = {key for (key,) in facts.rows(f.DATASETS)}
    jobs = {key for (key,) in facts.rows(f.JOBS)}
    runs = {key for (key,) in facts.rows(f.JOB_RUNS)}
    bodies = {key for (key,) in facts.rows(f.FACET_BODIES)}

    assert {key for _, key, _ in facts.rows(f.LINEAGE_EDGES)} <= datasets
    assert {run for run, _, _ in facts.rows(f.LINEAGE_EDGES)} <= runs
    for _, target_kind, target, _, source_kind, source, *_ in facts.rows(f.COLUMN_EDGES):
        for kind, key in ((target_kind, target), (source_kind, source)):
            assert kind == "run" or key in (datasets if kind == "dataset" else jobs)
    assert {digest for *_, digest in facts.rows(f.FACET_HISTORY)} - {b""} <= bodies
    assert all("identity" in row for table in (f.DATASETS, f.JOBS, f.JOB_RUNS) for row in facts.rows(table).values())


@given(history=HISTORIES)
@settings(max_examples=100, deadline=None)
def test_every_value_has_the_columns_that_its_group_declares(history: list[Json]) -> None:
    for table, key, row in fold(judged(json.dumps(event)) for event in history):
        declared = {group.name: group for group in table.groups}
        assert len(key) == len(table.key)
        for name, value in row.items():
            elements = {f.Shape.ONE: [value], f.Shape.SET: value, f.Shape.MAP: getattr(value, "values", list)()}
            assert {len(element) for element in elements[declared[name].shape]} <= {len(declared[name].columns)}

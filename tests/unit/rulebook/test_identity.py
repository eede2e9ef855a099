import hashlib
import json

import pytest

from correlator.rulebook import identity
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from tests.unit.rulebook.histories import (
    PRODUCER,
    RUN,
    Json,
    dataset,
    dataset_event,
    facet,
    job_event,
    run_event,
    run_json,
)


def of(text: str) -> Event:
    verdict = judge(text.encode())
    assert not isinstance(verdict, Rejection), verdict.sentence
    return verdict


def test_a_run_is_known_by_the_sha256_of_its_namespace_name_and_run_id() -> None:
    expected = hashlib.sha256(f"dbt://analyticstransform_orders{RUN}".encode()).hexdigest()

    assert identity.canonical_job_run_id("dbt://analytics", "transform_orders", RUN) == expected
    assert identity.job_run_key("dbt://analytics", "transform_orders", RUN).hex() == expected[:32]


def test_jobs_whose_namespace_and_name_join_to_the_same_text_stay_two() -> None:
    assert identity.job_key("a", "bc") != identity.job_key("ab", "c")


def test_the_idempotency_key_is_made_of_producer_job_run_time_and_type() -> None:
    event = run_event("START", 0)
    said = f"{PRODUCER}airflowetl.orders{RUN}2026-05-04T10:00:00ZSTART"

    assert identity.idempotency_key(event) == hashlib.sha256(said.encode()).digest()


@pytest.mark.parametrize("time", ["2026-05-04T12:00:00+02:00", "2026-05-04T10:00:00.000Z", "2026-05-04T10:00:00"])
def test_one_moment_in_two_offsets_is_one_key_and_one_content(time: str) -> None:
    event = run_json("START", 0)
    moved = of(json.dumps(event | {"eventTime": time}))

    assert identity.idempotency_key(moved) == identity.idempotency_key(run_event("START", 0))
    assert identity.content_digest(moved) == identity.content_digest(run_event("START", 0))


def test_another_type_time_run_or_producer_is_another_key() -> None:
    keys = {
        identity.idempotency_key(event)
        for event in (
            run_event("START", 0),
            run_event("COMPLETE", 0),
            run_event("START", 1),
            run_event("START", 0, run="another"),
            run_event("START", 0, producer="https://example.com/other"),
            job_event(0),
            dataset_event(0),
        )
    }

    assert len(keys) == 7


def test_the_same_key_with_other_content_is_not_a_duplicate() -> None:
    plain, with_facet = run_event("RUNNING", 0), run_event("RUNNING", 0, run_facets={"my_progress": facet(rows=5)})

    assert identity.idempotency_key(plain) == identity.idempotency_key(with_facet)
    assert identity.content_digest(plain) != identity.content_digest(with_facet)


def test_white_space_and_the_order_of_keys_are_no_content() -> None:
    event = run_json("START", 0)
    backwards = json.dumps(dict(reversed(event.items())), indent=3)

    assert identity.content_digest(of(backwards)) == identity.content_digest(run_event("START", 0))


def test_a_duplicate_is_known_by_its_identity_however_it_is_written() -> None:
    event = run_json("RUNNING", 0, inputs=[dataset("orders", facets={"my_facet": facet(a=1, b=[{"c": 2, "d": 3}])})])
    again = json.loads(json.dumps(event))
    again["inputs"][0]["facets"]["my_facet"] = dict(reversed(again["inputs"][0]["facets"]["my_facet"].items()))
    again["inputs"][0]["facets"]["my_facet"]["b"] = [{"d": 3, "c": 2}]
    other = json.loads(json.dumps(event))
    other["inputs"][0]["facets"]["my_facet"]["b"] = [{"c": 2, "d": 4}]
    first, second, third = (identity.event_identity(of(json.dumps(said))) for said in (event, again, other))

    assert first == second
    assert first != third
    assert len(first) == 16


def test_unknown_properties_are_content() -> None:
    assert identity.content_digest(run_event("START", extra=1)) != identity.content_digest(run_event("START", extra=2))


@pytest.mark.parametrize(
    ("one", "other"), [("1e999", "1e998"), ("123456789012345678901", "123456789012345678902"), ("1", "1.5")]
)
def test_numbers_that_no_float_holds_are_told_apart(one: str, other: str) -> None:
    text = json.dumps(run_json("START", 0, extra="NUMBER"))
    first, second = (of(text.replace('"NUMBER"', number)) for number in (one, other))

    assert identity.content_digest(first) != identity.content_digest(second)


def test_an_integer_of_thousands_of_digits_has_a_digest() -> None:
    text = json.dumps(run_json("START", 0, extra="NUMBER")).replace('"NUMBER"', "7" * 5000)

    assert len(identity.content_digest(of(text))) == 32


def test_a_new_release_of_the_producer_is_no_change_of_the_facet() -> None:
    old = run_event(run_facets={"my_facet": facet(rows=5)}).run.facets.raw["my_facet"]
    new = run_event(run_facets={"my_facet": facet(rows=5) | {"_producer": "https://example.com/2"}}).run.facets.raw[
        "my_facet"
    ]

    assert identity.facet_content(old).body_digest == identity.facet_content(new).body_digest
    assert identity.facet_content(old).kept != identity.facet_content(new).kept


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"_schemaURL": "https://openlineage.io/spec/facets/1-0-0/X.json", "rows": 5, "A": 1}, {"rows": 5, "A": 1}),
        ({"_schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunFacet"}, {}),
        ({"_schemaURL": "https://example.com/1-0-0/mine.json", "rows": 5}, None),
        ({"_schemaURL": 'https://openlineage.io/spec/"quoted"', "rows": 5}, {"rows": 5}),
        ({"_schemaURL": "https://openlineage.io/spec/facets/1-0-0/X.json", "a": "\0"}, {"a": "\ufffd"}),
        ({"rows": {"_schemaURL": "https://openlineage.io/spec/facets/1-0-0/X.json"}}, None),
    ],
)
def test_facts_keep_the_envelope_of_a_facet_unless_it_is_one_of_openlineages_own(sent: Json, kept: Json | None) -> None:
    facet = {"_producer": "https://example.com/", **sent}
    found = run_event(run_facets={"my_facet": facet}).run.facets.raw["my_facet"]

    assert json.loads(identity.facet_content(found).kept) == (facet if kept is None else kept)


def test_what_a_database_cannot_hold_does_not_reach_the_facts() -> None:
    facets = run_event(run_facets={"my_facet": facet(text="a\x00b", inner=[{"\x00": "\x00"}])}).run.facets

    assert "\\u0000" not in identity.facet_content(facets.raw["my_facet"]).kept


def test_a_backslash_before_u0000_is_a_backslash() -> None:
    facets = run_event(run_facets={"my_facet": facet(text="a\\u0000b")}).run.facets

    assert json.loads(identity.facet_content(facets.raw["my_facet"]).body) == {"text": "a\\u0000b"}

"""Problem documents (RFC 9457), and the names of requests."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from correlator.http import problems
from correlator.http.correlation_id import CorrelationIds
from correlator.http.exchange import joined_headers
from correlator.http.problems import HttpProblem, document, response
from correlator.server.answers import EventsSummary


def test_a_problem_says_what_rfc_9457_asks_for() -> None:
    problem = HttpProblem(problems.TOO_LARGE, "The body is 5 bytes; 4 are taken.")
    answer = response(problem, "/api/v1/lineage", "abc-1")
    assert answer.status == 413
    assert (b"content-type", b"application/problem+json") in answer.headers
    assert json.loads(answer.body) == {
        "type": "urn:correlator:problem:too-large",
        "title": "The body is too large",
        "status": 413,
        "detail": "The body is 5 bytes; 4 are taken.",
        "instance": "/api/v1/lineage",
        "correlation_id": "abc-1",
    }


def test_members_are_added_and_never_replace_the_standard_ones() -> None:
    members = {"summary": EventsSummary(2, 0, 2), "status": 200, "detail": "another"}
    told = json.loads(document(HttpProblem(problems.INVALID_EVENTS, "Both.", members=members), "/", "id"))
    assert told["summary"] == {"total": 2, "success": 0, "failed": 2}
    assert told["status"] == 422
    assert told["detail"] == "Both."


@pytest.mark.parametrize(("seconds", "header"), [(0.0, b"1"), (0.2, b"1"), (1.0, b"1"), (1.1, b"2"), (95.9, b"96")])
def test_retry_after_is_in_whole_seconds_and_never_zero(seconds: float, header: bytes) -> None:
    assert (b"retry-after", header) in problems.unavailable("busy", retry_after=seconds).headers


@given(path=st.text(st.characters(exclude_categories=["Cs"])))
def test_whatever_the_path_is_the_instance_is_a_uri_reference(path: str) -> None:
    instance = json.loads(document(HttpProblem(problems.NOT_FOUND, "Nothing."), path, "id"))["instance"]
    assert instance.isascii()
    assert not set(instance) & set(' "<>\\^`{|}\n')


def test_every_kind_has_a_type_of_its_own() -> None:
    assert len({kind.type for kind in problems.KINDS}) == len(problems.KINDS)
    assert problems.kind_for(405) is problems.METHOD_NOT_ALLOWED
    assert problems.kind_for(418) is problems.BAD_REQUEST
    assert problems.kind_for(502) is problems.INTERNAL


@pytest.mark.parametrize(
    "given_id", ["a", "0195a7c4-6b2e-7c3a-9d41-3f6f0a5b8e21", "Root=1-67891233-abcdef012345678912345678", "x" * 64]
)
def test_a_safe_correlation_id_is_kept(given_id: str) -> None:
    assert CorrelationIds().take(given_id.encode()) == given_id


@pytest.mark.parametrize("given_id", [None, b"", b"x" * 65, b"a b", b"a\nb", b"<script>", b"\xc3\xa9", b"a,b", b"$(x)"])
def test_another_one_is_replaced(given_id: bytes | None) -> None:
    ids = CorrelationIds()
    made = ids.take(given_id)
    assert made.encode() != given_id
    assert CorrelationIds().take(made.encode()) == made, "what we make, we take"
    assert ids.take(given_id) != made
    assert CorrelationIds().take(given_id) != made


def test_headers_that_come_twice_are_joined() -> None:
    headers = [(b"x-forwarded-for", b"1.1.1.1"), (b"host", b"h"), (b"x-forwarded-for", b"2.2.2.2")]
    assert joined_headers(headers) == {b"x-forwarded-for": b"1.1.1.1, 2.2.2.2", b"host": b"h"}

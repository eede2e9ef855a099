"""Whatever comes in gets an answer in words. `judge` has no exception of its own, and none of anybody else's."""

import json
from typing import Any

import pytest

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Facets, JobEvent, Rejection, RunEvent
from correlator.rulebook.policy import CORRELATOR, SPEC, Policy
from correlator.rulebook.problems import Problem

POLICIES = [SPEC, CORRELATOR, Policy(name="spec", formats="enforce"), Policy(name="correlator", formats="enforce")]
BASE = '"_producer": "https://example.com/p", "_schemaURL": "https://example.com/s.json"'
RUN_ID = "01941f29-7c00-7000-8000-000000000001"
DEEP = 10_000
MANY_MEGABYTES = 50 * 2**20


def event(
    *,
    first: str = "",
    last: str = "",
    name: str = '"job"',
    run: str = f'"runId": "{RUN_ID}"',
    run_facets: str = "{}",
    job_facets: str = "{}",
    inputs: str = "[]",
    output_facets: str = "{}",
) -> bytes:
    """A valid RunEvent in which any part can be written otherwise. `first` and `last` are members, commas included."""
    return (
        f'{{{first} "eventType": "START", "eventTime": "2026-01-31T12:00:00Z", "producer": "https://example.com/p",'
        ' "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json",'
        f' "run": {{{run}, "facets": {run_facets}}},'
        f' "job": {{"namespace": "jobs", "name": {name}, "facets": {job_facets}}},'
        f' "inputs": {inputs},'
        f' "outputs": [{{"namespace": "db", "name": "out", "outputFacets": {output_facets}}}] {last}}}'
    ).encode()


def custom(value: str) -> str:
    return f'{{"my_facet": {{{BASE}, "value": {value}}}}}'


def accepted(raw: bytes, policy: Policy = CORRELATOR) -> Event:
    verdict = judge(raw, policy)
    assert not isinstance(verdict, Rejection), verdict.errors[:3]
    return verdict


def run_event(raw: bytes, policy: Policy = CORRELATOR) -> RunEvent:
    verdict = accepted(raw, policy)
    assert isinstance(verdict, RunEvent)
    return verdict


def reasons(raw: bytes, policy: Policy = CORRELATOR) -> list[str]:
    verdict = judge(raw, policy)
    assert isinstance(verdict, Rejection)
    assert verdict.raw is raw
    return [problem.message for problem in verdict.errors]


def rules(raw: bytes, policy: Policy = CORRELATOR) -> list[str]:
    verdict = judge(raw, policy)
    return [problem.rule for problem in verdict.errors] if isinstance(verdict, Rejection) else []


def doubtful(facets: Facets, key: str, warnings: tuple[Problem, ...]) -> str:
    """The warning on a facet that was kept but not understood."""
    assert key in facets.raw
    assert key not in facets.typed
    (warning,) = warnings
    assert warning.message.endswith("; the facet is kept as it is and nothing is derived from it")
    return warning.message.partition(";")[0]


def test_the_event_that_these_tests_vary_is_in_order() -> None:
    for policy in POLICIES:
        assert accepted(event(), policy).warnings == ()


# --- not JSON at all --------------------------------------------------------------------------------------------------


def test_an_event_cut_off_at_any_byte_is_not_json() -> None:
    raw = event(
        run_facets=custom('"é\\u00e9\\n"'), inputs='[{"namespace": "db", "name": "in"}]', last=', "x": [1.5e3, null]'
    )
    accepted(raw)
    for length in range(len(raw)):
        for policy in (SPEC, CORRELATOR):
            verdict = judge(raw[:length], policy)
            assert isinstance(verdict, Rejection)
            (problem,) = verdict.errors
            assert problem.path == "$"
            assert problem.rule in ("invalid_json", "invalid_utf8")
            assert problem.message.startswith("the event is not ")


def test_an_event_cut_off_says_that_it_ends_in_the_middle() -> None:
    assert reasons(event()[:-1]) == ["the event is not JSON: it ends in the middle"]


@pytest.mark.parametrize("raw", [b"", b" ", b"\n\t\r ", b"\xef\xbb\xbf", b"\xef\xbb\xbf \n"])
def test_nothing_is_not_json(raw: bytes) -> None:
    assert reasons(raw) == ["the event is not JSON: there is no text at all"]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"null", "null"),
        (b"true", "boolean"),
        (b"false", "boolean"),
        (b"0", "number"),
        (b"-1.5e3", "number"),
        (b"1e999", "number"),
        (b"9" * 5000, "number"),
        (b'""', "string"),
        (b'"\\u0000"', "string"),
        (b"[]", "array"),
        (b"[" + event() + b"]", "array"),
    ],
    ids=lambda value: value[:12],
)
def test_an_event_is_an_object(raw: bytes, kind: str) -> None:
    for policy in POLICIES:
        assert reasons(raw, policy) == [f"the event must be a JSON object, got {kind}"]


@pytest.mark.parametrize(
    "raw",
    [
        event() + b"x",
        event() + event(),
        event() + b"\x00",
        b"\x00" + event(),
        b"\x0b" + event(),
        event() + b",",
        b"\xef\xbb\xbf\xef\xbb\xbf" + event(),
        event()[1:],
        event().replace(b'"', b"'"),
        event().replace(b'"eventType": "START",', b"// who reads comments?\n"),
    ],
)
def test_what_stands_around_an_event_is_white_space_or_an_error(raw: bytes) -> None:
    assert rules(raw) == ["invalid_json"]


@pytest.mark.parametrize("number", [b"1e999", b"9" * 5000], ids=["1e999", "5000 digits"])
@pytest.mark.parametrize("around", [b"@ x", b"@}", b"[@", b"[@,", b'[@, {"a', b"{@", b'{"a": @', b'{"a": @ x}'])
def test_a_huge_number_does_not_hide_that_the_rest_is_not_json(number: bytes, around: bytes) -> None:
    assert rules(around.replace(b"@", number)) == ["invalid_json"]


def test_white_space_and_a_byte_order_mark_around_an_event_do_no_harm() -> None:
    for raw in (b" \r\n\t" + event() + b"\n\n ", b"\xef\xbb\xbf" + event(), b"\xef\xbb\xbf\n" + event() + b"\n"):
        for policy in POLICIES:
            assert accepted(raw, policy).raw is raw
            assert accepted(raw, policy).warnings == ()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings_than_utf_8_are_refused(encoding: str) -> None:
    assert rules(event().decode().encode(encoding))[0] in ("invalid_json", "invalid_utf8")


@pytest.mark.parametrize(
    "raw",
    [
        event(name='"j@b"'),
        event(run_facets=custom('"@"')),
        event(run_facets=custom('{"@": 1}')),
        event(job_facets=f'{{"sql": {{{BASE}, "query": "@"}}}}'),
        event(job_facets=f'{{"s@l": {{{BASE}}}}}'),
        event(last=', "unknown": "@"'),
        event(last=', "@": 1'),
        event(inputs='[{"namespace": "db", "name": "@"}]'),
    ],
)
@pytest.mark.parametrize("broken", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x80"])
def test_invalid_utf_8_is_refused_wherever_it_stands(raw: bytes, broken: bytes) -> None:
    position = raw.index(b"@")
    for policy in POLICIES:
        assert reasons(raw.replace(b"@", broken), policy) == [f"the event is not UTF-8: byte {position} cannot be read"]
    accepted(raw.replace(b"@", "\u20ac\U0001f600".encode()))


@pytest.mark.parametrize(
    "word",
    ["NaN", "Infinity", "-Infinity", "nan", "undefined", "01", "1.", ".5", "+1", "0x1", "1e", "tru", "[1,]", "'x'"],
)
def test_words_that_json_does_not_have_are_refused_wherever_they_stand(word: str) -> None:
    for raw in (
        event(name=word),
        event(run_facets=custom(word)),
        event(output_facets=f'{{"outputStatistics": {{{BASE}, "rowCount": {word}}}}}'),
        event(job_facets=f'{{"sql": {{{BASE}, "query": "", "unknown": {word}}}}}'),
        event(last=f', "unknown": {word}'),
    ):
        for policy in POLICIES:
            (reason,) = reasons(raw, policy)
            assert reason.startswith("the event is not JSON: ")


@pytest.mark.parametrize("text", ['"\n"', '"\x00"', '"\\q"', '"\\u12"', '"\\uZZZZ"', '"open'])
def test_strings_that_json_does_not_have_are_refused_wherever_they_stand(text: str) -> None:
    for raw in (event(name=text), event(run_facets=custom(text)), event(last=f', "unknown": {text}')):
        assert rules(raw) == ["invalid_json"]


@pytest.mark.parametrize("half", ["\\ud800", "\\uDFFF", "\\udc00\\ud800", "\\ud800\\ud800", "\\ud83d x \\ude00"])
def test_half_of_a_surrogate_pair_is_refused_wherever_it_stands(half: str) -> None:
    for raw in (
        event(name=f'"{half}"'),
        event(run_facets=custom(f'"{half}"')),
        event(run_facets=f'{{"{half}": {{{BASE}}}}}'),
        event(job_facets=f'{{"sql": {{{BASE}, "query": "{half}"}}}}'),
        event(last=f', "unknown": "{half}"'),
        event(last=f', "{half}": 1'),
    ):
        for policy in POLICIES:
            assert reasons(raw, policy) == ["the event is not JSON: it holds half of a surrogate pair"]


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert run_event(event(name='"\\ud83d\\ude00"')).job.name == "\U0001f600"


# --- too deep, too large ----------------------------------------------------------------------------------------------

ARRAYS = "[" * DEEP + "]" * DEEP
OBJECTS = '{"a":' * DEEP + "1" + "}" * DEEP
FIELDS = '[{"name": "a", "fields": ' * DEEP + "[]" + "}]" * DEEP
CONDITIONS = '{"type": "binary", "operator": "AND", "right": {}, "left": ' * DEEP + "{}" + "}" * DEEP


@pytest.mark.parametrize(
    "raw",
    [
        ARRAYS.encode(),
        OBJECTS.encode(),
        b"[" * DEEP,
        OBJECTS.encode()[: 5 * DEEP],
        event(name=ARRAYS),
        event(last=f', "unknown": {ARRAYS}'),
        event(last=f', "unknown": {OBJECTS}'),
        event(last=f', "unknown": {ARRAYS}', name="5"),
        event(run_facets=ARRAYS),
        event(run_facets=OBJECTS),
        event(run_facets=custom(ARRAYS)),
        event(run_facets=custom(OBJECTS)),
        event(job_facets=f'{{"sql": {{{BASE}, "query": "", "unknown": {ARRAYS}}}}}'),
        event(job_facets=f'{{"sql": {{"query": "", "unknown": {ARRAYS}}}}}'),
        event(job_facets=f'{{"sql": {ARRAYS}}}'),
        event(inputs=f'[{{"namespace": "a", "name": "b", "facets": {{"schema": {{{BASE}, "fields": {FIELDS}}}}}}}]'),
        event(inputs=ARRAYS),
        event(output_facets=f'{{"subset": {{{BASE}, "outputCondition": {CONDITIONS}}}}}'),
    ],
    ids=lambda raw: f"{raw[:4]!r}…{len(raw)}",
)
def test_nesting_without_end_is_refused_in_words(raw: bytes) -> None:
    for policy in POLICIES:
        (reason,) = reasons(raw, policy)
        assert reason.startswith("the event is nested deeper than can be followed")


def test_a_schema_of_a_hundred_levels_is_understood() -> None:
    levels = 100
    fields = '[{"name": "a", "fields": ' * levels + "[]" + "}]" * levels
    verdict = run_event(
        event(inputs=f'[{{"namespace": "a", "name": "b", "facets": {{"schema": {{{BASE}, "fields": {fields}}}}}}}]')
    )
    assert verdict.warnings == ()
    found, depth = verdict.inputs[0].facets.typed["schema"].fields, 0
    while found:
        found, depth = found[0].fields, depth + 1
    assert depth == levels


def test_what_is_wrong_under_a_hundred_levels_is_found_there() -> None:
    levels = 100
    fields = '[{"name": "a", "fields": ' * levels + "5" + "}]" * levels
    raw = event(inputs=f'[{{"namespace": "a", "name": "b", "facets": {{"schema": {{{BASE}, "fields": {fields}}}}}}}]')
    path = "inputs[0].facets.schema.fields" + "[0].fields" * levels
    assert reasons(raw, SPEC) == [f"{path}: expected array, got number"]
    assert doubtful(run_event(raw).inputs[0].facets, "schema", accepted(raw).warnings) == reasons(raw, SPEC)[0]


def _from_depth(calls: int, raw: bytes) -> Event | Rejection:
    return judge(raw) if calls == 0 else _from_depth(calls - 1, raw)


@pytest.mark.parametrize("levels", [200, 500, 700, 900])
def test_how_deep_the_caller_stands_does_not_change_the_verdict(levels: int) -> None:
    """The server judges from deep inside its frameworks, the command line from near the top: one event, one verdict."""
    raw = event(run_facets=custom("[" * levels + "]" * levels))
    assert isinstance(_from_depth(0, raw), Rejection) == isinstance(_from_depth(400, raw), Rejection)


def test_an_event_of_fifty_megabytes_is_judged_like_any_other() -> None:
    long_name = "n" * 1000
    dataset = f'{{"namespace": "db", "name": "{long_name}"}}'
    count = MANY_MEGABYTES // len(dataset)
    raw = event(inputs=f"[{','.join([dataset] * count)}]")
    assert len(raw) > MANY_MEGABYTES - 10_000
    assert len(run_event(raw).inputs) == count


@pytest.mark.parametrize("letter", ["x", "é", "\\u0000"])
def test_a_string_of_fifty_megabytes_is_kept_as_it_is(letter: str) -> None:
    text = letter * (MANY_MEGABYTES // len(letter.encode()))
    raw = event(run_facets=custom(f'"{text}"'), job_facets=f'{{"sql": {{{BASE}, "query": "{text}"}}}}')
    verdict = run_event(raw)
    assert verdict.raw is raw
    assert verdict.warnings == ()
    assert len(verdict.job.facets.typed["sql"].query) == MANY_MEGABYTES // len(letter.encode())
    assert bytes(verdict.run.facets.raw["my_facet"]).endswith(f'{letter}"}}'.encode())


def test_fifty_megabytes_of_mistakes_are_reported_up_to_a_limit() -> None:
    dataset = f'{{"namespace": "db", "nom": "{"n" * 1000}"}}'
    count = MANY_MEGABYTES // len(dataset)
    found = reasons(event(inputs=f"[{','.join([dataset] * count)}]"))
    assert found[:2] == ["inputs[0].name is required", "inputs[1].name is required"]
    assert found[1000:] == ["and there are more, beyond the limit of 1,000"]


def test_a_long_wrong_value_is_quoted_in_short() -> None:
    (reason,) = reasons(event().replace(b"START", b"S" * 10_000))
    assert len(reason) < 200
    assert reason.startswith("eventType: 'SSSS")


# --- repeated keys ----------------------------------------------------------------------------------------------------

REPEATED: dict[str, tuple[bytes, bytes, str]] = {
    "an event's own property": (
        event(first='"eventTime": 5,'),
        event(last=', "eventTime": 5'),
        "eventTime: expected string, got number",
    ),
    "a property in escapes": (
        event(first='"\\u0065ventTime": 5,'),
        event(last=', "\\u0065ventTime": 5'),
        "eventTime: expected string, got number",
    ),
    "an enum": (
        event(first='"eventType": "start",'),
        event(last=', "eventType": "start"'),
        "eventType: 'start' is not one of ABORT, COMPLETE, FAIL, OTHER, RUNNING, START",
    ),
    "a time": (
        event(first='"eventTime": "yesterday",'),
        event(last=', "eventTime": "yesterday"'),
        "eventTime: 'yesterday' is not a date-time",
    ),
    "the run": (
        event(first='"run": [],'),
        event(last=', "run": []'),
        "run: expected object, got array",
    ),
    "the run, without an id": (
        event(first='"run": {},'),
        event(last=', "run": {}'),
        "run.runId is required",
    ),
    "the run's id": (
        event(run=f'"runId": 5, "runId": "{RUN_ID}"'),
        event(run=f'"runId": "{RUN_ID}", "runId": 5'),
        "run.runId: expected string, got number",
    ),
    "the inputs": (
        event(first='"inputs": {},'),
        event(last=', "inputs": {}'),
        "inputs: expected array, got object",
    ),
    "an input's name": (
        event(inputs='[{"namespace": "db", "name": null, "name": "in"}]'),
        event(inputs='[{"namespace": "db", "name": "in", "name": null}]'),
        "inputs[0].name: expected string, got null",
    ),
    "all facets of an entity": (
        event(run=f'"runId": "{RUN_ID}", "facets": 5'),
        event(last=f', "run": {{"runId": "{RUN_ID}", "facets": {{}}, "facets": 5}}'),
        "run.facets: expected object, got number",
    ),
}
"""By place: the text with the bad value first, the text with the bad value last, and what is said of it then."""


@pytest.mark.parametrize(("bad_first", "bad_last", "reason"), REPEATED.values(), ids=REPEATED)
def test_of_a_repeated_key_the_last_counts(bad_first: bytes, bad_last: bytes, reason: str) -> None:
    for policy in POLICIES:
        assert accepted(bad_first, policy).raw is bad_first
        assert accepted(bad_first, policy).warnings == ()
        assert reasons(bad_last, policy) == [reason]


@pytest.mark.parametrize(
    ("bad_first", "bad_last", "reason"),
    [
        (
            f'{{"sql": {{{BASE}, "query": 5, "query": "Q"}}}}',
            f'{{"sql": {{{BASE}, "query": "Q", "query": 5}}}}',
            "job.facets.sql.query: expected string, got number",
        ),
        (
            f'{{"sql": [], "sql": {{{BASE}, "query": "Q"}}}}',
            f'{{"sql": {{{BASE}, "query": "Q"}}, "sql": []}}',
            "job.facets.sql: expected object, got array",
        ),
        (
            f'{{"sql": {{{BASE}}}, "sql": {{{BASE}, "query": "Q"}}}}',
            f'{{"sql": {{{BASE}, "query": "Q"}}, "sql": {{{BASE}}}}}',
            "job.facets.sql.query is required",
        ),
        (
            f'{{"sql": {{"_schemaURL": 5, {BASE}, "query": "Q"}}}}',
            f'{{"sql": {{{BASE}, "query": {{"a": 1}}, "query": null}}}}',
            "job.facets.sql.query: expected string, got null",
        ),
    ],
    ids=["in a facet", "a facet", "a facet that lacks something", "in its envelope"],
)
def test_of_a_repeated_key_in_facets_the_last_counts(bad_first: str, bad_last: str, reason: str) -> None:
    for policy in POLICIES:
        verdict = run_event(event(job_facets=bad_first), policy)
        assert verdict.warnings == ()
        assert verdict.job.facets.typed["sql"].query == "Q"
    assert reasons(event(job_facets=bad_last), SPEC) == [reason]
    verdict = run_event(event(job_facets=bad_last))
    assert doubtful(verdict.job.facets, "sql", verdict.warnings) == reason


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ('"type": "DATASET", "type": "JOB"', []),
        ('"type": 5, "type": "JOB"', []),
        ('"type": "JOB", "type": 5', ["job.facets.lineage.entries[0].type: expected string, got number"]),
        ('"type": "JOB", "type": "TABLE"', ["job.facets.lineage.entries[0].type: 'TABLE' is not one of DATASET, JOB"]),
        (
            '"type": "JOB", "type": "DATASET"',
            [
                "job.facets.lineage.entries[0].namespace is required",
                "job.facets.lineage.entries[0].name is required",
            ],
        ),
    ],
)
def test_of_a_repeated_type_the_last_chooses_the_alternative(types: str, expected: list[str]) -> None:
    raw = event(job_facets=f'{{"lineage": {{{BASE}, "entries": [{{{types}}}]}}}}')
    verdict = judge(raw, SPEC)
    assert [problem.message for problem in getattr(verdict, "errors", ())] == expected


def test_the_last_of_repeated_facets_is_the_one_that_is_kept() -> None:
    facets = run_event(event(run_facets=f'{{"a": {{{BASE}, "n": 1}}, "a": {{{BASE}, "n": 2}}}}')).run.facets
    assert bytes(facets.raw["a"]) == f'{{{BASE}, "n": 2}}'.encode()


# --- odd values -------------------------------------------------------------------------------------------------------


def test_the_zero_character_is_kept_in_names_and_in_facets() -> None:
    zero = "\x00"
    verdict = run_event(
        event(
            name='"a\\u0000b"',
            run_facets=custom('"\\u0000"'),
            job_facets=f'{{"sql": {{{BASE}, "query": "SELECT \'\\u0000\'"}}}}',
            inputs='[{"namespace": "\\u0000", "name": "t\\u0000"}]',
            last=', "unknown\\u0000": "\\u0000"',
        )
    )
    assert verdict.warnings == ()
    assert verdict.job.name == f"a{zero}b"
    assert (verdict.inputs[0].namespace, verdict.inputs[0].name) == (zero, f"t{zero}")
    assert verdict.job.facets.typed["sql"].query == f"SELECT '{zero}'"
    assert bytes(verdict.run.facets.raw["my_facet"]).endswith(b'"value": "\\u0000"}')


@pytest.mark.parametrize("digits", ["18446744073709551616", "9" * 100, "-" + "9" * 100, "9" * 4300, "1e30", "2.0"])
def test_an_integer_of_any_size_is_read(digits: str) -> None:
    verdict = run_event(event(output_facets=f'{{"outputStatistics": {{{BASE}, "rowCount": {digits}}}}}'))
    assert verdict.warnings == ()
    expected = int(float(digits)) if set(digits) & set(".e") else int(digits)
    assert verdict.outputs[0].role_facets.typed["outputStatistics"].rowCount == expected


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 5000, "-" + "9" * 5000])
def test_a_number_that_cannot_be_held_costs_its_facet(number: str) -> None:
    raw = event(output_facets=f'{{"outputStatistics": {{{BASE}, "rowCount": {number}}}}}')
    reason = "outputs[0].outputFacets.outputStatistics.rowCount: the number is too large to be read"
    verdict = run_event(raw)
    assert doubtful(verdict.outputs[0].role_facets, "outputStatistics", verdict.warnings) == reason
    assert reasons(raw, SPEC) == [reason]
    assert rules(raw, SPEC) == ["number_out_of_range"]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400, "9" * 5000])
def test_a_measure_that_cannot_be_held_costs_its_facet(number: str) -> None:
    metrics = f'{{{BASE}, "columnMetrics": {{"c": {{"sum": {number}}}}}}}'
    raw = event(inputs=f'[{{"namespace": "a", "name": "b", "inputFacets": {{"dataQualityMetrics": {metrics}}}}}]')
    path = "inputs[0].inputFacets.dataQualityMetrics.columnMetrics.c.sum"
    assert reasons(raw, SPEC) == [f"{path}: the number is too large to be read"]
    assert run_event(raw).inputs[0].role_facets.typed == {}


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 5000, "123456789012345678901234567890", "-0", "1E-400"])
def test_numbers_of_any_size_are_kept_where_the_spec_has_no_say(number: str) -> None:
    test = f'{{"test": {{{BASE}, "tests": [{{"name": "t", "status": "fail", "params": {{"p": {number}}}}}]}}}}'
    for policy in POLICIES:
        facets = run_event(event(run_facets=custom(number)), policy).run.facets
        assert bytes(facets.raw["my_facet"]).endswith(f'"value": {number}}}'.encode())
        assert accepted(event(last=f', "unknown": {number}'), policy).warnings == ()
        assert run_event(event(run_facets=test), policy).run.facets.typed["test"].tests[0].name == "t"
        sql = run_event(event(job_facets=f'{{"sql": {{{BASE}, "query": "", "unknown": {number}}}}}'), policy)
        assert "sql" in sql.job.facets.typed


@pytest.mark.parametrize("number", ["1e999", "9" * 5000])
def test_a_huge_number_in_the_place_of_something_else_is_still_a_number(number: str) -> None:
    assert reasons(event(name=number)) == ["job.name: expected string, got number"]
    assert reasons(event(inputs=f"[{number}]")) == ["inputs[0]: expected object, got number"]


@pytest.mark.parametrize(
    "text",
    [
        *("10000-01-01T00:00:00Z", "+10000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "2024-13-01", "2024-W01-1"),
        *("2024-02-30T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:60:00Z", "2024-01-01T00:00:00+24:00"),
        *("2024-01-01T12:00:60Z", "2024-01-01T00:00:00Z\n", "1706702400", "now", "", " ", "\x00"),
        "\uff12\uff10\uff12\uff14-01-01T00:00:00Z",
    ],
)
def test_a_time_that_cannot_be_read_is_always_an_error(text: str) -> None:
    raw = event().replace(b'"2026-01-31T12:00:00Z"', json.dumps(text).encode())
    for policy in POLICIES:
        assert rules(raw, policy) == ["format_date_time"]
        (reason,) = reasons(raw, policy)
        assert reason.startswith("eventTime: '")
        assert reason.endswith("' is not a date-time")


def test_a_time_that_cannot_be_read_is_quoted() -> None:
    raw = event().replace(b"2026-01-31T12:00:00Z", b"2024-13-01")
    assert reasons(raw) == ["eventTime: '2024-13-01' is not a date-time"]


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("0000-01-01T00:00:00Z", -62_167_219_200_000_000),
        ("0000-02-29T00:00:00Z", -62_162_121_600_000_000),
        ("0001-01-01T00:00:00+00:01", -62_135_596_860_000_000),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000_000),
    ],
)
def test_the_first_and_the_last_years_are_read(text: str, instant: int) -> None:
    for policy in POLICIES:
        verdict = accepted(event().replace(b"2026-01-31T12:00:00Z", text.encode()), policy)
        assert verdict.event_time == instant
        assert verdict.warnings == ()


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000+00:00", "0001-01-01T01:00:00+01:00"])
def test_the_zero_time_is_an_error_under_correlator_only(text: str) -> None:
    raw = event().replace(b"2026-01-31T12:00:00Z", text.encode())
    assert reasons(raw) == ["eventTime is the zero time: it was never set"]
    assert accepted(raw, SPEC).warnings == ()


@pytest.mark.parametrize(
    ("blank", "how"),
    [
        ('""', "it is empty"),
        ('" "', "only white space"),
        ('"\\t\\n"', "only white space"),
        ('"\\u00a0"', "only white space"),
    ],
)
def test_blank_names_are_refused_by_correlator_only(blank: str, how: str) -> None:
    assert reasons(event(name=blank)) == [f"job.name is required: {how}"]
    assert accepted(event(name=blank), SPEC).warnings == ()
    raw = event(inputs=f'[{{"namespace": {blank}, "name": {blank}}}]')
    assert reasons(raw) == [f"inputs[0].namespace is required: {how}", f"inputs[0].name is required: {how}"]
    assert accepted(raw, SPEC).warnings == ()


def test_empty_strings_in_facets_are_none_of_our_business() -> None:
    raw = event(job_facets=f'{{"sql": {{{BASE}, "query": ""}}, "": {{{BASE}}}, " ": {{{BASE}}}}}')
    for policy in POLICIES:
        verdict = run_event(raw, policy)
        assert verdict.warnings == ()
        assert set(verdict.job.facets.raw) == {"sql", "", " "}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (event(last=', "run": []'), ["run: expected object, got array"]),
        (event(last=', "job": [[]]'), ["job: expected object, got array"]),
        (event(last=', "inputs": [[]]'), ["inputs[0]: expected object, got array"]),
        (event(last=', "outputs": {"0": {}}'), ["outputs: expected array, got object"]),
        (event(job_facets="[]"), ["job.facets: expected object, got array"]),
        (event(last=', "eventTime": ["2026-01-31T12:00:00Z"]'), ["eventTime: expected string, got array"]),
        (event(last=', "producer": {}'), ["producer: expected string, got object"]),
        (event(last=', "schemaURL": []'), ["schemaURL: expected string, got array"]),
        (event(last=', "eventType": ["START"]'), ["eventType: expected string, got array"]),
        (event(run='"runId": []'), ["run.runId: expected string, got array"]),
    ],
)
def test_arrays_where_objects_belong_are_named(raw: bytes, expected: list[str]) -> None:
    for policy in POLICIES:
        assert reasons(raw, policy) == expected


@pytest.mark.parametrize(
    ("facets", "reason"),
    [
        ("[]", "run.facets.parent: expected object, got array"),
        (
            f'{{{BASE}, "run": [], "job": {{"namespace": "a", "name": "b"}}}}',
            "run.facets.parent.run: expected object, got array",
        ),
        (
            f'{{{BASE}, "run": {{"runId": 5}}, "job": {{"namespace": "a", "name": "b"}}}}',
            "run.facets.parent.run.runId: expected string, got number",
        ),
        (
            f'{{{BASE}, "run": {{"runId": "{RUN_ID}"}}, "job": {{"namespace": "a"}}}}',
            "run.facets.parent.job.name is required",
        ),
    ],
)
def test_a_broken_facet_is_an_error_under_spec_and_a_warning_under_correlator(facets: str, reason: str) -> None:
    raw = event(run_facets=f'{{"parent": {facets}}}')
    assert reasons(raw, SPEC) == [reason]
    verdict = run_event(raw)
    assert doubtful(verdict.run.facets, "parent", verdict.warnings) == reason


def test_a_missing_name_is_named() -> None:
    raw = json.dumps({**json.loads(event()), "job": {"namespace": "jobs"}}).encode()
    for policy in POLICIES:
        assert reasons(raw, policy) == ["job.name is required"]


def test_an_empty_object_is_told_what_an_event_needs() -> None:
    assert reasons(b"{}") == [
        "an event needs run and job (RunEvent), job (JobEvent) or dataset (DatasetEvent)",
        "eventTime is required",
        "producer is required",
        "schemaURL is required",
    ]


@pytest.mark.parametrize("key", ["", " ", "a.b", 'a"b', "a[0]", "\x00", "é", "$", "0"])
def test_odd_keys_of_facets_are_kept_and_can_be_told_apart_in_words(key: str) -> None:
    body: dict[str, Any] = {"_producer": "https://example.com/p"}
    raw = json.dumps({**json.loads(event()), "job": {"namespace": "n", "name": "j", "facets": {key: body}}}).encode()
    assert reasons(raw, SPEC) == [f"job.facets[{json.dumps(key)}]._schemaURL is required"]
    verdict = accepted(raw)
    assert isinstance(verdict, RunEvent)
    assert [problem.path for problem in verdict.warnings] == [f"job.facets[{json.dumps(key)}]._schemaURL"]
    assert json.loads(bytes(verdict.job.facets.raw[key])) == body


def test_a_job_event_with_bad_input_is_answered_as_a_run_event_is() -> None:
    job_event = {key: value for key, value in json.loads(event()).items() if key not in ("run", "eventType")}
    raw = json.dumps(job_event).encode()
    assert isinstance(accepted(raw), JobEvent)
    assert rules(raw[:-1]) == ["invalid_json"]
    assert reasons(raw.replace(b'"name": "job"', b'"name": 5')) == ["job.name: expected string, got number"]
    assert reasons(raw.replace(b'"facets": {}', b'"facets": ' + ARRAYS.encode(), 1))[0].endswith(
        "(some hundred levels)"
    )

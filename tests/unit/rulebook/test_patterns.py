import pickle

import pytest

from correlator.rulebook.patterns import NamePattern, PatternError


@pytest.mark.parametrize(
    ("pattern", "target", "urn", "expected"),
    [
        (
            "postgres_prod/{table}",
            "postgres://prod:5432/analytics.{table}",
            "postgres_prod/public.orders",
            "postgres://prod:5432/analytics.public.orders",
        ),
        ("s3://raw/{path*}", "gs://raw/{path}", "s3://raw/a/b/c", "gs://raw/a/b/c"),
        ("s3://raw/{path*}", "gs://raw/{path*}", "s3://raw/a", "gs://raw/a"),
        ("{dir*}/{file}", "{file} in {dir}", "a/b/c.csv", "c.csv in a/b"),
        ("{a}.{b}", "{b}|{a}{a}", "x.y.z", "y.z|xx"),
        ("a/b", "c/d", "a/b", "c/d"),
        ("{{{a}}}/{{", "}}{a}{{", "{x}/{", "}x{"),
        ("{all*}", "<{all}>", "a\nb/c", "<a\nb/c>"),
        ("s3://b/{day}/{path*}.parquet", "{day}:{path}", "s3://b/mon/x/y.parquet.parquet", "mon:x/y.parquet"),
        ("{p*}/x={a}/y={b}", "{p} {a} {b}", "s/x=1/z/x=2/y=3", "s/x=1/z 2 3"),
        ("{p*}.{a}-{b}/{q*}", "{p} {a} {b} {q}", "x.y/z.1-2/3/4", "x.y/z 1 2 3/4"),
    ],
)
def test_a_pattern_that_matches_gives_its_target(pattern: str, target: str, urn: str, expected: str) -> None:
    assert NamePattern.parse(pattern, target).apply(urn) == expected


@pytest.mark.parametrize(
    ("pattern", "urn"),
    [
        ("postgres_prod/{table}", "postgres_prod/"),
        ("postgres_prod/{table}", "postgres_prod/a/b"),
        ("postgres_prod/{table}", "xpostgres_prod/a"),
        ("{table}_v1", "orders_v1x"),
        ("{table}_v1", "_v1"),
        ("ab{t}b", "ab"),
        ("ab{t}b", "abb"),
        ("{path*}/x", "/x"),
        ("{a}.{b}", "x."),
        ("{a}.{b}", ".x"),
        ("{p*}x{a}y", "1x2/y"),
        ("{p*}x{a}y{q*}", "1x2/y3"),
        ("{p*}x{a}y{q*}", "1x2y"),
        ("a.c", "abc"),
        ("a/b", "a/b\n"),
    ],
)
def test_a_pattern_matches_the_whole_urn_or_not_at_all(pattern: str, urn: str) -> None:
    assert NamePattern.parse(pattern, "t").apply(urn) is None


def test_each_placeholder_takes_as_little_as_it_can_from_the_left() -> None:
    assert NamePattern.parse("{a*}-{b}-{c*}", "t").bind("1-2-3-4") == {"a": "1", "b": "2", "c": "3-4"}


def test_server_names_in_pattern_and_target_are_normalised_like_urns() -> None:
    pattern = NamePattern.parse("postgresql://DB/Sales.{table}", "S3A://Lake/Sales/{table}")
    assert pattern.apply("postgres://db:5432/Sales.orders") == "s3://lake/Sales/orders"
    assert (pattern.pattern, pattern.target) == ("postgresql://DB/Sales.{table}", "S3A://Lake/Sales/{table}")


def test_a_placeholder_in_the_server_name_gets_no_port() -> None:
    pattern = NamePattern.parse("postgres://db-{region}:5432/{table}", "postgres://{region}:5432/{table}")
    assert pattern.apply("postgres://db-eu:5432/t") == "postgres://eu:5432/t"


def test_a_target_is_storable() -> None:
    assert NamePattern.parse("{a}", "x\x00\ud800/{a}").apply("t") == "x\ufffd\ufffd/t"


@pytest.mark.parametrize(
    ("pattern", "target", "message"),
    [
        ("", "t", "the pattern is empty; write a dataset URN"),
        ("p", "", "the target is empty; write a dataset URN"),
        ("a/{b", "t", r"pattern 'a/\{b': the brace at character 3 has no partner; close the placeholder"),
        ("a}/{b}", "t", "the brace at character 2 has no partner"),
        ("{{a}", "t", "the brace at character 4 has no partner"),
        ("{a{b}}", "t", "the brace at character 1 has no partner"),
        ("{a}", "{a", r"target '\{a': the brace at character 1 has no partner"),
        ("x/{}", "t", r"\{\} is no placeholder; name it with letters"),
        ("x/{*}", "t", r"\{\*\} is no placeholder"),
        ("x/{a b}", "t", r"\{a b\} is no placeholder"),
        ("x/{a**}", "t", r"\{a\*\*\} is no placeholder"),
        ("{a}/{a*}", "t", r"\{a\} stands there twice; give each its own name"),
        ("{a}{b}", "t", r"nothing stands between \{a\} and \{b\}.*; put a separator between them"),
        (
            "{a}/{b}",
            "{c}",
            r"target '\{c\}': the pattern '.*' does not bind \{c\}; use its placeholders \(\{a\}, \{b\}\)",
        ),
        ("x", "{c}", r"use its placeholders \(it has none\), or write \{\{ and \}\}"),
    ],
)
def test_a_pattern_that_cannot_mean_anything_says_why_and_what_to_do(pattern: str, target: str, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        NamePattern.parse(pattern, target)


@pytest.mark.parametrize(
    ("pattern", "urn"),
    [
        ("x".join(f"{{a{n}*}}" for n in range(30)) + "y", "x" * 200_000),
        ("x".join(f"{{a{n}}}" for n in range(30)) + "y", "x" * 200_000),
        ("{a*}x{b}y{c*}", "x" * 200_000),
        ("{a*}x{b}y{c*}", "x/" * 100_000),
        ("{a*}/{b}/{c}/{d}z{e*}", "/a" * 100_000),
        ("{a*}.{b}", "." * 200_000 + "/"),
    ],
)
def test_no_pattern_takes_for_ever(pattern: str, urn: str) -> None:
    # A backtracking matcher would not come back from the first two, and be quadratic or worse on the others.
    assert NamePattern.parse(pattern, "t").apply(urn) is None


def test_patterns_are_values_that_travel_to_other_processes() -> None:
    pattern = NamePattern.parse("a/{b}", "c/{b}")
    assert pickle.loads(pickle.dumps(pattern)) == pattern  # noqa: S301
    assert repr(pattern) == "NamePattern(pattern='a/{b}', target='c/{b}')"
    assert pattern != NamePattern.parse("a/{b}", "d/{b}")

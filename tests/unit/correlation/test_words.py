"""What people type, as a query for words and for pieces; and patterns of what is ignored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from correlator.correlation.ignored import Ignored, like
from correlator.correlation.words import pieces_of, query_of


@pytest.mark.parametrize(
    ("typed", "query"),
    [
        ("orders", "'orders':*"),
        ("Shop.ORDER_items", "'shop':* & 'order':* & 'items':*"),
        ("  größe ", "'größe':*"),
        ("...", None),
        ("", None),
        ("a'b\\c", "'a':* & 'b':* & 'c':*"),
    ],
)
def test_every_word_is_the_beginning_of_one(typed: str, query: str | None) -> None:
    assert query_of(typed) == query


@pytest.mark.parametrize(
    ("typed", "query"),
    [
        ("", None),
        ("A", "'a':*"),
        ("aB", "'ab':*"),
        ("Abc", "'abc'"),
        ("orders", "'ord' & 'rde' & 'der' & 'ers'"),
        ("aaaaa", "'aaa'"),
        ("it's", "'it''' & 't''s'"),
        ("a\\b c", "'a\\\\b' & '\\\\b ' & 'b c'"),
        ("ÄÖÜ", "'ÄÖÜ'"),
    ],
)
def test_a_text_is_cut_into_every_three_letters_in_a_row(typed: str, query: str | None) -> None:
    assert pieces_of(typed) == query


def test_of_a_very_long_text_the_first_pieces_are_enough() -> None:
    query = pieces_of("".join(map(chr, range(0x4E00, 0x4E00 + 1_000))))

    assert query is not None
    assert query.count("&") == 29


@pytest.mark.parametrize(
    ("pattern", "name", "is_hidden"),
    [
        ("a/sandbox_*", "a/sandbox_1", True),
        ("a/sandbox_*", "a/sandboxx1", False),
        ("*.tmp?", "a/b.TMP1", True),
        ("*.tmp?", "a/b.tmp", False),
        ("100%", "100%", True),
        ("100%", "1000", False),
        ("a\\b", "a\\b", True),
        ("line\nbreak*", "line\nbreaks\n", True),
    ],
)
def test_stars_and_question_marks_are_all_that_a_pattern_has(pattern: str, name: str, *, is_hidden: bool) -> None:
    assert Ignored(datasets=[like(pattern)]).hides_dataset("namespace", name) is is_hidden


@given(st.text(max_size=20))
def test_a_pattern_without_signs_hides_its_own_name(name: str) -> None:
    if not set("*?") & set(name):
        assert Ignored(namespaces=[like(name)]).hides_job(name, "any")
        assert not Ignored(namespaces=[like(name + "x")]).hides_job(name, "any")

"""What came lately is remembered, and never more than was allowed."""

from correlator.rulebook.recent import Recent


class Maker:
    """Makes numbers of texts, and counts."""

    def __init__(self) -> None:
        self.made: list[bytes] = []

    def __call__(self, text: bytes) -> int:
        self.made.append(text)
        return int(text)


def test_a_text_is_remembered_from_its_second_time_on() -> None:
    maker = Maker()
    recent = Recent(maker, most=10_000, longest=100)

    assert [recent[b"7"] for _ in range(4)] == [7, 7, 7, 7]
    assert maker.made == [b"7", b"7"]


def test_what_comes_again_soon_or_never_is_remembered_at_once() -> None:
    maker = Maker()
    recent = Recent(maker, most=10_000, longest=100, at_once=True)

    assert [recent[b"7"], recent[b"7"]] == [7, 7]
    assert maker.made == [b"7"]


def test_a_long_text_is_not_kept() -> None:
    maker = Maker()
    recent = Recent(maker, most=10_000, longest=5, at_once=True)

    assert recent[b"000007"] == recent[b"000007"] == 7
    assert maker.made == [b"000007"] * 2


def test_what_is_in_use_stays_while_others_pass_through() -> None:
    maker = Maker()
    recent = Recent(maker, most=20_000, longest=100, at_once=True)
    for number in range(1_000):
        assert recent[str(number).encode()] == number
        assert recent[b"0"] == 0

    assert maker.made.count(b"0") == 1


def test_no_more_is_kept_than_was_allowed() -> None:
    maker = Maker()
    recent = Recent(maker, most=20_000, longest=100, at_once=True)
    for number in range(10_000):
        assert recent[b"%050d" % number] == number
    maker.made.clear()
    for number in range(10_000):
        assert recent[b"%050d" % number] == number

    # An entry weighs more than its text of fifty bytes, so far fewer than four hundred can have been there.
    assert len(maker.made) > 10_000 - 20_000 // 50


def test_where_nothing_comes_again_what_begins_to_is_noticed_in_time() -> None:
    maker = Maker()
    recent = Recent(maker, most=20_000, longest=100)
    for number in range(5_000):
        assert recent[str(number).encode()] == number
    maker.made.clear()
    for _ in range(100):
        assert recent[b"7777"] == 7777

    assert len(maker.made) < 50

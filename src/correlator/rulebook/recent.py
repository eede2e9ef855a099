"""Texts that came lately, and what was made of each.

The same pipelines run again and again, and most of what they say comes again to the letter. To look a text up costs a
fraction of reading it.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_WEIGHT_OF_AN_ENTRY = 512
"""What an entry weighs beside its text: a guess at the objects that were made of a short one."""


_MOST_GLIMPSED = 4096
_MOST_FUTILE = 512
_LOOKED_AT = 16
"""After so many texts that came for the first time one after the other, only every so manieth is looked at."""


_all: Final[list["Recent[Any]"]] = []


class Recent(dict[bytes, T], Generic[T]):
    """Remembers what was made of texts; a dict, because that answers what is known in C.

    Bounded by weight. The entries are of two generations: when the young weigh half of what is allowed they become the
    old ones, and of those only what is asked for again in time comes back among the young. So what is in use stays, at
    no cost for a hit; an order of use would cost more than most of the work that is saved.

    To keep what never comes again is dear, since every entry takes fresh memory. So a text is kept when it comes for
    the second time, and at the first only its hash; unless texts come again either soon or never, as those about a run
    do: then `at_once`. Where nothing ever comes again, only now and then a text is looked at.
    """

    def __init__(self, make: Callable[[bytes], T], *, most: int, longest: int, at_once: bool = False) -> None:
        super().__init__()
        self._make = make
        self._half = most // 2
        self._longest = longest
        self._at_once = at_once
        self._weight = 0
        self._old: dict[bytes, T] = {}
        self._glimpsed: set[int] = set()
        self._futile = 0
        _all.append(self)

    def __missing__(self, text: bytes) -> T:
        if (made := self._old.get(text)) is None:
            made = self._make(text)
            if not self._at_once:
                futile = self._futile
                if futile > _MOST_FUTILE and futile % _LOOKED_AT:
                    self._futile = futile + 1
                    return made
                number = hash(text)
                if number not in self._glimpsed:
                    if len(self._glimpsed) >= _MOST_GLIMPSED:
                        self._glimpsed.clear()
                    self._glimpsed.add(number)
                    self._futile = futile + 1
                    return made
                self._futile = 0
        length = len(text)
        if length <= self._longest:
            self._weight += length + _WEIGHT_OF_AN_ENTRY
            if self._weight > self._half:
                self._old = dict(self)
                super().clear()
                self._weight = length + _WEIGHT_OF_AN_ENTRY
            self[text] = made
        return made

    def clear(self) -> None:
        super().clear()
        self._old = {}
        self._glimpsed = set()
        self._futile = 0
        self._weight = 0


def forget_all() -> None:
    """Forget every text seen so far."""
    for recent in _all:
        recent.clear()

"""Chance that comes out the same for the same seed."""

from random import Random


class Luck(Random):
    """No clock and no entropy of the machine has a part in it."""

    def has(self, share: float) -> bool:
        """Whether something happens that happens so often."""
        return self.random() < share


def run_id(moment: float, luck: Luck) -> str:
    """A UUID of version 7: made of the moment and of chance."""
    milliseconds = int(moment * 1000) & 0xFFFFFFFFFFFF
    bits = luck.getrandbits(74)
    number = milliseconds << 80 | 7 << 76 | (bits >> 62) << 64 | 2 << 62 | bits & (1 << 62) - 1
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def number_of(text: str) -> int:
    """A number for a text, the same tomorrow."""
    value = 0
    for letter in text.encode():
        value = (value * 16_777_619 ^ letter) & 0xFFFFFFFFFF
    return value

"""Files of a log: bounded, in order, and with whole lines."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from correlator.cli.log_files import LogFiles


def lines_of(directory: Path) -> list[list[bytes]]:
    """The lines of each file, the oldest file first."""
    files = sorted(directory.iterdir(), key=lambda path: path.name, reverse=True)
    return [path.read_bytes().splitlines() for path in files]


def test_a_full_file_is_put_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    log = LogFiles(tmp_path / "a.log", most_bytes=20, files=3)
    for number in range(9):
        log.add(b"line %d of it\n" % number)

    assert lines_of(tmp_path) == [[b"line 6 of it"], [b"line 7 of it"], [b"line 8 of it"]]


def test_one_file_is_a_file_too(tmp_path: Path) -> None:
    log = LogFiles(tmp_path / "a.log", most_bytes=20, files=1)
    for number in range(3):
        log.add(b"line %d of it\n" % number)

    assert lines_of(tmp_path) == [[b"line 2 of it"]]


def test_who_starts_again_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for word in (b"one\n", b"two\n"):
        LogFiles(tmp_path / "a.log", most_bytes=100, files=2).add(word)

    assert lines_of(tmp_path) == [[b"one", b"two"]]


@given(st.lists(st.text("ab ", max_size=12).map(str.encode), max_size=30), st.data())
def test_however_lines_come_in_pieces_none_is_torn_or_lost(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    with TemporaryDirectory() as name:
        path = Path(name) / "a.log"
        log = LogFiles(path, most_bytes=16, files=1000)
        rest = whole
        while rest:
            size = data.draw(st.integers(1, 40))
            log.add(rest[:size])
            rest = rest[size:]
        older = [file for number in range(999, 0, -1) if (file := path.with_name(f"a.log.{number}")).exists()]
        kept = [file.read_bytes() for file in (*older, path)]

    assert b"".join(kept) == whole
    assert all(file.endswith(b"\n") for file in kept if file)

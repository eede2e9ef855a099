"""Lines of files on this machine: each is in one piece, however the file is cut."""

import io
from pathlib import Path

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from correlator.pipeline.pieces import Arrived, lines_between, opened

_TEXTS = st.lists(st.sampled_from([b"{", b"}", b"a", b" ", b"\n", b"\r", b"\r\n", "\ufeff".encode()])).map(b"".join)


@given(_TEXTS, st.integers(1, 12))
@example("\ufeff{}".encode(), 1)
def test_every_line_is_in_one_piece_and_in_order(text: bytes, length: int) -> None:
    pieces = [list(lines_between(io.BytesIO(text), start, start + length)) for start in range(0, len(text), length)]

    lines = text.removeprefix("\ufeff".encode()).splitlines()
    says_something = [line for line in lines if line.decode().replace("\ufeff", "").strip(" ")]
    assert [line for lines in pieces for line in lines] == says_something


def test_a_line_longer_than_a_piece_is_in_the_one_that_it_begins_in() -> None:
    file = io.BytesIO(b'{"a": 1}\n{"b": "' + b"x" * 200_000 + b'"}\n{"c": 3}\n')
    sizes = [[len(line) for line in lines_between(file, start, start + 10)] for start in (0, 10, 20, 200_010)]
    assert sizes == [[8, 200_009], [], [], [8]]


def test_a_file_that_was_cut_short_meanwhile_ends_where_it_ends() -> None:
    assert list(lines_between(io.BytesIO(b"{}\n{}"), 0, 100)) == [b"{}", b"{}"]
    assert list(lines_between(io.BytesIO(b"{}\n{}"), 100, 200)) == []


def test_events_and_pieces_may_come_together(tmp_path: Path) -> None:
    file = tmp_path / "ä b.jsonl"
    file.write_bytes(b'{"n": 1}\n\n{"n": 2}\n')
    batch = pa.RecordBatch.from_pylist(
        [
            {"origin": file.as_uri(), "position": 0, "size": 19, "raw": None, "length": 4},
            {"origin": "elsewhere", "position": 7, "size": 1, "raw": b"{}", "length": None},
            {"origin": file.as_uri(), "position": 4, "size": 19, "raw": None, "length": 100},
        ],
        schema=pa.schema(
            [
                ("origin", pa.string()),
                ("position", pa.int64()),
                ("size", pa.int64()),
                ("raw", pa.binary()),
                ("length", pa.int64()),
            ]
        ),
    )

    found = [(raw, row) for arrived in opened([batch]) for raw, row in _with_what_is_known(arrived)]

    of_file = {"origin": file.as_uri(), "position": None, "size": 19}
    assert found == [
        (b"{}", {"origin": "elsewhere", "position": 7, "size": 1}),
        (b'{"n": 1}', of_file),
        (b'{"n": 2}', of_file),
    ]


def _with_what_is_known(arrived: Arrived) -> list[tuple[bytes | None, dict[str, object]]]:
    raws = list(arrived)
    rows: list[dict[str, object]] = arrived.about.to_pylist()
    assert [arrived.place(number) for number in range(len(raws))] == [(row["origin"], row["position"]) for row in rows]
    return list(zip(raws, rows, strict=True))

"""Bodies: which kinds are taken, how they are unpacked, and that no body takes more than its share."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from correlator.http.bodies import BodyReader, Budget
from correlator.http.exchange import ClientDisconnect, Message, Request, joined_headers
from correlator.http.problems import HttpProblem
from tests.unit.http.requests import request

EVENT = b'{"eventType": "START", "job": {"namespace": "n", "name": "j"}}'
MEGABYTE = 1_000_000
COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.compress}


def reader(max_bytes: int = MEGABYTE, *, budget: Budget | None = None, seconds: float = 60.0) -> BodyReader:
    return BodyReader(max_bytes=max_bytes, receive_seconds=seconds, budget=budget or Budget(100 * MEGABYTE))


def read(asked: Request, by: BodyReader | None = None) -> bytes:
    return asyncio.run((by or reader()).read(asked))


def refusal(asked: Request, by: BodyReader | None = None) -> HttpProblem:
    with pytest.raises(HttpProblem) as caught:
        read(asked, by)
    return caught.value


def status_of(asked: Request, by: BodyReader | None = None) -> int:
    return refusal(asked, by).kind.status


# --- what kind it is


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        'APPLICATION/JSON;Charset="UTF-8"',
        "application/json;charset=us-ascii",
        "application/json; odata=verbose; charset=utf8",
        "application/vnd.openlineage.v2+json",
    ],
)
def test_json_is_taken_under_every_name_it_has(content_type: str) -> None:
    assert read(request([EVENT], headers={"Content-Type": content_type})) == EVENT


def test_a_body_without_a_content_type_is_taken_as_json() -> None:
    assert read(request([EVENT])) == EVENT


@pytest.mark.parametrize(
    ("content_type", "words"),
    [
        ("application/x-www-form-urlencoded", "-H 'Content-Type: application/json'"),
        ("application/x-ndjson", "elements of one array"),
        ("text/plain", "send application/json"),
        ("application/json; charset=utf-16", "UTF-8"),
        ("application/json; charset=latin-1", "UTF-8"),
        ("multipart/form-data; boundary=x", "send application/json"),
        ("application/json, application/json", "send application/json"),
        (";", "send application/json"),
    ],
)
def test_other_bodies_are_refused_and_told_what_to_send(content_type: str, words: str) -> None:
    problem = refusal(request([EVENT], headers={"Content-Type": content_type}))
    assert problem.kind.status == 415
    assert words in problem.detail
    assert (b"accept", b"application/json") in problem.headers


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "gzip, zstd", "compress"])
def test_an_encoding_that_is_not_taken_is_refused_with_those_that_are(encoding: str) -> None:
    problem = refusal(request([EVENT], headers={"Content-Encoding": encoding}))
    assert problem.kind.status == 415
    assert (b"accept-encoding", b"gzip, zstd") in problem.headers


@pytest.mark.parametrize("encoding", ["identity", "", "Identity, identity"])
def test_identity_is_no_encoding(encoding: str) -> None:
    assert read(request([EVENT], headers={"Content-Encoding": encoding})) == EVENT


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP", "identity, gzip"])
def test_gzip_is_unpacked_under_all_its_names(encoding: str) -> None:
    assert read(request([gzip.compress(EVENT)], headers={"Content-Encoding": encoding})) == EVENT


# --- how it comes in


@given(body=st.binary(max_size=2000), cuts=st.lists(st.integers(0, 2000), max_size=10))
def test_a_body_is_the_same_however_it_is_cut(body: bytes, cuts: list[int]) -> None:
    assert read(request(cut(body, cuts))) == body


@given(
    parts=st.lists(st.binary(max_size=500), min_size=1, max_size=5),
    cuts=st.lists(st.integers(0, 3000), max_size=10),
    encoding=st.sampled_from(["gzip", "zstd"]),
)
def test_a_packed_body_is_unpacked_however_it_is_cut_and_of_however_many_members(
    parts: list[bytes], cuts: list[int], encoding: str
) -> None:
    packed = b"".join(COMPRESS[encoding](part) for part in parts)
    assert read(request(cut(packed, cuts), headers={"Content-Encoding": encoding})) == b"".join(parts)


@given(body=st.binary(min_size=1, max_size=3000), keep=st.integers(0, 3000), encoding=st.sampled_from(["gzip", "zstd"]))
def test_a_packed_body_that_breaks_off_is_never_taken_for_a_whole_one(body: bytes, keep: int, encoding: str) -> None:
    packed = COMPRESS[encoding](body)
    problem = refusal(request([packed[: keep % len(packed)]], headers={"Content-Encoding": encoding}))
    assert problem.kind.status == 400
    assert encoding in problem.detail


@given(noise=st.binary(min_size=1, max_size=300), encoding=st.sampled_from(["gzip", "zstd"]))
def test_noise_gets_words_and_never_an_exception_of_the_library(noise: bytes, encoding: str) -> None:
    try:
        read(request([noise], headers={"Content-Encoding": encoding}))
    except HttpProblem as problem:
        assert problem.kind.status == 400  # noqa: PT017 - noise that happens to be a whole frame passes


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_what_follows_the_end_of_a_packed_body_is_not_ignored(encoding: str) -> None:
    packed = COMPRESS[encoding](EVENT) + b"and then some"
    problem = refusal(request([packed], headers={"Content-Encoding": encoding}))
    assert problem.kind.status == 400
    assert "something else follows its end" in problem.detail


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_large_body_is_unpacked_whole(encoding: str) -> None:
    body = b"".join(b'{"number": %d},' % number for number in range(1_000_000))
    by = reader(max_bytes=len(body))
    asked = request(cut(COMPRESS[encoding](body), [100_000, 100_001]), headers={"Content-Encoding": encoding})
    assert read(asked, by) == body
    assert asked.reserved == len(body), "only what is still held counts"


def test_a_client_that_goes_away_is_not_answered() -> None:
    with pytest.raises(ClientDisconnect):
        read(request([b'{"half'], then_gone=True))
    with pytest.raises(ClientDisconnect):
        read(request([], then_gone=True))


def test_a_sender_that_takes_too_long_is_told_so_and_its_connection_closed() -> None:
    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    asked = Request("POST", "/", b"", joined_headers([(b"content-length", b"10")]), never, "id", "127.0.0.1")
    problem = refusal(asked, reader(seconds=0.01))
    assert problem.kind.status == 408
    assert "request_timeout" in problem.detail
    assert (b"connection", b"close") in problem.headers


def test_who_is_cancelled_for_another_reason_is_cancelled() -> None:
    async def cancelled_while_reading() -> None:
        started = asyncio.Event()

        async def never() -> Message:
            started.set()
            await asyncio.Event().wait()
            raise AssertionError

        asked = Request("POST", "/", b"", {}, never, "id", "127.0.0.1")
        reading = asyncio.create_task(reader().read(asked))
        await started.wait()
        reading.cancel()
        await reading

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled_while_reading())


def test_many_slow_senders_have_a_deadline_each() -> None:
    async def all_at_once() -> list[object]:
        by = reader(seconds=0.05)

        async def slowly(asked: Awaitable[bytes]) -> object:
            try:
                return await asked
            except HttpProblem as problem:
                return problem.kind.status

        async def never() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        late = [Request("POST", "/", b"", {}, never, "id", "127.0.0.1") for _ in range(20)]
        return await asyncio.gather(*(slowly(by.read(asked)) for asked in [*late, request([EVENT])]))

    assert asyncio.run(all_at_once()) == [408] * 20 + [EVENT]


# --- how much it may be


def test_a_declared_length_over_the_limit_is_refused_before_a_byte_is_read() -> None:
    asked = request([], headers={"Content-Length": str(MEGABYTE + 1)})
    problem = refusal(asked)
    assert problem.kind.status == 413
    assert "max_request_bytes" in problem.detail
    assert "1,000,000" in problem.detail


def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    assert len(read(request([b"x" * MEGABYTE]))) == MEGABYTE
    assert status_of(request([b"x" * MEGABYTE, b"x"])) == 413
    for encoding, compress in COMPRESS.items():
        headers = {"Content-Encoding": encoding}
        assert len(read(request([compress(b"x" * MEGABYTE)], headers=headers))) == MEGABYTE
        assert status_of(request([compress(b"x" * (MEGABYTE + 1))], headers=headers)) == 413


def test_a_body_without_a_length_is_counted_while_it_comes() -> None:
    taken = 0

    async def endless() -> Message:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b"x" * 100_000, "more_body": True}

    asked = Request("POST", "/", b"", {}, endless, "id", "127.0.0.1")
    assert status_of(asked) == 413
    assert taken == 11


def gzip_bomb() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([packer.compress(b"\0" * MEGABYTE) for _ in range(200)]) + packer.flush()


def zstd_bomb() -> bytes:
    packer = zstandard.ZstdCompressor(level=19).compressobj()
    return b"".join([packer.compress(b"\0" * MEGABYTE) for _ in range(200)]) + packer.flush()


@pytest.mark.parametrize(("encoding", "make"), [("gzip", gzip_bomb), ("zstd", zstd_bomb)])
def test_a_bomb_costs_little_more_than_the_limit(encoding: str, make: Callable[[], bytes]) -> None:
    asked = request([make()], headers={"Content-Encoding": encoding})
    tracemalloc.start()
    try:
        problem = refusal(asked)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert problem.kind.status == 413
    assert "unpacked" in problem.detail
    assert peak < 20 * MEGABYTE, "of the 200 MB inside"


def test_a_zstd_frame_that_wants_a_huge_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(EVENT) + packer.flush()
    problem = refusal(request([packed], headers={"Content-Encoding": "zstd"}))
    assert problem.kind.status == 400
    assert "8 MiB" in problem.detail


@pytest.mark.parametrize(("encoding", "parts"), [("gzip", "members"), ("zstd", "frames")])
def test_a_body_of_countless_empty_members_is_refused(encoding: str, parts: str) -> None:
    problem = refusal(request([COMPRESS[encoding](b"") * 10_001], headers={"Content-Encoding": encoding}))
    assert problem.kind.status == 400
    assert f"more than 10,000 {parts}" in problem.detail


# --- and all of them together


def test_what_is_in_flight_is_bounded_and_given_back() -> None:
    budget = Budget(1000)
    by = reader(budget=budget)
    first = request([b"x" * 900])
    read(first, by)
    assert budget.used == 900

    problem = refusal(request([], headers={"Content-Length": "101"}), by)
    assert problem.kind.status == 503
    assert "max_inflight_bytes" in problem.detail
    assert (b"retry-after", b"1") in problem.headers

    budget.release(first)
    budget.release(first)
    assert budget.used == 0
    assert len(read(request([b"x" * 101]), by)) == 101


def test_a_request_that_is_alone_always_fits() -> None:
    budget = Budget(10)
    body = EVENT * 100
    for asked in (
        request([body], headers={"Content-Length": str(len(body))}),
        request(cut(body, [100])),
        request([gzip.compress(body)], headers={"Content-Encoding": "gzip"}),
    ):
        assert read(asked, reader(budget=budget)) == body
        budget.release(asked)
    assert budget.used == 0


def test_what_is_refused_half_way_is_given_back_too() -> None:
    budget = Budget(10 * MEGABYTE)
    by = reader(budget=budget)
    for asked in (
        request([b"x" * 600_000, b"x" * 600_000]),
        request([gzip.compress(b"x" * 2 * MEGABYTE)], headers={"Content-Encoding": "gzip"}),
        request([gzip.compress(EVENT)[:-1]], headers={"Content-Encoding": "gzip", "Content-Length": "70"}),
    ):
        refusal(asked, by)
        budget.release(asked)
    assert budget.used == 0


def cut(body: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({0, *(min(place, len(body)) for place in cuts), len(body)})
    return [body[start:end] for start, end in pairwise(places)] or [b""]

"""The pages as files: what is sent, and how long a browser may keep it."""

import asyncio
import gzip
from pathlib import Path

import pytest

from correlator.http.edge import Routes
from correlator.http.exchange import Message, Request
from correlator.server.user_interface import UserInterface


async def never() -> Message:
    raise AssertionError("nobody reads the body of a page")


def asked(path: str, method: str = "GET", **headers: str) -> Request:
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return Request(method, path, b"", named, never, "id", "127.0.0.1")


@pytest.fixture
def built(tmp_path: Path) -> UserInterface:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>Correlator</title>")
    (tmp_path / "assets" / "index-abc123.js").write_text("run()")
    (tmp_path / "assets" / "index-abc123.js.gz").write_bytes(gzip.compress(b"run()"))
    return UserInterface(tmp_path)


@pytest.mark.parametrize("path", ["/", "/incidents", "/incidents/7c7e1b80", "/datasets/postgres://db/a", "/settings"])
def test_every_page_is_the_same_document(built: UserInterface, path: str) -> None:
    answered = built.page(asked(path))
    assert answered is not None
    assert (answered.status, b"<title>Correlator" in answered.body) == (200, True)


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/nothing", "/assets/gone.js"])
def test_what_is_no_page_is_left_to_others(built: UserInterface, path: str) -> None:
    assert built.page(asked(path)) is None
    assert built.page(asked("/", "POST")) is None


def test_a_person_who_is_lost_gets_a_page(built: UserInterface) -> None:
    answered = built.page(asked("/nothing", accept="text/html,*/*"))
    assert answered is not None
    assert answered.status == 404
    assert built.page(asked("/api/nothing", accept="text/html")) is None


def test_nothing_inline_and_nothing_from_elsewhere_is_allowed(built: UserInterface) -> None:
    answered = built.page(asked("/"))
    assert answered is not None
    policy = dict(answered.headers)[b"content-security-policy"]
    assert b"default-src 'none'" in policy
    assert b"unsafe" not in policy
    assert b"http" not in policy
    assert b"frame-ancestors 'none'" in policy


async def _sent(interface: UserInterface, path: str, **headers: str) -> tuple[bytes, dict[bytes, bytes]]:
    routes = Routes()
    interface.add_to(routes)
    found = routes.find(path)
    assert found is not None
    answered = await found["GET"].handler(asked(path, **headers))
    return answered.body, dict(answered.headers)


@pytest.mark.parametrize(("accepts", "packed"), [("gzip, br", True), ("", False)])
def test_what_is_named_after_its_content_is_kept_for_ever(built: UserInterface, accepts: str, *, packed: bool) -> None:
    body, headers = asyncio.run(_sent(built, "/assets/index-abc123.js", accept_encoding=accepts))
    assert b"immutable" in headers[b"cache-control"]
    assert headers[b"content-type"].startswith((b"text/javascript", b"application/javascript"))
    assert (b"content-encoding" in headers) is packed
    assert (gzip.decompress(body) if packed else body) == b"run()"


def test_without_a_build_the_first_page_says_how_to_make_one(tmp_path: Path) -> None:
    interface = UserInterface(tmp_path)
    answered = interface.page(asked("/"))
    assert not interface.is_built
    assert answered is not None
    assert b"make web" in answered.body
    assert b"/docs" in answered.body

"""Full disks, damaged files, slow clients, backends that are slow, choosy or wrong: nothing is lost in silence."""

import json
import shutil
import socket
import sqlite3
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from correlator.key_scopes import hash_of
from tests.integration.proxy.backends import Backend, Reply, backend, refuses
from tests.integration.proxy.proxies import BATCH, ONE, Proxy, broken, event, proxy
from tests.integration.server.running import wait_until

NOWHERE = "http://127.0.0.1:9"


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """A file system that is soon full. It takes somebody who may mount one."""
    directory.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("there is no mount here")
    made = subprocess.run(  # noqa: S603
        [mount, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip(f"no small disk can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield directory
    finally:
        subprocess.run([umount, "-l", str(directory)], check=True)  # noqa: S603


def fill(made: Proxy, most: int = 5000) -> list[int]:
    """Send until it is refused; the marks that were acknowledged."""
    kept: list[int] = []
    for number in range(most):
        answer = made.post(event(number, padding="x" * 20_000))
        if answer.status != 200:
            assert answer.status == 503, answer.body
            assert int(answer.header("Retry-After") or 0) >= 1
            return kept
        kept.append(number)
    raise AssertionError("the disk never got full")


def test_a_full_disk_is_answered_503_and_what_was_forwarded_makes_room_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "12m") as disk, backend() as there:
        arguments = ("--destination", f"prod={there.url}", "--disk-reserve", "3MB", "--partition-bytes", "500kB")
        there.stop()
        with proxy(disk, *arguments, log_dir=tmp_path) as made:
            kept = fill(made)
            assert len(kept) > 20
            assert made.get("/ready").status == 503
            assert made.get("/ping").status == 200
            assert "3MB of it are kept free (disk_reserve)" in made.health()["trouble"]
            there.start()
            made.wait_until_forwarded()
            assert there.marks == kept
            wait_until(lambda: made.post(event("after")).status == 200, "events are taken again")
            wait_until(lambda: made.get("/ready").status == 200, "it is ready again")


def test_a_disk_that_is_full_to_the_last_byte_never_gets_a_false_200(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8m") as disk:
        arguments = ("--destination", NOWHERE, "--disk-reserve", "1", "--partition-bytes", "500kB")
        with proxy(disk, *arguments, log_dir=tmp_path) as made:
            kept = fill(made)
            assert "the disk is full" in made.health()["trouble"] or "disk_reserve" in made.health()["trouble"]
            for number in range(10):
                assert made.post(event(f"more {number}", padding="x" * 20_000)).status == 503
            made.kill()
        shutil.copytree(disk / "proxy", tmp_path / "copy")
    connection = sqlite3.connect(tmp_path / "copy" / "buffer.db")
    tables = [name for (name,) in connection.execute("SELECT name FROM partitions ORDER BY id")]
    marks = [
        json.loads(raw)["mark"]
        for table in tables
        for (raw,) in connection.execute(f"SELECT event FROM {table} WHERE continue ORDER BY id")  # noqa: S608
    ]
    connection.close()
    assert marks == kept


def test_a_damaged_buffer_is_set_aside_loudly_and_a_new_one_begun(tmp_path: Path) -> None:
    with proxy(tmp_path, "--destination", NOWHERE) as made:
        made.post(event(1))
        made.stop()
    file = tmp_path / "proxy" / "buffer.db"
    file.write_bytes(b"\0" * 100 + file.read_bytes()[100:])
    with backend() as there, proxy(tmp_path, "--destination", there.url) as made:
        wait_until(lambda: "THE BUFFER IS DAMAGED" in made.log, "it is told")
        assert made.post(event(2)).status == 200
        there.wait_for_events(1)
        assert there.marks == [2]
    assert len(list((tmp_path / "proxy").glob("buffer.db.corrupt-*"))) == 1


def test_a_buffer_that_is_damaged_while_it_is_used_is_replaced_and_counted(tmp_path: Path) -> None:
    with backend() as there:
        there.stop()
        with proxy(tmp_path, "--destination", f"prod={there.url}", "--destination-batch-events", "5") as made:
            made.post([event(number, padding="x" * 3000) for number in range(2000)], BATCH)
            made.stop()
        file = tmp_path / "proxy" / "buffer.db"
        content = bytearray(file.read_bytes())
        # The events in the middle: nobody looks at them before their turn.
        for page in range(200 * 8192, 400 * 8192, 8192):
            content[page : page + 32] = b"\xff" * 32
        file.write_bytes(content)
        with proxy(tmp_path, "--destination", f"prod={there.url}", "--destination-batch-events", "5") as made:
            there.start()
            made.wait_for_words("THE BUFFER IS DAMAGED")
            wait_until(lambda: made.post(event("new")).status == 200, "it goes on")
            there.wait_for(lambda: "new" in there.marks, "a new event arrives")
            assert "correlator_proxy_buffer_replaced_total 1" in made.get("/metrics").body.decode()
            assert made.destination()["dropped"] > 0


def test_a_second_proxy_on_the_same_buffer_says_why_it_cannot_start(tmp_path: Path) -> None:
    with proxy(tmp_path, "--destination", NOWHERE):
        second = Proxy(tmp_path, ("--destination", NOWHERE))
        assert second.process.wait(60) == 2
        assert "Another proxy uses the buffer" in second.log


def test_a_client_that_sends_its_request_byte_by_byte_is_sent_away_and_holds_nobody_up(tmp_path: Path) -> None:
    with proxy(tmp_path, "--destination", NOWHERE, "--request-timeout", "1s") as made:
        slow = [socket.create_connection(("127.0.0.1", made.port), timeout=60) for _ in range(20)]
        for number, connection in enumerate(slow):
            connection.sendall(b"POST /api/v1/lineage HTTP/1.1\r\nHost: localhost\r\n"[: number + 10])
        slow[-1].sendall(b"\r\nContent-Length: 100\r\n\r\n{")
        assert made.post(event(1)).status == 200
        for connection in slow:
            # Closed, with or without a word.
            while connection.recv(4096):
                pass
            connection.close()
        assert made.post(event(2)).status == 200


def test_a_backend_that_answers_slowly_slows_down_nobody_but_itself(tmp_path: Path) -> None:
    gate = threading.Event()

    def slowly(there: Backend, _: str, events: Sequence[dict[str, Any]]) -> Reply:
        gate.wait(30)
        there.accept(events)
        return Reply(200)

    with (
        backend(slowly) as slow,
        backend() as quick,
        proxy(tmp_path, "--destination", f"slow={slow.url}", "--destination", f"quick={quick.url}") as made,
    ):
        for number in range(20):
            assert made.post(event(number)).status == 200
        quick.wait_for_events(20)
        assert made.destination("slow")["lag_events"] == 20
        gate.set()
        slow.wait_for_events(20)
        assert slow.marks == quick.marks == list(range(20))
        made.wait_until_forwarded()
        # Slow is not wrong: nothing was sent twice.
        assert made.destination("slow")["retried"] == 0


@pytest.mark.parametrize("has_batch", [True, False], ids=["batches", "singles"])
def test_a_backend_that_refuses_every_tenth_event_gets_all_others_in_order(tmp_path: Path, has_batch: bool) -> None:  # noqa: FBT001
    every_tenth = refuses(lambda each: each["mark"] % 10 == 0, has_batch=has_batch)
    with backend(every_tenth) as there, proxy(tmp_path, "--destination", f"prod={there.url}") as made:
        for start in (0, 40):
            made.post([event(number) for number in range(start, start + 40)], BATCH)
        for number in range(80, 100):
            made.post(event(number))
        made.wait_until_forwarded()
        assert there.marks == [number for number in range(100) if number % 10]
        told = made.destination()
        assert (told["sent"], told["failed"]) == (90, 10)
    connection = sqlite3.connect(tmp_path / "proxy" / "failed-events.db")
    rows = connection.execute("SELECT raw, destination, answer FROM failed_events ORDER BY id").fetchall()
    connection.close()
    assert [json.loads(raw)["mark"] for raw, _, _ in rows] == list(range(0, 100, 10))
    assert all(destination == "prod" and "not wanted" in answer for _, destination, answer in rows)


def test_with_on_refusal_block_nothing_passes_an_event_that_is_refused(tmp_path: Path) -> None:
    wanted = threading.Event()
    choosy = refuses(lambda each: each["mark"] == 1 and not wanted.is_set(), has_batch=False)
    with backend(choosy) as there, proxy(tmp_path, "--destination", there.url, "--on-refusal", "block") as made:
        for number in range(3):
            made.post(event(number))
        there.wait_for_requests(6)
        assert there.marks == [0]
        assert made.health()["status"] == "degraded"
        wanted.set()
        there.wait_for_events(3)
        assert there.marks == [0, 1, 2]


def test_a_wrong_key_makes_the_queue_wait_loudly_and_nothing_is_dropped(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("wrong")

    def asks_for_key(there: Backend, _: str, events: Sequence[dict[str, Any]]) -> Reply:
        if there.keys[-1] != "Bearer right":
            return Reply(401)
        there.accept(events)
        return Reply(200)

    with backend(asks_for_key) as there, proxy(tmp_path, "--destination", f"prod={there.url};key_file={key}") as made:
        for number in range(5):
            made.post(event(number))
        made.wait_for_words("SOMEBODY HAS TO DO SOMETHING: it answered 401: the key is wrong or missing")
        told = made.destination()
        assert (told["state"], told["lag_events"], told["failed"], told["dropped"]) == ("misdirected", 5, 0, 0)
        assert 'destination_up{destination="prod"} 0' in made.get("/metrics").body.decode()
        key.write_text("right")
        there.wait_for_events(5)
        assert there.marks == list(range(5))


def test_more_than_the_buffer_may_hold_drops_the_oldest_and_tells(tmp_path: Path) -> None:
    with backend() as there:
        there.stop()
        arguments = ("--retention-bytes", "100kB", "--max-event-bytes", "50kB")
        with proxy(tmp_path, "--destination", f"prod={there.url}", *arguments) as made:
            for number in range(100):
                assert made.post(event(number, padding="x" * 3000)).status == 200
            made.wait_for_words("EVENTS ARE DROPPED: the buffer holds more than retention_bytes allows")
            wait_until(lambda: made.health()["buffer"]["bytes"] <= 100_000, "the buffer keeps its limit")
            there.start()
            made.wait_until_forwarded()
            told = made.destination()
            assert told["sent"] + told["dropped"] == 100
            assert there.marks == list(range(100))[-len(there.marks) :]
            dropped = made.get("/metrics").body.decode()
            assert f'correlator_proxy_dropped_total{{destination="prod"}} {told["dropped"]}' in dropped


# --- as a reverse proxy


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    openssl = shutil.which("openssl")
    assert openssl is not None
    subprocess.run(  # noqa: S603
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(file), "-out", str(file) + ".crt"),
        ],
        check=True,
        capture_output=True,
    )
    file.write_bytes(file.read_bytes() + Path(f"{file}.crt").read_bytes())
    return file


def test_as_a_reverse_proxy_it_has_tls_and_keys_and_many_senders(tmp_path: Path, certificate: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("".join(f"sender{number} {hash_of(b'key%d' % number).hex()}\n" for number in range(8)))
    arguments = ("--host", "0.0.0.0", "--sender-keys-file", str(keys), "--tls-certificate", str(certificate))  # noqa: S104
    with backend() as there, proxy(tmp_path, "--destination", there.url, *arguments) as made:
        context = ssl.create_default_context(cafile=f"{certificate}.crt")

        def post(key: str, value: object) -> int:
            connection = HTTPSConnection("localhost", made.port, context=context, timeout=60)
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            connection.request("POST", ONE, json.dumps(value), headers)
            status = connection.getresponse().status
            connection.close()
            return status

        def send(number: int) -> None:
            for count in range(5):
                post(f"key{number}", event((number, count)))

        threads = [threading.Thread(target=send, args=[number]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert post("unknown", event("intruder")) == 401
        there.wait_for_events(40)
        for number in range(8):
            assert [mark[1] for mark in there.marks if mark[0] == number] == list(range(5))


def test_a_tls_backend_is_trusted_only_by_its_certificate(tmp_path: Path, certificate: Path) -> None:
    """Two proxies in a row: the second is the backend of the first."""
    tls = ("--tls-certificate", str(certificate))
    with (
        backend() as there,
        proxy(tmp_path / "inner", "--destination", there.url, *tls) as inner,
        proxy(tmp_path / "a", "--destination", f"https://localhost:{inner.port};ca={certificate}.crt") as trusting,
        proxy(tmp_path / "b", "--destination", f"https://localhost:{inner.port}") as doubting,
    ):
        trusting.post([event(number) for number in range(3)], BATCH)
        there.wait_for_events(3)
        doubting.post(event("never"))
        doubting.wait_for_words("its certificate is not trusted")
        assert there.marks == [0, 1, 2]


def test_without_keys_it_listens_on_this_machine_only(tmp_path: Path) -> None:
    open_ = Proxy(tmp_path, ("--destination", NOWHERE, "--host", "0.0.0.0"))  # noqa: S104
    assert open_.process.wait(60) == 2
    assert "Without keys the proxy listens on this machine only" in open_.log


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "needs at least one --destination"),
        (("--destination", "ftp://x"), "is no destination"),
        (("--destination", NOWHERE, "--destination", NOWHERE), "Two destinations are named"),
        (("--destination", NOWHERE, "--failed-event-handler", "no.such:Class"), "cannot be made"),
        (("--destination", NOWHERE, "--sender-keys-file", "/nowhere"), "cannot be read"),
        (("--destination", NOWHERE, "--retention-bytes", "1MB"), "max_event_bytes (32MB) is more than retention_bytes"),
    ],
)
def test_what_cannot_work_is_told_at_the_start(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    started = Proxy(tmp_path, arguments)
    assert started.process.wait(60) == 2
    assert words in started.log


def test_a_backend_that_asks_for_patience_gets_it(tmp_path: Path) -> None:
    moments: list[float] = []

    def busy_once(there: Backend, _: str, events: Sequence[dict[str, Any]]) -> Reply:
        moments.append(time.monotonic())
        if len(moments) == 1:
            return Reply(429, headers={"Retry-After": "1"})
        there.accept(events)
        return Reply(200)

    with backend(busy_once) as there, proxy(tmp_path, "--destination", there.url) as made:
        made.post(event(1))
        there.wait_for_events(1)
    # The proxy of the tests would otherwise come back after a few milliseconds.
    assert moments[1] - moments[0] >= 1.0


def test_what_did_not_comply_is_kept_byte_for_byte(tmp_path: Path) -> None:
    with proxy(tmp_path, "--destination", NOWHERE) as made:
        raws = [json.dumps(broken(1)).encode(), b"no json \xff\x00", b"[1,"]
        for raw in raws:
            assert made.post(raw).status == 400
    connection = sqlite3.connect(tmp_path / "proxy" / "failed-events.db")
    rows = connection.execute("SELECT raw, stage FROM failed_events ORDER BY id").fetchall()
    connection.close()
    assert rows == [(raw, "request") for raw in raws]

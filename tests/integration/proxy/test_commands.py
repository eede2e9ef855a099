"""The commands around the proxy, as a person types them."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from tests.integration.proxy.backends import backend, refuses
from tests.integration.proxy.proxies import broken, event, proxy


def run(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CORRELATOR_")}
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "correlator.cli.main", "proxy", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**inherited, **environ},
    )


def test_failed_events_are_listed_shown_and_driven_in_again_where_they_failed(tmp_path: Path) -> None:
    wanted = threading.Event()
    choosy = refuses(lambda each: each["mark"] == "unwanted" and not wanted.is_set())
    directory = ("--data-dir", str(tmp_path))
    with backend(choosy) as there, proxy(tmp_path, "--destination", f"prod={there.url}") as made:
        made.post(broken("broken"))
        made.post(event("unwanted"))
        made.wait_until_forwarded()

        listed = run("failed", "list", *directory)
        assert listed.returncode == 0
        assert "refused here: " in listed.stdout
        assert "refused by prod: prod answered 422" in listed.stdout
        first, second = (json.loads(line) for line in run("failed", "list", "--json", *directory).stdout.splitlines())
        assert (first["id"], first["destination"], first["status"], second["stage"]) == (2, "prod", 422, "request")
        assert json.loads(run("failed", "show", "2", *directory).stdout)["mark"] == "unwanted"

        wanted.set()
        again = (
            "failed",
            "redrive",
            *directory,
            "--destination",
            f"prod={there.url}",
            "--url",
            f"http://127.0.0.1:{made.port}",
        )
        done = run(*again)
        # The one is wanted now. The other is still no event, and says why.
        assert done.returncode == 1
        assert "1 driven in again, 1 failed again." in done.stderr
        assert "1: " in done.stderr
        assert there.marks == ["unwanted"]
        left = [json.loads(line)["id"] for line in run("failed", "list", "--json", *directory).stdout.splitlines()]
        assert left == [1]


def test_a_key_is_printed_once_and_its_line_is_what_the_proxy_reads(tmp_path: Path) -> None:
    made = run("key", "airflow")
    key = made.stdout.strip()
    assert key.startswith("corr_")
    assert key not in made.stderr
    (tmp_path / "keys").write_text(made.stderr)
    arguments = ("--destination", "http://127.0.0.1:9", "--sender-keys-file", str(tmp_path / "keys"))
    with proxy(tmp_path, *arguments) as started:
        assert started.post(event(1), authorization=f"Bearer {key}").status == 200
        assert started.post(event(1), x_api_key=key).status == 200
        assert started.post(event(2)).status == 401
        assert key not in started.log


def test_where_nothing_has_failed_the_commands_say_so(tmp_path: Path) -> None:
    listed = run("failed", "list", "--data-dir", str(tmp_path))
    assert listed.returncode == 2
    assert "There are no dead letters" in listed.stderr


def test_destinations_and_handlers_may_stand_in_the_environment_and_in_the_file(tmp_path: Path) -> None:
    with backend() as one, backend() as two:
        (tmp_path / "correlator.toml").write_text('[proxy]\nfailed_event_handler = ["log", "file"]\n')
        environ = {"CORRELATOR_DESTINATION": f"one={one.url}\n two={two.url}"}
        with proxy(tmp_path, environ=environ) as made:
            made.post(event(1))
            made.post(broken(2))
            made.wait_until_forwarded()
            assert one.marks == two.marks == [1]
        assert (tmp_path / "proxy" / "failed-events.jsonl").exists()

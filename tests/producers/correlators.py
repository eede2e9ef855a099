"""`correlator up` on embedded defaults, and what it answers."""

import http.client
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tests.integration.cli.processes import Running, running
from tests.integration.conftest import reachable_directory
from tests.integration.server.running import kill_postgres

_LISTENING = re.compile(r"listening on (http://127\.0\.0\.1:(\d+))")
_PATIENCE = 300

Json = Any


class Correlator:
    def __init__(self, process: Running, url: str, port: int, data_dir: Path) -> None:
        self._process = process
        self.url = url
        self._port = port
        self.data_dir = data_dir

    def stop(self) -> int:
        return self._process.stop()

    def ask(self, path: str, **parameters: str) -> Json:
        query = f"?{urlencode(parameters)}" if parameters else ""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("GET", f"/api/v1/{path}{query}")
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        return json.loads(body) if answer.status == 200 else None

    def wait_for(self, what: str, question: Callable[[], Json]) -> Json:
        """The first answer that is more than nothing: what was just sent is a fact a moment later."""
        deadline = time.monotonic() + _PATIENCE
        while not (answer := question()):
            assert time.monotonic() < deadline, f"not after {_PATIENCE} s: {what}\n{self._process.log[-4000:]}"
            # Each question costs as much as an event: who asks without a pause keeps the answer from coming.
            time.sleep(0.2)
        return answer

    # Questions that several tests ask

    def incident(self, urn: str, test: str, column: str = "") -> Json:
        """The open incident of a test, when its cause is known: events come one by one, the result perhaps first."""

        def found() -> Json:
            answer = self.ask("incidents", dataset=urn, status="open") or {"items": []}
            for item in answer["items"]:
                if item["test"] is not None and (item["test"]["name"], item["test"]["column"]) == (test, column):
                    told = self.ask(f"incidents/{item['id']}")
                    return told if told["cause"] is not None else None
            return None

        return self.wait_for(f"{test} of {column} on {urn} is an incident with a cause", found)

    def run(self, run_id: str) -> Json:
        """What is known of a run; None for nothing."""
        answer = self.ask(f"runs/{run_id}")
        return None if answer is None else answer["run"]

    def ended_run(self, run_id: str) -> Json:
        def found() -> Json:
            run = self.run(run_id)
            return run if run is not None and run["ended_at"] is not None else None

        return self.wait_for(f"run {run_id} has ended", found)

    def last_run(self, namespace: str, name: str) -> Json:
        """The last run of a job, when it has ended."""
        job = f"{quote(namespace, safe='')}/{quote(name, safe='')}"

        def found() -> Json:
            answer = self.ask(f"jobs/{job}/runs", limit="1") or {"items": []}
            return next((self.run(one["id"]) for one in answer["items"] if one["ended_at"]), None)

        return self.wait_for(f"{name} has run", found)

    def family(self, run: Mapping[str, Any]) -> list[str]:
        """The names of the jobs from the top of a run's family down to the run."""
        names = [run["job"]["name"]]
        while run["parent"] is not None:
            names.append(run["parent"]["job"]["name"])
            above = self.run(run["parent"]["id"])
            if above is None:
                break
            run = above
        return list(reversed(names))

    def graph(self, node: str, **parameters: str) -> Json:
        found = self.wait_for(f"{node} is in the graph", lambda: self.ask("lineage", node=node, **parameters))
        return found["graph"]


def _listening(process: Running) -> tuple[str, int]:
    process.wait_for_words("listening on")
    found = _LISTENING.search(process.log)
    assert found is not None
    return found[1], int(found[2])


@contextmanager
def correlator_up(*arguments: str) -> Iterator[Correlator]:
    with reachable_directory() as directory:
        try:
            with running(directory, "up", "--port", "0", "--data-dir", str(directory), *arguments) as process:
                up = Correlator(process, *_listening(process), directory)
                up.wait_for("the pipeline works", lambda: "the pipeline works on" in process.log)
                yield up
                process.stop()
        finally:
            kill_postgres(directory)


@contextmanager
def proxy_to(correlator: Correlator, directory: Path) -> Iterator[str]:
    """A proxy that hands on what it is given; where it listens."""
    arguments = ("--destination", correlator.url, "--port", "0", "--data-dir", str(directory / "proxy"))
    with running(directory, "proxy", *arguments) as process:
        yield _listening(process)[0]

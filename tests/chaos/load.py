"""Clients that do not give up: what was not answered is sent again, to the byte."""

import http.client
import threading
import time
from contextlib import suppress
from random import Random

from tests.chaos.story import Author, Errand, Story

_TIMEOUT = 10.0
_LONGEST_ERRAND = 180.0
_PAUSE = 0.05


class Load:
    """Several connections at once, each with requests of its own, until it is told to finish."""

    def __init__(self, story: Story, port: int, seed: str, clients: int) -> None:
        self.port = port
        """Where the server is at the moment."""
        self.is_abandoned = threading.Event()
        self._story = story
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=[f"{seed}.{number}"], name=f"client {number}")
            for number in range(clients)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Begin nothing new, and wait until everything that was begun is answered."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def abandon(self) -> None:
        """Leave everything as it is."""
        self.is_abandoned.set()
        self.finish()

    def _run(self, name: str) -> None:
        random = Random(name)
        client = _Client(self, self._story, random)
        author = Author(random, name)
        try:
            while not self._is_over.is_set():
                client.run(author.errand())
        except Exception as error:  # noqa: BLE001 (a thread cannot raise into a test: it is told)
            with self._story.lock:
                self._story.findings.append(f"client {name}: {error!r}")
        finally:
            client.close()


class _Client:
    def __init__(self, load: Load, story: Story, random: Random) -> None:
        self._load = load
        self._story = story
        self._random = random
        self._connection: http.client.HTTPConnection | None = None

    def run(self, errand: Errand) -> None:
        deadline = time.monotonic() + _LONGEST_ERRAND
        while not self._is_answered(errand):
            if self._load.is_abandoned.is_set():
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{errand.path} was not answered for {_LONGEST_ERRAND:.0f} s")
            time.sleep(_PAUSE)

    def _is_answered(self, errand: Errand) -> bool:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._load.port, timeout=_TIMEOUT)
        self._story.attempt(errand)
        try:
            self._connection.request("POST", errand.path, errand.body, {"Content-Type": "application/json"})
            if self._random.random() < 0.005:
                # Somebody pulls a plug: the request is there, nobody hears the answer.
                self.close()
                self._story.unanswered("left")
                return False
            response = self._connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            self._story.unanswered(type(error).__name__)
            return False
        if response.status == 503:
            if response.getheader("Retry-After") is None:
                raise AssertionError(f"503 without Retry-After: {body!r}")
            self._story.unanswered("503")
            return False
        self._story.answer(errand, response.status, body)
        return True

    def close(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
        self._connection = None

"""Rounds of load and harm on one data directory. After each, everything that was ever acknowledged is looked for."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from tests.chaos.harm import Harm
from tests.chaos.load import Load
from tests.chaos.story import Story
from tests.chaos.verdict import Verdict
from tests.integration.server.running import Server, kill_postgres

_CLIENTS = 6


class Rounds:
    def __init__(self, data_dir: Path, seed: str, tell: Callable[[str], None] = lambda _: None) -> None:
        self.story = Story()
        self._data_dir = data_dir
        self._seed = seed
        self._tell = tell
        self._random = Random(seed)
        self._verdict = Verdict(self.story)
        self._server: Server | None = None

    def play(self, harms: Sequence[Harm]) -> None:
        """One round for each harm; stops with an AssertionError at the first that leaves something wrong."""
        try:
            for number, harm in enumerate(harms, 1):
                self._play(number, harm)
        finally:
            if self._server is not None:
                self._server.kill()
                kill_postgres(self._data_dir)

    def _play(self, number: int, harm: Harm) -> None:
        server = self._running()
        load = Load(self.story, server.port, f"{self._seed}.{number}", _CLIENTS)
        load.start()
        try:
            time.sleep(self._random.uniform(0.2, 2.0))
            harm(server, self._random)
            server = self._running()
            load.port = server.port
            time.sleep(self._random.uniform(0.1, 0.6))
        except BaseException:
            load.abandon()
            raise
        load.finish()
        server.wait_until_ready()
        with server.database.connect("chaos", autocommit=True) as connection:
            findings = self._verdict.findings(connection)
        story = self.story
        self._tell(
            f"round {number}, {harm.__name__}: {len(story.kept):,} events kept, {len(story.refused):,} refused; "
            f"answers so far {dict(sorted(story.requests.items()))}"
        )
        assert not findings, "\n".join(findings)

    def _running(self) -> Server:
        """The server, a new one if the old one is dead, when it answers."""
        if self._server is None or self._server.process.poll() is not None:
            self._server = Server((), self._data_dir, None)
            self._server.wait_for_line()
        self._server.wait_until_ready()
        return self._server

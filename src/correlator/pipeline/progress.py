"""What the pipeline tells while it works: a line every few seconds, with rates and how far it is behind."""

import logging
import threading
import time
from typing import Final

import psycopg

from correlator.pipeline.fact_sink import Done
from correlator.pipeline.tally import Tally
from correlator.store.database import Database
from correlator.store.ledger import lag_of, lags
from correlator.store.merge import FACTS

_log = logging.getLogger("correlator.pipeline")

_EVERY: Final = 10.0


class Progress:
    """Adds up batches, by source, and tells them."""

    def __init__(self, database: Database, every: float = _EVERY) -> None:
        self._database = database
        self._every = every
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._done: dict[str, tuple[Tally, int, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="correlator-progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5)
        self._tell()

    def add(self, done: Done) -> None:
        with self._lock:
            tally, batches, _ = self._done.setdefault(done.source, (Tally(), 0, 0.0))
            tally.add(done.tally.without_spans())
            self._done[done.source] = (tally, batches + 1, done.seconds)

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._tell()

    def _tell(self) -> None:
        with self._lock:
            done, self._done = self._done, {}
            seconds = time.monotonic() - self._since
            self._since = time.monotonic()
        if not any(tally.read for tally, _, _ in done.values()):
            return
        for source, (tally, batches, last) in done.items():
            _log.info(
                "%s: %s read (%.0f/s), %s applied, %s duplicate, %s rejected; %d batches, the last took %.2f s%s",
                source,
                f"{tally.read:,}",
                tally.read / seconds,
                f"{tally.applied:,}",
                f"{tally.duplicates:,}",
                f"{tally.rejected:,}",
                batches,
                last,
                self._lag(source),
            )

    def _lag(self, source: str) -> str:
        try:
            with self._database.connect("pipeline progress", autocommit=True) as connection:
                behind = lag_of(lags(connection), source, FACTS)
        except psycopg.Error:
            return ""
        return "" if behind is None else f"; {behind.events:,} events ({behind.seconds:.1f} s) behind"

"""`correlator up`: database, server and pipeline together, in one terminal."""

import logging
import multiprocessing
import os
import signal
import threading
import time
from typing import Final

import click

from correlator.cli.options import with_settings
from correlator.cli.pipeline import check_sources, run_stream
from correlator.cli.serve import prepared, serve
from correlator.config import PipelineSettings, UpSettings
from correlator.http.request_log import Log, capture_logging
from correlator.pipeline.assembly import session_of
from correlator.store.database import Database

_log = logging.getLogger("correlator.up")

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_STEADY_SECONDS: Final = 60.0
"""Who lived that long did not die of its start."""
_GOODBYE_SECONDS: Final = 60.0


@click.command("up")
@with_settings(UpSettings)
def command(settings: UpSettings) -> None:
    """Start everything on this machine: the database, the server, and the pipeline.

    Stops on SIGTERM or Ctrl-C, after the requests and the batches that it has.
    """
    check_sources(settings)
    with prepared(settings) as (database, log), PipelineProcess(settings, database):
        serve(settings, database, log)


class PipelineProcess:
    """The pipeline in a process of its own, started again when it dies. The server goes on meanwhile."""

    def __init__(self, settings: PipelineSettings, database: Database) -> None:
        self._settings = settings
        self._url = database.url
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="correlator-pipeline", daemon=True)

    def __enter__(self) -> None:
        self._keeper.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._keeper.join(_GOODBYE_SECONDS + 10)

    def _keep(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            process = multiprocessing.get_context("spawn").Process(
                target=_run, args=(self._settings, self._url, os.getpid()), name="correlator-pipeline"
            )
            process.start()
            while process.is_alive() and not self._stopping.wait(0.2):
                pass
            if self._stopping.is_set():
                process.terminate()
                process.join(_GOODBYE_SECONDS)
                if process.is_alive():
                    _log.warning("the pipeline does not end and is killed; what it was at is repeated next time")
                    process.kill()
                    process.join()
                return
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _FIRST_PAUSE
            _log.error("the pipeline has ended (%s); it is started again in %.0f s", process.exitcode, pause)
            self._stopping.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


def _run(settings: PipelineSettings, url: str, parent: int) -> None:
    # Ctrl-C reaches every process of the terminal; the parent tells this one when it is its turn.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = Log(settings.log_format, settings.log_level)
    capture_logging(log)
    try:
        spark = session_of(settings, is_live=True)
        try:
            run_stream(settings, Database(url), spark, parent)
        finally:
            spark.stop()
    finally:
        log.close()

"""`correlator up`: database, server and pipeline together, in one terminal."""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from types import FrameType
from typing import Final, TypeAlias

import click

from correlator.cli.database import embedded_directory, place_of
from correlator.cli.demo_play import DemoPlay
from correlator.cli.figures import FigureWatch
from correlator.cli.log_files import NAME, lines_in_files
from correlator.cli.options import CouldNotTellError, with_settings
from correlator.cli.parts import Parts
from correlator.cli.pipeline import check_sources, run_stream
from correlator.cli.serve import prepared, serve
from correlator.cli.status import Status
from correlator.config import PipelineSettings, UpSettings, default_data_dir
from correlator.http.request_log import Log, capture_logging
from correlator.pipeline.assembly import AssemblyError, session_of
from correlator.pipeline.driver import reason
from correlator.pipeline.java import NoJavaError, find_java
from correlator.pipeline.session import JavaEndedError, stop
from correlator.store.database import Database

_log = logging.getLogger("correlator.up")

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_STEADY_SECONDS: Final = 60.0
"""Who lived that long did not die of its start."""
_GOODBYE_SECONDS: Final = 60.0

Told: TypeAlias = tuple[bool, str]
"""What the pipeline's process says to its parent: that it works and on what, or that it cannot and why."""


@click.command("up")
@click.option("--plain", is_flag=True, help="Log lines on the terminal, as elsewhere, and no status.")
@click.option(
    "--demo",
    is_flag=True,
    help="Play `correlator demo` into it as soon as it is up. Unless --data-dir says otherwise its data is kept apart.",
)
@with_settings(UpSettings)
def command(settings: UpSettings, *, plain: bool, demo: bool) -> None:
    """Start everything on this machine: the database, the server, and the pipeline.

    On a terminal it shows how things are, and its log goes to files beside the data. Stops on SIGTERM or Ctrl-C, after
    the requests and the batches that it has.
    """
    check_sources(settings)
    try:
        find_java()
    except NoJavaError as error:
        raise CouldNotTellError(str(error)) from error
    if demo and settings.data_dir == default_data_dir():
        # A made-up shop among one's own tables would be hard to get rid of.
        settings = replace(settings, data_dir=settings.data_dir.with_name(f"{settings.data_dir.name}-demo"))
    _stop_with_the_terminal()
    parts = Parts("database", "server", "pipeline", "alerts")
    is_shown = sys.stderr.isatty() and not plain and os.environ.get("TERM") != "dumb"
    with _said_at_the_end(settings), _shown(settings, parts) if is_shown else nullcontext() as status:
        _run(settings, parts, status, demo=demo)


def _run(settings: UpSettings, parts: Parts, status: Status | None, *, demo: bool) -> None:
    parts.tell("database", "starting", "" if settings.database_url else str(embedded_directory(settings)))
    play = DemoPlay(settings.data_dir) if demo else None
    with (
        prepared(settings) as (database, log),
        PipelineProcess(settings, database, parts, on_working=play.pipeline_works if play else lambda: None),
        _watched(settings, database, parts, status),
    ):
        parts.tell("server", "starting")

        def on_listening(url: str) -> None:
            click.echo(f"Correlator is listening on {url}", err=True)
            parts.tell("server", "up", url)
            if status is not None:
                status.url = url
            if play is not None:
                play.start(url, on_line=status.tell if status is not None else _say)

        def on_lost(words: str) -> None:
            parts.note(f"{words} and is started again", restarted="server")

        try:
            serve(settings, database, log, on_listening=on_listening, on_lost=on_lost)
        finally:
            if status is not None:
                status.is_stopping = True
            parts.tell("server", "stopped")
            if play is not None:
                play.stop()
    parts.tell("database", "stopped")


def _say(line: str) -> None:
    click.echo(line, err=True)


@contextmanager
def _said_at_the_end(settings: UpSettings) -> Iterator[None]:
    """One line for who has stopped it, when everything has."""
    try:
        yield
    except SystemExit as error:
        if error.code in (0, None):
            _say_stopped(settings)
        raise
    _say_stopped(settings)


def _say_stopped(settings: UpSettings) -> None:
    where = str(settings.data_dir) if settings.database_url is None else place_of(settings.database_url)
    with suppress(OSError):  # the terminal is gone
        click.echo(f"Correlator has stopped. All that it has taken is kept: {where}", err=True)


@contextmanager
def _shown(settings: UpSettings, parts: Parts) -> Iterator[Status]:
    """The status on the terminal, and all lines in files."""
    directory = settings.log_dir or settings.data_dir / "logs"
    with (
        lines_in_files(directory, most_bytes=settings.log_file_bytes, files=settings.log_files) as terminal,
        Status(terminal, parts, directory / NAME, str(settings.data_dir)) as status,
    ):
        yield status


@contextmanager
def _watched(settings: UpSettings, database: Database, parts: Parts, status: Status | None) -> Iterator[None]:
    if status is None:
        yield
        return
    with FigureWatch(database, parts, sends_alerts=settings.send_alerts) as watch:
        status.figures = lambda: watch.figures
        yield


def _stop_with_the_terminal() -> None:
    """Who closes its window has said so too, unless `nohup` said otherwise."""

    def stop(_: int, __: FrameType | None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stop)


class PipelineProcess:
    """The pipeline in a process of its own, started again when it dies. The server goes on meanwhile."""

    def __init__(
        self,
        settings: PipelineSettings,
        database: Database,
        parts: Parts,
        *,
        on_working: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._url = database.url
        self._parts = parts
        self._on_working = on_working
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="correlator-pipeline", daemon=True)

    def __enter__(self) -> None:
        self._keeper.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._keeper.join(_GOODBYE_SECONDS + 10)

    def _keep(self) -> None:
        # What this thread starts begins with the same: a Ctrl-C is not to meet an interpreter that is half started.
        # This one first: where it starts by itself, it lets the signal through again.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            self._parts.tell("pipeline", "starting", "Spark takes a few seconds")
            context = multiprocessing.get_context("spawn")
            ear, mouth = context.Pipe(duplex=False)
            process = context.Process(
                target=_run_pipeline, args=(self._settings, self._url, os.getpid(), mouth), name="correlator-pipeline"
            )
            process.start()
            mouth.close()
            problem = self._listen(process.is_alive, ear)
            if self._stopping.is_set():
                self._end(process)
                return
            process.join()
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _FIRST_PAUSE
            why = problem or _how(process.exitcode)
            _log.error("the pipeline has ended (%s); it is started again in %.0f s", why, pause)
            self._parts.note(f"the pipeline has ended ({why}) and is started again", restarted="pipeline")
            self._parts.tell("pipeline", "down", f"next try in {pause:.0f} s")
            self._stopping.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        self._parts.tell("pipeline", "stopped")

    def _listen(self, is_alive: Callable[[], bool], ear: "Connection[Told, Told]") -> str | None:
        """Until it has ended or is to end: why it could not work, if it said so."""
        problem = None
        while not self._stopping.is_set():
            try:
                if not ear.poll(0.2):
                    if is_alive():
                        continue
                    break
                is_working, words = ear.recv()
            except (EOFError, OSError):
                break
            if is_working:
                self._parts.tell("pipeline", "up", f"reads {words}")
                self._on_working()
            else:
                problem = words
        ear.close()
        return problem

    def _end(self, process: multiprocessing.process.BaseProcess) -> None:
        self._parts.tell("pipeline", "stopping", "after its batch")
        process.terminate()
        process.join(_GOODBYE_SECONDS)
        if process.is_alive():
            _log.warning("the pipeline does not end and is killed; what it was at is repeated next time")
            process.kill()
            process.join()
        self._parts.tell("pipeline", "stopped")


def _how(code: int | None) -> str:
    return f"by signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _run_pipeline(settings: PipelineSettings, url: str, parent: int, mouth: "Connection[Told, Told]") -> None:
    # Ctrl-C reaches every process of the terminal; the parent tells this one when it is its turn.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    log = Log(settings.log_format, settings.log_level)
    capture_logging(log)

    def tell(told: Told) -> None:
        with suppress(OSError):  # the parent is gone; that is noticed elsewhere
            mouth.send(told)

    try:
        spark = session_of(settings, is_short=True)
        try:
            run_stream(settings, Database(url), spark, parent, on_working=lambda names: tell((True, names)))
        finally:
            stop(spark)
    except (AssemblyError, JavaEndedError) as error:
        # They say what to do; where in the code that was found helps nobody.
        tell((False, str(error)))
        log.close()
        # Threads that wait for a Java process that is gone would keep this one.
        os._exit(1)
    except Exception as error:
        tell((False, reason(error)))
        raise
    finally:
        log.close()

"""`correlator pipeline`: turn events into facts."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from correlator.cli.database import open_migrated_database, place_of
from correlator.cli.options import CouldNotTellError, with_settings
from correlator.config import PipelineSettings
from correlator.http.request_log import Log, capture_logging
from correlator.pipeline.again import read_again
from correlator.pipeline.archive import Archive
from correlator.pipeline.assembly import AssemblyError, archive_directory, plan_of, session_of, sources_of
from correlator.pipeline.driver import Driver, Stopping, reason
from correlator.pipeline.fact_sink import Done
from correlator.pipeline.progress import Progress as Told
from correlator.pipeline.replay import Replay
from correlator.pipeline.session import JavaEndedError, check_java, stop
from correlator.pipeline.sources import Source
from correlator.pipeline.sources.files import FilesSource
from correlator.pipeline.tally import Tally
from correlator.rulebook.judging import Judge
from correlator.store.database import Database

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger("correlator.pipeline")


@click.group("pipeline")
def command() -> None:
    """Turn the events of every source into facts."""


@command.command("stream")
@with_settings(PipelineSettings)
def stream(settings: PipelineSettings) -> None:
    """Go on until SIGTERM or Ctrl-C, and end between two batches."""
    check_sources(settings)
    with _working(settings, is_short=True) as (database, spark):
        run_stream(settings, database, spark)


def run_stream(
    settings: PipelineSettings,
    database: Database,
    spark: SparkSession,
    parent: int | None = None,
    *,
    on_working: Callable[[str], None] = lambda _: None,
) -> None:
    """Until a signal, or until the parent process is gone. `on_working` is told what is read."""
    sources = sources_of(settings, database, spark)
    told = Told(database)
    driver = Driver(spark, database, sources, plan_of(settings, spark), on_done=told.add)
    stopping = threading.Event()
    _heed(stopping.set, *((signal.SIGTERM,) if parent is not None else _SIGNALS))
    told.start()
    working = threading.Thread(target=driver.stream, name="pipeline")
    working.start()
    names = ", ".join(source.name for source in sources)
    _log.info("the pipeline works on %s; database: %s", names, place_of(database.url))
    on_working(names)
    try:
        while not stopping.wait(0.5) and working.is_alive():
            check_java(spark)
            if parent is not None and os.getppid() != parent:
                break
    finally:
        driver.stop()
        working.join()
        told.stop()
        _log.info("the pipeline has stopped")


@command.command("batch")
@click.option(
    "--again",
    multiple=True,
    metavar="PATH",
    help="Read this file once more, because it has changed since, and nothing else; may be repeated.",
)
@with_settings(PipelineSettings)
def batch(settings: PipelineSettings, again: tuple[str, ...]) -> None:
    """Process what there is now, then end."""
    if not again:
        check_sources(settings)
    with _working(settings) as (database, spark):
        if again:
            _read_again(settings, database, spark, again)
            return
        sources = sources_of(settings, database, spark)
        with _bar(_waiting(database, sources)) as on_done:
            driver = Driver(spark, database, sources, plan_of(settings, spark), on_done=on_done)
            _heed(driver.stop, *_SIGNALS)
            try:
                driver.batch()
            except Exception as error:
                raise CouldNotTellError(reason(error)) from error


def _read_again(settings: PipelineSettings, database: Database, spark: SparkSession, paths: Sequence[str]) -> None:
    source = FilesSource(paths, Judge.within(settings), column=settings.files_column)
    with _bar(None) as on_done:
        try:
            read_again(spark, database, source, plan_of(settings, spark), on_done=on_done)
        except Exception as error:
            raise CouldNotTellError(reason(error)) from error


@command.command("replay")
@with_settings(PipelineSettings)
def replay(settings: PipelineSettings) -> None:
    """Make every fact anew, from the archive and from what it does not hold yet.

    The pipeline may go on meanwhile; it waits for the last moment only. What people have said stays as it is.
    """
    check_sources(settings)
    with _working(settings) as (database, spark):
        sources = sources_of(settings, database, spark)
        archive = Archive(database, archive_directory(settings))
        size = plan_of(settings, spark).size
        with _bar(sum(batch.events for batch in archive.batches()) or None) as on_done:
            work = Replay(
                spark,
                database,
                sources,
                archive,
                size=size,
                batch_events=settings.pipeline_batch_events,
                on_done=on_done,
            )
            _heed(work.stop, *_SIGNALS)
            try:
                work.run()
            except Stopping:
                raise CouldNotTellError("The replay was stopped. Nothing was changed.") from None
            except Exception as error:
                raise CouldNotTellError(f"{reason(error)} Nothing was changed.") from error


def check_sources(settings: PipelineSettings) -> None:
    """Before anything is started that takes its time."""
    if not (settings.log_source or settings.files or settings.kafka_servers):
        raise CouldNotTellError("There is nothing to read: say log_source, files or kafka_servers.")


@contextmanager
def _working(settings: PipelineSettings, *, is_short: bool = False) -> Iterator[tuple[Database, SparkSession]]:
    """The log, the database and the session of a command, closed again whatever happens."""
    _heed(_end, *_SIGNALS)
    log = Log(settings.log_format, settings.log_level)
    capture_logging(log)
    try:
        with open_migrated_database(settings) as database:
            spark = session_of(settings, is_short=is_short)
            try:
                yield database, spark
            finally:
                stop(spark)
    except (AssemblyError, JavaEndedError) as error:
        raise CouldNotTellError(str(error)) from error
    finally:
        log.close()


def _waiting(database: Database, sources: Sequence[Source]) -> int | None:
    """How many events there are to read, if all sources can tell."""
    with database.connect("pipeline progress") as connection:
        waiting = [source.waiting(connection) for source in sources]
    return None if None in waiting else sum(filter(None, waiting))


@contextmanager
def _bar(total: int | None) -> Iterator[Callable[[Done], None]]:
    """A bar on a terminal, and a line at the end anywhere."""
    console = Console(stderr=True)
    tally, began = Tally(), time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("events", total=total, rate="")

        def on_done(done: Done) -> None:
            tally.add(done.tally.without_spans())
            rate = tally.read / (time.monotonic() - began)
            progress.update(task, completed=tally.read, rate=f"{rate:,.0f}/s")

        yield on_done
    seconds = time.monotonic() - began
    click.echo(
        f"{tally.read:,} events read in {seconds:.1f} s ({tally.read / seconds:,.0f}/s): {tally.applied:,} applied, "
        f"{tally.duplicates:,} duplicate, {tally.rejected:,} rejected.",
        err=True,
    )


def _end() -> None:
    """Told to stop while it starts: there is no batch to wait for."""
    raise SystemExit(0)


def _heed(stop: Callable[[], None], *signals: signal.Signals) -> None:
    """Told to stop: end between two batches."""

    def told(_: int, __: FrameType | None) -> None:
        stop()

    for number in signals:
        signal.signal(number, told)

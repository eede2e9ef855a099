"""Files once more that have changed since they were read: into the facts, the archive, and what is known of them.

It goes beside the query that reads files, without its checkpoint and without its turn: the pipeline need not stop.
"""

import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

import psycopg
from pyspark.sql import SparkSession

from correlator.pipeline.archive import AGAIN, Archive
from correlator.pipeline.driver import Plan, Turn
from correlator.pipeline.fact_sink import Done, FactSink
from correlator.pipeline.places import HadoopPlaces, Listed, key_of
from correlator.pipeline.sources.files import FilesSource
from correlator.store.audit import origins_read
from correlator.store.database import Database
from correlator.store.merge import Span, advance

_NAME: Final = "files again"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_again(
    spark: SparkSession,
    database: Database,
    source: FilesSource,
    plan: Plan,
    *,
    on_done: Callable[[Done], None] = lambda _: None,
) -> None:
    """Read every file of the source, as if it had never been read. Facts do not mind what they know already."""
    began = time.perf_counter()
    unique = uuid4()
    with Turn(database, _NAME, threading.Event()):
        listed = [file for path in source.paths for file in HadoopPlaces(spark).files(path)]
        sink = FactSink(database, source, size=plan.size, staged_as=_NAME)
        try:
            tally = sink.apply(source.now(spark), f"again-{unique}", 0)
        finally:
            sink.close()
        if plan.archive is not None:
            archive = Archive(database, plan.archive)
            archive.sweep(spark, source.name, again=True)
            archive.sink(source).write(source.now(spark), f"{AGAIN}{unique}")
        with database.connect("pipeline again") as connection:
            _note(connection, source.name, listed)
    on_done(Done(source.name, tally, time.perf_counter() - began))


def _note(connection: psycopg.Connection, source: str, listed: Iterable[Listed]) -> None:
    """A file in which there is no event any more was read as well."""
    now = {file.key: file for file in listed}
    for known in origins_read(connection, source):
        file = now.get(key_of(known.origin))
        if file is not None and (known.modified_ms or 0) < file.modified_ms:
            modified_at = _EPOCH + timedelta(milliseconds=file.modified_ms)
            advance(connection, source, known.reader, [Span(known.origin, 0, None, None, file.size, modified_at)])
    connection.commit()

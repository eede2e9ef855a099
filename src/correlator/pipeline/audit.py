"""Whether every event is where it should be, end to end: log, ledger, archive, files and topics.

What lies on this machine is looked at directly. Spark is asked for everything else: paths that only Hadoop can read,
topics, and the archive when it is to be read event by event.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from correlator.config import PipelineSettings
from correlator.pipeline.assembly import AssemblyError, archive_directory
from correlator.pipeline.driver import reason
from correlator.pipeline.places import Listed, Places, key_of, place_of, rows_of
from correlator.pipeline.sources.files import FILES
from correlator.pipeline.sources.kafka import KAFKA, Place, beginnings
from correlator.pipeline.sources.topics import BrokerError, Topic, look_at
from correlator.store import audit as kept
from correlator.store.audit import ArchivedBatch, Check, OriginRead, SourceBalance, named
from correlator.store.database import Database
from correlator.store.ledger import LOG
from correlator.store.merge import FACTS
from correlator.store.retention import ARCHIVE

_PREFIX: Final = "source="


class Audit(msgspec.Struct):
    """All that was found."""

    sources: list[SourceBalance]
    checks: list[Check]

    @property
    def outcome(self) -> kept.Outcome:
        """What is certainly wrong goes before what could not be told."""
        found = {check.outcome for check in self.checks}
        return "wrong" if "wrong" in found else "unknown" if "unknown" in found else "ok"


def audit(
    database: Database, settings: PipelineSettings, session: Callable[[], SparkSession], *, deep: bool = False
) -> Audit:
    """`session` is called where Spark is needed, if it is."""
    with database.connect("audit", autocommit=True) as connection:
        checks = [kept.check_log(connection), kept.check_facts(connection)]
        checks.append(archive := Check("archive"))
        directory = archive_directory(settings).rstrip("/")
        before: set[str] = set()
        with _looking(archive, f"The archive {directory}"):
            places = place_of(directory, settings, session)
            # Before the manifest: a directory is whole when its row is written.
            before = _directories(places, directory)
        batches = kept.check_manifest(connection, archive)
        if not archive.unknown:
            with _looking(archive, f"The archive {directory}"):
                after = _directories(places, directory)
                there = [batch for batch in batches if batch.directory in after]
                check_directories(archive, batches, places.rows(directory, [batch.directory for batch in there]))
                archive.notes += _leftovers(before - {batch.directory for batch in batches})
                if deep and there:
                    check_events(archive, directory, there, session())
        if settings.kafka_servers is not None:
            checks.append(topics := Check(KAFKA))
            with _looking(topics, f"Kafka at {settings.kafka_servers}"):
                options = {"kafka.bootstrap.servers": settings.kafka_servers, **dict(settings.kafka_options)}
                found = look_at(session(), settings.kafka_topics, options)
                check_topics(topics, found, kept.origins_read(connection, KAFKA))
                topics.notes += [f"there is no topic {name}" for name in settings.kafka_topics if name not in found]
        kept.check_losses(connection, checks)
        if settings.files:
            checks.append(files := Check(FILES))
            listed: list[Listed] = []
            for path in settings.files:
                with _looking(files, path):
                    listed += place_of(path, settings, session).files(path)
            check_files(files, listed, kept.origins_read(connection, FILES))
        sources = kept.balances(connection, [span for check in checks for span in check.positions])
    missing = {check.name: check.missing for check in checks}
    for source in sources:
        source.missing += missing.get(source.source, 0)
    return Audit(sources, checks)


@contextmanager
def _looking(check: Check, what: str) -> Iterator[None]:
    """What cannot be reached is told, and the other checks go on."""
    try:
        yield
    except (AssemblyError, BrokerError) as error:
        check.unknown.append(str(error))
    except (OSError, Py4JError, PySparkException) as error:
        check.unknown.append(f"{what} could not be looked at: {_words(error)}")


def _words(error: BaseException) -> str:
    """What Java says, where it is Java that says it."""
    java = getattr(error, "java_exception", None)
    return reason(error) if java is None else str(java.toString()).partition("\n")[0]


# --- the archive


def _directories(places: Places, archive: str) -> set[str]:
    sources = [name for name in places.directories(archive) if name.startswith(_PREFIX)]
    return {f"{source}/{name}" for source in sources for name in places.directories(f"{archive}/{source}")}


def _leftovers(directories: set[str]) -> list[str]:
    if not directories:
        return []
    count = _number(directories, "directory", "directories")
    return [
        f"{count} of the archive without a finished batch, and not counted: {named(sorted(directories))}",
    ]


def check_directories(check: Check, batches: Sequence[ArchivedBatch], rows: Mapping[str, int | str]) -> None:
    """Every directory of the manifest is there, and holds as many events as its row says."""
    events = 0
    for batch in batches:
        found = rows.get(batch.directory)
        if found == batch.events or (found is None and not batch.events):
            events += batch.events
            continue
        if found is None:
            lies = f"is gone, with {batch.events:,} events"
        elif isinstance(found, str):
            lies = f"is damaged, and {batch.events:,} events with it: {found}"
        else:
            lies = f"holds {found:,} events where its row says {batch.events:,}"
        check.wrong.append(f"{batch.directory} of the archive{_positions(batch)} {lies}. {_WAY_OUT}")
        lost = batch.events - found if isinstance(found, int) else batch.events
        if lost == batch.events and batch.first_position is not None and batch.last_position is not None:
            check.miss([(batch.first_position, batch.last_position)])
        else:
            check.missing += max(0, lost)
    check.notes.append(f"{_number(batches, 'directory', 'directories')} with {events:,} events are as they should be")


_WAY_OUT: Final = (
    "Put it back from a backup of the archive. Until then `correlator pipeline replay` cannot make the facts of these "
    "events again; those that there are stay."
)


def check_events(check: Check, archive: str, batches: Sequence[ArchivedBatch], spark: SparkSession) -> None:
    """Read every event that is archived: each position of a batch of the log is there once."""
    told = rows_of(
        spark,
        archive,
        [batch.directory for batch in batches],
        fn.count("raw").alias("rows"),
        fn.sum(fn.length("raw")).alias("bytes"),
        fn.count_distinct("position").alias("positions"),
        fn.min("position").alias("first"),
        fn.max("position").alias("last"),
    )
    found = {row["directory"]: row for row in told}
    size = sum(row["bytes"] for row in told)
    for batch in batches:
        row = found.get(batch.directory)
        if row is None or batch.source != LOG or batch.first_position is None or batch.last_position is None:
            continue
        if row["positions"] < row["rows"]:
            check.wrong.append(
                f"{batch.directory} of the archive{_positions(batch)} holds {row['rows'] - row['positions']:,} of its "
                "events twice: its files were changed after they had been written."
            )
        if row["first"] < batch.first_position or row["last"] > batch.last_position:
            check.wrong.append(
                f"{batch.directory} of the archive{_positions(batch)} holds the positions {row['first']:,} to "
                f"{row['last']:,}: its files are those of another batch."
            )
    check.notes.append(f"every event of the archive was read, {size:,} bytes")


def _positions(batch: ArchivedBatch) -> str:
    if batch.first_position is None or batch.last_position is None:
        return ""
    return f" (positions {batch.first_position:,} to {batch.last_position:,})"


# --- topics


def check_topics(check: Check, topics: Mapping[str, Topic], read: Sequence[OriginRead]) -> None:
    """What was read of each partition, against what the broker has. What waits is not missing."""
    waiting = {FACTS: 0, ARCHIVE: 0}
    extents = {f"{topic.name}/{n}": extent for topic in topics.values() for n, extent in topic.partitions.items()}
    for reader in waiting:
        places = {one.origin: Place(one.origin, one.position, one.incarnation) for one in read if one.reader == reader}
        for begin in beginnings(topics.values(), places):
            extent = extents[begin.origin]
            following = extent.first if begin.position is None else begin.position + 1
            waiting[reader] += max(0, extent.end - max(extent.first, following))
            if begin.loss:
                check.wrong.append(f"For the {reader}: {begin.loss}.")
                check.missing += begin.lost if reader == FACTS else 0
    gone = sorted({one.origin for one in read} - set(extents))
    if gone:
        check.notes.append(f"partitions that were read and that the broker does not have: {named(gone)}")
    count = _number(extents, "partition", "partitions")
    check.said = f"{count}, {waiting[FACTS]:,} messages behind, the archive {waiting[ARCHIVE]:,}"


# --- files


def check_files(check: Check, listed: Sequence[Listed], read: Sequence[OriginRead]) -> None:
    """What was read of each file, against what it is now."""
    now = {file.key: file for file in listed}
    facts = {key_of(one.origin): one for one in read if one.reader == FACTS}
    archived = {key_of(one.origin): one for one in read if one.reader == ARCHIVE}
    for key, file in sorted(now.items()):
        reads = [one for one in (facts.get(key), archived.get(key)) if one is not None]
        stale = next((one for one in reads if (one.size, one.modified_ms) != (file.size, file.modified_ms)), None)
        if stale is None:
            continue
        difference = file.size - (stale.size or 0)
        if difference > 0:
            what = f"has grown by {difference:,} bytes"
        elif difference < 0:
            what = f"has shrunk by {-difference:,} bytes"
        else:
            what = "was written again"
        check.wrong.append(
            f"{key} {what} since it was read: what is new in it is not in the facts. Read it again with "
            f"`correlator pipeline batch --again {key}`."
        )
    unread = sorted(key for key, file in now.items() if key not in facts and file.size)
    gone = sorted(set(facts) - set(now))
    if unread:
        check.notes.append(f"not read yet, or without an event: {named(unread)}")
    if gone:
        check.notes.append(f"read, and gone or no longer among the files: {named(gone)}")
    check.said = f"{_number(now, 'file', 'files')}, {len(set(now) & set(facts)):,} read, {len(unread):,} waiting"


def _number(things: Sequence[object] | set[str] | Mapping[str, object], one: str, many: str) -> str:
    return f"{len(things):,} {one if len(things) == 1 else many}"

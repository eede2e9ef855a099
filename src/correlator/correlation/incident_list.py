"""Incidents in numbers: lists with filters, counts, and how long people took."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
import psycopg
from msgspec import Meta

from correlator.correlation.called import DatasetName, JobName, names_of
from correlator.correlation.failing import failed_versions
from correlator.correlation.history import History
from correlator.correlation.ids import Id, uuid_of
from correlator.correlation.ignored import Ignored, sql_of_datasets, sql_of_jobs
from correlator.correlation.incident_detail import Kind, RunTold
from correlator.correlation.incidents import Incident, explained
from correlator.correlation.life import Status, standings
from correlator.correlation.owners import first_owner, owners_of_datasets, owners_of_jobs
from correlator.correlation.phrases import first_line
from correlator.correlation.summaries import CauseTold, named_cause
from correlator.correlation.ticks import MOST_TICKS, Tick, ticks_of_jobs, ticks_of_tests
from correlator.correlation.words import pieces_of
from correlator.rulebook.identity import dataset_key

Sort: TypeAlias = Literal["-opened_at", "opened_at", "-last_failed_at", "last_failed_at"]


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Of an incident in the order of a list."""

    at: datetime
    id: UUID


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which incidents. What is not said does not matter."""

    status: Literal["open", "acknowledged", "muted", "resolved", "all"] = "all"
    severity: str | None = None
    kind: Kind | None = None
    dataset: str | None = None
    """A URN; all names of one dataset are one."""
    job: str | None = None
    """`namespace/name`: what failed, ran the test, or writes the dataset."""
    owner: str | None = None
    assignee: str | None = None
    producer: str | None = None
    """A part of the producer's URI."""
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    """A part of a name or of a message."""
    roots: bool = False
    """Only those that are no consequence of another."""
    root: UUID | None = None
    """Only the consequences of this one."""


class CheckName(msgspec.Struct, frozen=True):
    name: str
    column: str


class IncidentItem(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    kind: Kind
    status: Status
    severity: str
    opened_at: datetime
    last_failed_at: datetime
    resolved_at: datetime | None
    failures: int
    owner: str | None
    assignee: str | None
    dataset: DatasetName | None
    test: CheckName | None
    test_run: RunTold
    message: Annotated[str, Meta(description="What was said when it failed first; empty if nothing was.")]
    expected: str
    actual: str
    history: Annotated[
        list[Tick],
        Meta(description=f"The last {MOST_TICKS} results of the test, or runs of the job, the oldest first."),
    ]
    cause: Annotated[CauseTold | None, Meta(description="The run that wrote what failed first.")]
    named_cause: Annotated[
        str | None, Meta(description="The first of the candidates in one line; only where `causes` asks for it.")
    ]
    root_id: UUID | None
    children: Annotated[int, Meta(description="Incidents that are consequences of this one.")]


def incident_list(
    connection: psycopg.Connection[Any],
    filters: Filters,
    *,
    sort: Sort = "-opened_at",
    after: Place | None = None,
    limit: int = 50,
    causes: bool = False,
) -> list[IncidentItem]:
    """So many, beginning after a place in the order."""
    history = History(connection)
    column = sort.removeprefix("-")
    is_down = sort.startswith("-")
    conditions, values = _conditions(history, filters, Ignored.load(connection))
    if after is not None:
        conditions.append(f"(incident.{column}, incident.id) {'<' if is_down else '>'} (%(at)s, %(id)s)")
        values |= {"at": after.at, "id": after.id}
    way = "DESC" if is_down else "ASC"
    query = f"""
        SELECT incident.id, incident.kind, coalesce(incident.test_id, incident.job_id), incident.root_id,
               incident.dataset_id, incident.job_run_id, incident.opened_at, incident.last_failed_at,
               incident.resolved_at, incident.resolved_by, incident.severity, incident.failures
        FROM incidents AS incident
        WHERE {" AND ".join(conditions) or "true"}
        ORDER BY incident.{column} {way}, incident.id {way} LIMIT %(limit)s
    """  # noqa: S608 (made of constants; what was asked for are parameters)
    rows = history.rows_by_name(query, values | {"limit": limit})
    return _items(history, [Incident(*row) for row in rows], causes=causes)


def sort_key(item: IncidentItem, sort: Sort) -> Place:
    return Place(item.opened_at if sort.endswith("opened_at") else item.last_failed_at, item.id)


def _items(history: History, incidents: Sequence[Incident], *, causes: bool) -> list[IncidentItem]:
    """Whatever there is to say of them, asked for all of them at once."""
    classes = history.classes(one.dataset_id for one in incidents if one.dataset_id is not None)
    names = names_of(history, classes.values())
    owners = owners_of_datasets(history, classes.values())
    standing = standings(history, incidents)
    direct = _direct_causes(history, incidents)
    runs = history.runs([one.job_run_id for one in incidents])
    of_jobs = owners_of_jobs(history, [run.job_id for run in runs.values()])
    ids = [one.id for one in incidents]
    children = dict(history.rows(_CHILDREN, ids))
    tests = {id_: CheckName(name, column) for id_, name, column in history.rows(_TESTS, ids)}
    said = {id_: words for id_, *words in history.rows(_SAID, ids)}
    ticks = ticks_of_tests(history, {one.subject_id for one in incidents if one.kind == "test"})
    ticks |= ticks_of_jobs(history, {one.subject_id for one in incidents if one.kind == "run"})
    found = []
    for one in incidents:
        of_class = None if one.dataset_id is None else classes[one.dataset_id]
        run = runs[one.job_run_id]
        owner = None if of_class is None else owners.get(of_class)
        found.append(
            IncidentItem(
                id=one.uuid,
                kind="run" if one.kind == "run" else "test",
                status=standing[one.id].status,
                severity=one.severity,
                opened_at=one.opened_at,
                last_failed_at=one.last_failed_at,
                resolved_at=one.resolved_at,
                failures=one.failures,
                owner=owner or of_jobs.get(run.job_id),
                assignee=standing[one.id].assignee,
                dataset=None if of_class is None else names.get(of_class),
                test=tests.get(one.id),
                test_run=RunTold(run.run_id, JobName(run.namespace, run.name)),
                message=first_line(said[one.id][0] if one.id in said else run.error_message or ""),
                expected=said[one.id][1] if one.id in said else "",
                actual=said[one.id][2] if one.id in said else "",
                history=ticks[one.subject_id],
                cause=direct.get(one.id),
                named_cause=named_cause(explained(history, one), run) if causes else None,
                root_id=one.root_uuid,
                children=children.get(one.id, 0),
            )
        )
    return found


def _direct_causes(history: History, incidents: Sequence[Incident]) -> dict[Id, CauseTold]:
    """Who wrote what each of them failed on first; of a run that failed, that run."""
    tests = [one for one in incidents if one.kind == "test"]
    versions = {
        incident: failed[0].version for incident, failed in failed_versions(history, tests, most=1).items() if failed
    }
    writers = history.runs(
        [*(version.run for version in versions.values()), *(one.job_run_id for one in incidents if one.kind == "run")]
    )
    found = {}
    for one in incidents:
        version = versions.get(one.id)
        writer = writers.get(version.run if version is not None else one.job_run_id)
        if writer is not None and (version is not None or one.kind == "run"):
            wrote_at = None if version is None else version.at
            found[one.id] = CauseTold(writer.run_id, JobName(writer.namespace, writer.name), wrote_at, writer.state)
    return found


class Counts(msgspec.Struct, frozen=True):
    total: int
    roots: Annotated[int, Meta(description="Those that are no consequence of another.")]
    status: dict[str, int]
    severity: dict[str, int]
    kind: dict[str, int]


def incident_counts(connection: psycopg.Connection[Any], filters: Filters) -> Counts:
    history = History(connection)
    ignored = Ignored.load(connection)
    conditions, values = _conditions(history, filters, ignored)
    wanted = " AND ".join(conditions) or "true"
    # How the many that are over stand with people need not be asked, and mostly they are counted already.
    over = """
        SELECT 'resolved', incident.severity, incident.kind, incident.is_root, incident.incidents
        FROM incident_totals AS incident WHERE {}
    """
    counted = f"""
        SELECT 'resolved', incident.severity, incident.kind, incident.root_id IS NULL, count(*)
        FROM incidents AS incident WHERE incident.resolved_at IS NOT NULL AND {wanted} GROUP BY 2, 3, 4
    """  # noqa: S608 (made of constants; what was asked for are parameters)
    query = f"""
        {counted if ignored or not _are_counted(filters) else over.format(_of_totals(filters))}
        UNION ALL
        SELECT {_STATUS}, incident.severity, incident.kind, incident.root_id IS NULL, count(*)
        FROM incidents AS incident WHERE incident.resolved_at IS NULL AND {wanted} GROUP BY 1, 2, 3, 4
    """  # noqa: S608
    status: Counter[str] = Counter(dict.fromkeys(("open", "acknowledged", "muted", "resolved"), 0))
    severity: Counter[str] = Counter()
    kind: Counter[str] = Counter({"test": 0, "run": 0})
    roots = 0
    for its_status, its_severity, its_kind, is_root, number in connection.execute(query.encode(), values):
        status[its_status] += number
        severity[its_severity] += number
        kind[its_kind] += number
        roots += number if is_root else 0
    return Counts(sum(status.values()), roots, dict(status), dict(severity), dict(kind))


def _are_counted(filters: Filters) -> bool:
    """Whether it asks for nothing but what those that are over are counted by."""
    rest = msgspec.structs.replace(filters, status="all", severity=None, kind=None, roots=False)
    return rest == Filters()


def _of_totals(filters: Filters) -> str:
    """As `_conditions`, over totals."""
    conditions = [
        "true" if filters.status in ("all", "resolved") else "false",
        "true" if filters.severity is None else _SEVERITY,
        "true" if filters.kind is None else _KIND,
        "incident.is_root" if filters.roots else "true",
    ]
    return " AND ".join(conditions)


class Unresolved(msgspec.Struct, frozen=True):
    """How many incidents of a sort there are that nothing has ended yet."""

    status: Status
    kind: Kind
    is_root: bool
    incidents: int


def unresolved_counts(connection: psycopg.Connection[Any]) -> list[Unresolved]:
    """Every sort of them, those of which there is none too. One walk along the index of what is wrong now."""
    conditions, values = _conditions(History(connection), Filters(), Ignored.load(connection))
    query = f"""
        SELECT {_STATUS}, incident.kind, incident.root_id IS NULL, count(*)
        FROM incidents AS incident WHERE {" AND ".join(["incident.resolved_at IS NULL", *conditions])} GROUP BY 1, 2, 3
    """  # noqa: S608
    counted = {
        (status, kind, is_root): number for status, kind, is_root, number in connection.execute(query.encode(), values)
    }
    statuses: tuple[Status, ...] = ("open", "acknowledged", "muted")
    kinds: tuple[Kind, ...] = ("test", "run")
    return [
        Unresolved(status, kind, is_root, counted.get((status, kind, is_root), 0))
        for status in statuses
        for kind in kinds
        for is_root in (True, False)
    ]


class Times(msgspec.Struct, frozen=True):
    """How long it took, in seconds."""

    incidents: int
    acknowledged: int
    resolved: int
    median_to_acknowledge_s: float | None
    median_to_resolve_s: float | None


class OwnerTimes(msgspec.Struct, frozen=True):
    owner: Annotated[str | None, Meta(description="Null for those that nobody owns.")]
    times: Times


class WeekTimes(msgspec.Struct, frozen=True):
    week: Annotated[str, Meta(description="The Monday with which it begins, in UTC.")]
    times: Times


class Statistics(msgspec.Struct, frozen=True):
    since: datetime
    until: datetime
    all: Times
    owners: list[OwnerTimes]
    weeks: list[WeekTimes]


class _Timed(msgspec.Struct, frozen=True):
    opened_at: datetime
    acknowledged_at: datetime | None
    resolved_at: datetime | None
    owner: str | None


def statistics(connection: psycopg.Connection[Any], since: datetime, until: datetime) -> Statistics:
    """Of the incidents that were opened between two moments."""
    history = History(connection)
    rows = history.rows(_TIMED, since, until)
    classes = history.classes(row[3] for row in rows if row[3] is not None)
    owners = owners_of_datasets(history, classes.values())
    of_jobs = owners_of_jobs(history, [row[4] for row in rows])
    timed = [
        _Timed(
            opened_at,
            acknowledged_at,
            resolved_at,
            (None if dataset is None else owners.get(classes[dataset])) or of_jobs.get(job),
        )
        for opened_at, acknowledged_at, resolved_at, dataset, job in rows
    ]
    by_owner: defaultdict[str | None, list[_Timed]] = defaultdict(list)
    by_week: defaultdict[str, list[_Timed]] = defaultdict(list)
    for one in timed:
        by_owner[one.owner].append(one)
        year, week, _ = one.opened_at.astimezone(UTC).isocalendar()
        by_week[f"{datetime.fromisocalendar(year, week, 1):%Y-%m-%d}"].append(one)
    return Statistics(
        since,
        until,
        _times(timed),
        [OwnerTimes(owner, _times(by_owner[owner])) for owner in sorted(by_owner, key=lambda o: (o is None, o or ""))],
        [WeekTimes(week, _times(by_week[week])) for week in sorted(by_week)],
    )


def _times(timed: Sequence[_Timed]) -> Times:
    acknowledged = [
        (one.acknowledged_at - one.opened_at).total_seconds() for one in timed if one.acknowledged_at is not None
    ]
    resolved = [(one.resolved_at - one.opened_at).total_seconds() for one in timed if one.resolved_at is not None]
    return Times(len(timed), len(acknowledged), len(resolved), _median(acknowledged), _median(resolved))


def _median(seconds: Iterable[float]) -> float | None:
    values = [max(0.0, value) for value in seconds]
    return median(values) if values else None


# What people have said, by test or job: few rows, whatever the number of failures.
_MUTED: Final = """
coalesce((
    SELECT said.kind = 'mute' AND said.until > now() FROM kept.incident_actions AS said
    WHERE said.subject_id = coalesce(incident.test_id, incident.job_id) AND said.kind IN ('mute', 'unmute')
    ORDER BY said.id DESC LIMIT 1
), false)
"""
_ACKNOWLEDGED: Final = """
EXISTS (
    SELECT FROM kept.incident_actions AS said JOIN failures AS failure ON failure.id = said.failure_id
    WHERE said.subject_id = coalesce(incident.test_id, incident.job_id) AND said.kind = 'acknowledge'
      AND failure.incident_id = incident.id AND NOT EXISTS (
          SELECT FROM kept.incident_actions AS later JOIN failures AS again ON again.id = later.failure_id
          WHERE later.subject_id = said.subject_id AND later.kind IN ('reopen', 'unacknowledge')
            AND later.id > said.id
            AND again.incident_id = incident.id
      )
)
"""
# Of most nobody has said a word, which one probe tells.
_STATUS: Final = f"""
CASE WHEN incident.resolved_at IS NOT NULL THEN 'resolved'
     WHEN NOT EXISTS (
         SELECT FROM kept.incident_actions AS said WHERE said.subject_id = coalesce(incident.test_id, incident.job_id)
     ) THEN 'open'
     WHEN {_MUTED} THEN 'muted' WHEN {_ACKNOWLEDGED} THEN 'acknowledged' ELSE 'open' END
"""
_SEVERITY: Final = "lower(incident.severity) = lower(%(severity)s)"
_KIND: Final = "incident.kind = %(kind)s"
_BY_STATUS: Final = {
    "open": f"incident.resolved_at IS NULL AND NOT {_MUTED} AND NOT {_ACKNOWLEDGED}",
    "acknowledged": f"incident.resolved_at IS NULL AND NOT {_MUTED} AND {_ACKNOWLEDGED}",
    "muted": f"incident.resolved_at IS NULL AND {_MUTED}",
    "resolved": "incident.resolved_at IS NOT NULL",
}

_ASSIGNED: Final = """
(SELECT said.assignee FROM kept.incident_actions AS said JOIN failures AS failure ON failure.id = said.failure_id
 WHERE said.subject_id = coalesce(incident.test_id, incident.job_id) AND said.kind IN ('assign', 'unassign')
   AND failure.incident_id = incident.id ORDER BY said.id DESC LIMIT 1) = %(assignee)s
"""
# As `owners` has it: what the dataset says, by any of its names, else the jobs that write it, else the job itself.
_OWNED: Final = f"""
coalesce((
    SELECT {first_owner("dataset.facets")} FROM datasets AS dataset
    WHERE dataset.id IN (
        SELECT incident.dataset_id UNION ALL
        SELECT mate.dataset_id FROM dataset_classes AS known JOIN dataset_classes AS mate USING (class_id)
        WHERE known.dataset_id = incident.dataset_id
    ) AND {first_owner("dataset.facets")} IS NOT NULL ORDER BY dataset.id LIMIT 1
), (
    SELECT {first_owner("job.facets")} FROM dataset_jobs AS written JOIN jobs AS job ON job.id = written.job_id
    WHERE written.dataset_id = incident.dataset_id AND written.edge_type = 'output'
      AND {first_owner("job.facets")} IS NOT NULL ORDER BY 1 LIMIT 1
), (
    SELECT {first_owner("job.facets")} FROM job_runs AS run JOIN jobs AS job ON job.id = run.job_id
    WHERE run.id = incident.job_run_id
)) = %(owner)s
"""  # noqa: S608
_OF_JOB: Final = """
EXISTS (
    SELECT FROM job_runs AS run WHERE run.id = incident.job_run_id
      AND run.job_namespace || '/' || run.job_name = %(job)s
    UNION ALL
    SELECT FROM dataset_jobs AS written JOIN jobs AS job ON job.id = written.job_id
    WHERE written.dataset_id = incident.dataset_id AND written.edge_type = 'output'
      AND job.job_namespace || '/' || job.job_name = %(job)s
)
"""
_SENT_BY: Final = """
EXISTS (SELECT FROM job_runs AS run WHERE run.id = incident.job_run_id AND run.producer ILIKE %(producer)s)
"""
# Found by the pieces of what was typed, and then looked at: the pieces need not lie side by side. To find them is dear,
# so it is done once, and what was found is handed on as it came.
_WITH_TEXT: Final = """
SELECT count(*), coalesce(array_agg(found.incident_id) FILTER (WHERE found.said ILIKE %(text)s), '{}')::text
FROM (
    SELECT incident_id, said FROM incident_texts WHERE pieces_of(said) @@ %(pieces)s::tsquery LIMIT %(few)s + 1
) AS found
"""
_AMONG_FEW: Final = "incident.id = ANY (%(found)s::uuid[])"
_SAYS: Final = """
EXISTS (SELECT FROM incident_texts AS of_incident
        WHERE of_incident.incident_id = incident.id AND of_incident.said ILIKE %(text)s)
"""
_FEW: Final = 1_000
"""So many that have a text are looked at; where more have it, those to be listed come soon in their order."""
_NOT_IGNORED: Final = f"""
NOT EXISTS (
    SELECT FROM datasets AS dataset WHERE dataset.id = incident.dataset_id
      AND NOT ({sql_of_datasets("dataset.dataset_namespace", "dataset.canonical_dataset_id")})
) AND NOT EXISTS (
    SELECT FROM job_runs AS run WHERE run.id = incident.job_run_id
      AND NOT ({sql_of_jobs("run.job_namespace", "run.job_name")})
)
"""  # noqa: S608


def _conditions(history: History, filters: Filters, ignored: Ignored) -> tuple[list[str], dict[str, Any]]:
    """In SQL over `incident`."""
    found: list[str] = []
    values: dict[str, Any] = {}

    def add(condition: str, **named: object) -> None:
        found.append(condition)
        values.update(named)

    if filters.status != "all":
        add(_BY_STATUS[filters.status])
    if filters.severity is not None:
        add(_SEVERITY, severity=filters.severity)
    if filters.kind is not None:
        add(_KIND, kind=filters.kind)
    if filters.dataset is not None:
        dataset = Id(dataset_key(filters.dataset))
        of_class = history.classes([dataset])[dataset]
        add(
            "incident.dataset_id = ANY (%(datasets)s::uuid[])",
            datasets=[uuid_of(name) for name in history.members([of_class])[of_class]],
        )
    if filters.job is not None:
        add(_OF_JOB, job=filters.job)
    if filters.owner is not None:
        add(_OWNED, owner=filters.owner)
    if filters.assignee is not None:
        add(_ASSIGNED, assignee=filters.assignee)
    if filters.producer is not None:
        add(_SENT_BY, producer=_part(filters.producer))
    if filters.since is not None:
        add("incident.opened_at >= %(since)s", since=filters.since)
    if filters.until is not None:
        add("incident.opened_at < %(until)s", until=filters.until)
    if filters.text:
        values |= {"text": _part(filters.text), "pieces": pieces_of(filters.text), "few": _FEW}
        ((number, ids),) = history.connection.execute(_WITH_TEXT, values).fetchall()
        if number <= _FEW:
            add(_AMONG_FEW, found=ids)
        else:
            add(_SAYS)
    if filters.roots:
        add("incident.root_id IS NULL")
    if filters.root is not None:
        add("incident.root_id = %(root)s", root=filters.root)
    if ignored:
        add(_NOT_IGNORED, **ignored.parameters)
    return found, values


def _part(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


_CHILDREN: Final = "SELECT root_id, count(*) FROM {s}.incidents WHERE root_id = ANY (%s::uuid[]) GROUP BY root_id"
_TESTS: Final = """
SELECT incident.id, test.test_name, test.column_name
FROM {s}.incidents AS incident JOIN {s}.data_tests AS test ON test.id = incident.test_id
WHERE incident.id = ANY (%s::uuid[])
"""
_SAID: Final = """
SELECT incident.id, coalesce(nullif(said.message, ''), nullif(run.error_message, ''), nullif(said.description, ''), ''),
       said.expected, said.actual
FROM {s}.incidents AS incident JOIN {s}.job_runs AS run ON run.id = incident.job_run_id
-- One by one: joined as a whole the view would be read as a whole.
CROSS JOIN LATERAL (
    SELECT message, description, expected, actual FROM {s}.standing_results AS result
    WHERE result.test_id = incident.test_id AND result.job_run_id = incident.job_run_id LIMIT 1
) AS said
WHERE incident.id = ANY (%s::uuid[]) AND incident.kind = 'test'
"""
_TIMED: Final = """
SELECT incident.opened_at, (
    SELECT min(said.at) FROM kept.incident_actions AS said JOIN {s}.failures AS failure ON failure.id = said.failure_id
    WHERE said.subject_id = coalesce(incident.test_id, incident.job_id) AND said.kind = 'acknowledge'
      AND failure.incident_id = incident.id
), incident.resolved_at, incident.dataset_id, run.job_id
FROM {s}.incidents AS incident JOIN {s}.job_runs AS run ON run.id = incident.job_run_id
WHERE incident.opened_at >= %s AND incident.opened_at < %s
"""

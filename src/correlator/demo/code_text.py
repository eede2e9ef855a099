"""The text of a job's query: what a deploy changes, for better or worse."""

from typing import Final

from correlator.demo.faults import Dropped, Duplicated, Effect, Nulled, Renamed, Retyped, Scaled, Shifted
from correlator.demo.parts import Company, Job
from correlator.demo.runs import Code

_HARMLESS: Final = (
    "",
    "-- reviewed",
    "/* formatted */",
    "-- TODO: drop the old index",
    "/*+ PARALLEL(4) */",
    "-- owner changed",
)


def query(company: Company, job: Job, code: Code) -> str:
    """The SELECT of a job as it stands at this revision."""
    effects = code.bug.effects if code.bug is not None and code.bug.carrier == "code" else ()
    names = [chr(ord("a") + index) for index in range(len(job.inputs))]
    columns = ", ".join(_column(job, index, names, effects) for index in range(len(job.fields)))
    columns = columns.replace(", ,", ",").strip(", ")
    tables = [company.tables[each.table].read_as.name for each in job.inputs]
    text = f"SELECT {columns}\nFROM {tables[0]} a" if tables else f"SELECT {columns}\nFROM source a"
    unions = ""
    for name, table, each in list(zip(names, tables, job.inputs, strict=True))[1:]:
        if each.role == "union":
            unions += f"\nUNION ALL SELECT * FROM {table} {name}"  # noqa: S608 (nobody runs it)
        else:
            join = "LEFT JOIN" if each.role == "lookup" else "JOIN"
            text += f"\n{join} {table} {name} ON {name}.id = a.id"
    conditions = [f"a.loaded_at >= '{{{{ start }}}}' /* r{code.revision} */"]
    for effect in effects:
        match effect:
            case Scaled(factor) if factor < 1:
                conditions.append("a.status = 'complete' AND a.country = 'DE'")
            case Duplicated():
                text += "\nJOIN calendar d ON d.month = a.month"
            case _:
                pass
    text += "\nWHERE " + " AND ".join(conditions)
    if job.groups:
        text += "\nGROUP BY 1"
    return f"{text}{unions} {_HARMLESS[code.revision % len(_HARMLESS)]}".rstrip()


def _column(job: Job, index: int, names: list[str], effects: tuple[Effect, ...]) -> str:
    field = job.fields[index]
    origin = f"a.{field.name}" if field.source is None or not names else f"{names[field.source[0]]}.{field.source[1]}"
    match field.operation:
        case "sum":
            origin = f"SUM({origin})"
        case "count":
            origin = f"COUNT({origin})"
        case "expression":
            origin = f"COALESCE({origin}, {origin})"
        case _:
            pass
    name = field.name
    for effect in effects:
        match effect:
            case Nulled(column) if column == field.name:
                origin = f"NULLIF({origin}, {origin})"
            case Shifted(column, factor) if column == field.name:
                origin = f"{origin} * {factor:g}"
            case Dropped(column) if column == field.name:
                return ""
            case Renamed(column, to) if column == field.name:
                name = to
            case Retyped(column, to) if column == field.name:
                origin = f"CAST({origin} AS {to})"
            case _:
                pass
    return f"{origin} AS {name}"

"""What stands in a table, as far as tests and events can see it, and what befalls it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.strangers.shape import Job


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault does to data: `rows` (so many times), `twice` (a share once more), `nulls`, `factor`, `odd` (values
    that nobody expects), `drop`, `rename`, `type`."""

    kind: str
    column: str = ""
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Content:
    rows: float
    amount: float
    columns: dict[str, str]
    nulls: dict[str, float]
    odd: dict[str, float]
    twice: float
    """The share of rows that are there once more."""
    present: float
    """The share of the keys that ought to be here."""
    as_of: float
    """The newest moment that the data tells of."""


EMPTY = Content(0.0, 0.0, {}, {}, {}, 0.0, 1.0, float("-inf"))


class MissingColumnError(Exception):
    """A job asks for a column that is no longer there, and breaks."""


def together(parts: Sequence[Content]) -> Content:
    """Rows beside rows."""
    if not parts:
        return EMPTY
    if len(parts) == 1:
        return parts[0]
    total = sum(part.rows for part in parts)

    def mean(values: Iterable[float]) -> float:
        weighted = sum(value * part.rows for value, part in zip(values, parts, strict=True))
        return weighted / total if total else 0.0

    def means(of: Sequence[dict[str, float]]) -> dict[str, float]:
        names = {name for each in of for name in each}
        return {name: mean(each.get(name, 0.0) for each in of) for name in names}

    return Content(
        total,
        sum(part.amount for part in parts),
        parts[-1].columns,
        means([part.nulls for part in parts]),
        means([part.odd for part in parts]),
        mean(part.twice for part in parts),
        mean(part.present for part in parts) if total else parts[-1].present,
        max(part.as_of for part in parts),
    )


def struck(content: Content, effects: Iterable[Effect]) -> Content:
    for effect in effects:
        column, size = effect.column, effect.size
        columns = dict(content.columns)
        match effect.kind:
            case "rows":
                present = content.present * min(1.0, size)
                content = replace(content, rows=content.rows * size, amount=content.amount * size, present=present)
            case "twice":
                grown = 1 + size
                content = replace(content, rows=content.rows * grown, amount=content.amount * grown, twice=size / grown)
            case "nulls":
                content = replace(content, nulls={**content.nulls, column: size})
            case "odd":
                content = replace(content, odd={**content.odd, column: size})
            case "factor":
                content = replace(content, amount=content.amount * size)
            case "drop":
                columns.pop(column, None)
                content = replace(content, columns=columns)
            case "rename":
                columns = {(f"{name}_v2" if name == column else name): kind for name, kind in columns.items()}
                content = replace(content, columns=columns)
            case "type":
                content = replace(content, columns={**columns, column: "varbinary"})
    return content


def made(job: Job, inputs: dict[str, Content], usual: dict[str, dict[str, str]]) -> Content:
    """What a job makes of what it read. `usual`: the columns that it was written for, by table."""
    drivers = together([inputs[name] for name in job.drivers or ("",)])
    columns: dict[str, str] = {}
    nulls: dict[str, float] = {}
    odd: dict[str, float] = {}
    for name, table, of in job.taken:
        source = inputs[table]
        joined = 1 - source.present if table in job.lookups and job.join == "left" else 0.0
        is_there, is_same = of in source.columns, source.columns.get(of) == usual[table][of]
        if not (is_there and is_same) and job.on_missing == "fail":
            raise MissingColumnError(of)
        if not is_there and job.on_missing == "star":
            continue
        columns[name] = source.columns[of] if job.on_missing == "star" else usual[table][of]
        lost = 0.0 if is_there and is_same else 1.0 if not is_there else 0.35
        share = max(lost if job.on_missing == "null" else 0.0, source.nulls.get(of, 0.0), joined)
        if share > 1e-9:
            nulls[name] = share
        if source.odd.get(of, 0.0) > 1e-9:
            odd[name] = source.odd[of]
    if job.on_missing == "star":
        first = job.drivers[0] if job.drivers else ""
        new = {name: kind for name, kind in inputs[first].columns.items() if name not in usual[first]}
        columns |= new
    kept = 1.0
    if job.join == "inner":
        for name in job.lookups:
            kept *= inputs[name].present
    rows = float(job.groups) if job.groups and drivers.rows else drivers.rows * job.ratio * kept
    if "amount" not in columns:
        kept = 0.0
    return Content(
        rows,
        drivers.amount * kept,
        columns,
        nulls,
        odd,
        0.0 if job.groups else drivers.twice,
        drivers.present * kept if kept else drivers.present,
        drivers.as_of,
    )

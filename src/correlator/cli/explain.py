"""`correlator explain`: which run broke it, what changed, and who is hurt."""

import sys
from collections.abc import Iterator
from typing import Final
from uuid import UUID

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from correlator.cli.database import open_migrated_database
from correlator.cli.incidents import STATUS_COLOURS, incident_id, moment
from correlator.cli.options import with_settings
from correlator.cli.report import printable
from correlator.config import ExplainSettings
from correlator.correlation.incident_detail import AffectedTold, IncidentDetail, StepTold, incident_detail, reach_of
from correlator.correlation.life import UnknownIncidentError
from correlator.correlation.summaries import CandidateTold
from correlator.store.moments import read_any_moment

_MOST_ALTERNATIVES: Final = 4
_MOST_LINES: Final = 12
_LONGEST_VALUE: Final = 60
_VISIBLE: Final = 0.1


@click.command("explain", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("incident", type=incident_id)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, as `GET /api/v1/incidents/ID` answers.")
@with_settings(ExplainSettings)
def command(*, incident: UUID, as_json: bool, settings: ExplainSettings) -> None:
    """Say of an INCIDENT which run broke it, what changed, and who is hurt.

    The id of any of its failures will do. `correlator incidents` lists them.
    """
    with open_migrated_database(settings) as database, database.connect("explain", autocommit=True) as connection:
        read_any_moment(connection)
        try:
            detail = incident_detail(connection, incident, reach_of(settings))
        except UnknownIncidentError as error:
            raise click.ClickException(f"{error} `correlator incidents` lists what there is.") from error
    if as_json:
        sys.stdout.write(msgspec.json.encode(detail).decode() + "\n")
        return
    console = Console()
    for part in _page(detail):
        console.print(part)


def _page(detail: IncidentDetail) -> Iterator[RenderableType]:
    yield Text(printable(detail.summary), style="bold")
    yield _facts(detail)
    if detail.candidates:
        yield from _section("Cause", _candidate(detail.candidates[0]))
        others = [one for one in detail.candidates[1 : _MOST_ALTERNATIVES + 1] if one.score >= _VISIBLE]
        if others:
            yield from _section("Less likely", Group(*map(_alternative, others)))
    elif detail.cause is None:
        yield from _section(
            "Cause",
            Text(
                "Nobody is known to have written the dataset. If it has another name elsewhere, a name pattern helps."
            ),
        )
    if detail.upstream:
        yield from _section("Where it comes from", _tree(detail))
        if detail.upstream_truncated:
            yield Text("  There is more upstream than was looked at: see cause_depth and cause_runs.", style="yellow")
    yield from _section("Who is hurt", _impact(detail))
    if detail.timeline:
        lines = [f"{moment(one.at)}  {printable(one.sentence)}" for one in detail.timeline]
        yield from _section("What happened", Group(*(Text(line) for line in _shortened(lines))))
    if detail.similar:
        lines = [
            f"{moment(one.opened_at)}  {one.outcome.replace('_', ' ')}"
            + (f" after {duration(one.took_s)}" if one.took_s is not None else "")
            + f"  {', '.join(one.likeness)}  {one.id}"
            for one in detail.similar
        ]
        yield from _section("Like it", Group(*(Text(line) for line in _shortened(lines))))
    yield Text(f"\nBy the facts as of {moment(detail.facts_as_of)} UTC.", style="dim")


def _section(title: str, body: RenderableType) -> Iterator[RenderableType]:
    yield Text(f"\n{title}", style="bold cyan")
    yield Padding(body, (0, 0, 0, 2))


def _facts(detail: IncidentDetail) -> RenderableType:
    line = Text(detail.status, style=STATUS_COLOURS[detail.status])
    since = f", since {moment(detail.opened_at)} UTC"
    times = f", failed {detail.failures} times" if detail.failures > 1 else ""
    line.append(f", {detail.severity}{since}{times}", style="default")
    if detail.resolved_at is not None:
        line.append(f", over at {moment(detail.resolved_at)}", style="default")
    for word, value in (("owner", detail.owner), ("assigned to", detail.assignee)):
        if value is not None:
            line.append(f", {word} {printable(value)}", style="default")
    parts: list[RenderableType] = [line]
    if detail.root_id is not None:
        parts.append(Text(f"A consequence of {detail.root_id}.", style="yellow"))
    if detail.children:
        more = len(detail.children)
        parts.append(Text(f"{more} more {'is a consequence' if more == 1 else 'are consequences'} of it."))
    if detail.test is not None and (detail.test.expected or detail.test.actual):
        parts.append(Text(printable(f"expected {detail.test.expected or '-'}, found {detail.test.actual or '-'}")))
    if detail.test is not None and detail.test.message:
        parts.append(Text(printable(_short(detail.test.message, 300))))
    return Group(*parts)


def _candidate(one: CandidateTold) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=bool(one.evidence), header_style="dim")
    for name in ("what", "before", "after", ""):
        table.add_column(name, overflow="fold")
    for evidence in one.evidence:
        cells = (evidence.kind.replace("_", " "), *_difference(evidence.before or "", evidence.after or ""))
        table.add_row(
            *(Text(printable(_short(cell, _LONGEST_VALUE))) for cell in cells), Text(printable(evidence.sentence))
        )
    reasons = [Text(f"- {printable(reason)}", style="dim") for reason in one.reasons]
    return Group(_who(one), table, *reasons)


def _difference(before: str, after: str) -> tuple[str, str]:
    """Two long texts from shortly before where they differ: their beginnings are the same."""
    same = next((n for n, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), 0)
    start = max(0, same - _LONGEST_VALUE // 3) if max(len(before), len(after)) > _LONGEST_VALUE else 0
    return ("…" + before[start:], "…" + after[start:]) if start else (before, after)


def _who(one: CandidateTold) -> Text:
    line = Text(printable(one.job.name), style="bold")
    line.append(f"  {printable(one.job.namespace)}", style="dim")
    run = "a run that is missing" if one.run_id is None else f"run {printable(one.run_id)}"
    far = "right there" if one.distance == 0 else f"{one.distance} upstream"
    line.append(f"  {run}, {far}, strength {one.score:.2f}", style="default")
    if one.owner is not None:
        line.append(f", owner {printable(one.owner)}", style="default")
    return line


def _alternative(one: CandidateTold) -> RenderableType:
    line = _who(one)
    words = [evidence.sentence for evidence in one.evidence] or one.reasons
    if words:
        line.append(f": {printable(words[0])}", style="dim")
    return line


def _tree(detail: IncidentDetail) -> RenderableType:
    """From what failed up to those who may be the cause; of other branches only the first step."""
    by_reader: dict[str, list[StepTold]] = {}
    for step in detail.upstream:
        if step.read_by is not None:
            by_reader.setdefault(step.read_by, []).append(step)
    named = {one.run_id for one in detail.candidates[:3] if one.run_id is not None}
    shown: set[str] = set()

    def leads(run_id: str | None, seen: frozenset[str]) -> bool:
        if run_id is None or run_id in seen:
            return False
        return run_id in named or any(leads(above.run_id, seen | {run_id}) for above in by_reader.get(run_id, ()))

    def grow(tree: Tree, step: StepTold) -> None:
        branch = tree.add(_label(step, detail))
        if step.run_id is None or step.run_id in shown:
            return
        shown.add(step.run_id)
        above = by_reader.get(step.run_id, [])
        wanted = [one for one in above if step.distance == 0 or leads(one.run_id, frozenset())]
        for one in wanted[:_MOST_LINES]:
            grow(branch, one)
        if len(above) > len(wanted[:_MOST_LINES]):
            branch.add(Text(f"and {len(above) - len(wanted[:_MOST_LINES])} more", style="dim"))

    root = Tree(Text("what was tested" if detail.kind == "test" else "what failed", style="dim"), guide_style="dim")
    grow(root, detail.upstream[0])
    return root


def _label(step: StepTold, detail: IncidentDetail) -> Text:
    label = Text(printable(step.urn))
    if step.job is None:
        label.append("  no producer known", style="dim")
        return label
    at = "" if step.wrote_at is None else f" at {moment(step.wrote_at)}"
    label.append(f"  by {printable(step.job.name)}{at}", style="dim")
    if step.state not in ("COMPLETE", None):
        label.append(f" {step.state}", style="red")
    if detail.candidates and detail.candidates[0].run_id == step.run_id:
        label.append("  ◀ cause", style="bold red")
    return label


def _impact(detail: IncidentDetail) -> RenderableType:
    found = detail.impact
    if not (found.affected or found.readers or found.at_risk):
        return Text("Nobody is known to have read it, or to be about to.")
    lines: list[str] = []
    by_urn: dict[str, list[AffectedTold]] = {}
    for affected in found.affected:
        by_urn.setdefault(affected.urn, []).append(affected)
    for urn, (one, *later) in by_urn.items():
        columns = f" ({', '.join(one.columns)})" if one.columns else ""
        owner = f", owner {one.owner}" if one.owner else ""
        more = f", and {len(later)} times more" if later else ""
        lines.append(f"affected  {urn}{columns}  by {one.job.name} at {moment(one.at)}{more}{owner}")
    lines += [f"affected  {reader.job.name} read it at {moment(reader.at)}" for reader in found.readers]
    for risk in found.at_risk:
        owner = f", owner {risk.owner}" if risk.owner else ""
        lines.append(f"at risk   {risk.urn}{' (declared)' if risk.declared else ''}{owner}")
    parts = [Text(printable(line)) for line in _shortened(lines)]
    if found.truncated:
        parts.append(Text("There is more than one answer may hold.", style="dim"))
    return Group(*parts)


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    return [*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES} more; --json has them all"]


def _short(text: str, most: int) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= most else f"{one_line[: most - 1]}…"


def duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}".replace(".0 ", " ")
    return f"{seconds:.0f} s"

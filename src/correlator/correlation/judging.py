"""What the findings about a run amount to: effects that nothing above it explains, and changes that may have made them.

A change alone is weak, because many harmless ones happen every day; a change with an effect is strong.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from correlator.correlation.candidates import PER_STEP, VISIBLE, Candidate, Evidence
from correlator.correlation.case import Case
from correlator.correlation.changes import CodeChange, MetricChange, SchemaChange, SettingChange
from correlator.correlation.findings import Findings, InputChange, RedTest, Topic
from correlator.correlation.ids import Id
from correlator.correlation.passed_on import PassedOn
from correlator.correlation.phrases import count, said, span
from correlator.correlation.questions import question
from correlator.correlation.usual import Oddity

_EXPLAINED: Final = 0.12
"""What is left of an effect that the inputs account for."""
_CONTRARY: Final = 0.35
"""What is left of an amount that went up where the tested one went down, or down where it went up."""
_GROWN: Final = 0.6
"""What is left of an amount where what went in had changed in the same way, by less."""
EXTREME: Final = 1.2
"""Less than a third, or more than three times."""
_MOST_TOLD: Final = 3
"""Red tests of one run."""
_RED: Final = 0.25
"""That another test had failed on what a run wrote,"""
_RED_ALIKE: Final = 0.32
"""or one that asks the same."""
_AFTER_RED: Final = 0.5
"""What is left of a run that did not change, where what it read had failed a test already,"""
_AFTER_RED_ALIKE: Final = 0.3
"""or one that asks the same;"""
_CHANGED_AFTER_RED: Final = 0.75
"""and of one that changed."""
_MUCH: Final = 8.0
"""Times as much, or as little: nobody tunes a setting by that."""

_FOR_NEW_COLUMNS: Final = 0.5
"""What is left of a change of code that is seen to be for something else."""

Setting: TypeAlias = tuple[str, str, str]
"""Facet, path, value."""


class Signs(msgspec.Struct):
    """What speaks for a run, in words and in weights."""

    weights: list[tuple[str, float]] = msgspec.field(default_factory=list)
    """By the names of `questions.FIT`."""
    evidence: list[Evidence] = msgspec.field(default_factory=list)
    reasons: list[str] = msgspec.field(default_factory=list)
    unexplained: set[Topic] = msgspec.field(default_factory=set)
    """Of what nothing above accounts for."""

    def add(self, *others: "Signs") -> None:
        for other in others:
            self.weights += other.weights
            self.evidence += other.evidence
            self.reasons += other.reasons
            self.unexplained |= other.unexplained

    def strengths(self, case: Case) -> list[float]:
        return [strength * case.fit(name) for name, strength in self.weights]


def judged(case: Case, findings: Mapping[Id, Findings], passed_on: PassedOn, least: float) -> Iterator[Candidate]:
    """All runs as candidates. `least` is the effect of what did not come, if anything."""
    tested = _tested_amount(case, findings)
    effects = {run: _effects(case, found, passed_on, tested) for run, found in findings.items() if found.is_new}
    odd = {run for run, signs in effects.items() if signs.unexplained}
    for run, signs in effects.items():
        found = findings[run]
        if found.red_tests:
            is_after = bool(passed_on.red_above(run)) or passed_on.is_below(run, odd)
            signs.add(_red_tests(case, found, is_after=is_after))
    strongest = {run: max(signs.strengths(case), default=0.0) for run, signs in effects.items()}
    shared = Counter(
        (change.facet, change.path, change.after) for found in findings.values() for change in found.settings
    )
    shared.update(_deploy(change) for found in findings.values() for change in found.code)
    first, second, *_ = [*sorted([*strongest.values(), least], reverse=True), 0.0]
    suspected = _suspected(findings, effects, strongest, passed_on, shared)
    for run, found in findings.items():
        if run not in effects:
            yield _known(found)
            continue
        elsewhere = second if strongest[run] == first else first
        changes = _changes(case, found, shared)
        suspicion = suspected.get(run) or _Suspicion(is_entry=passed_on.is_entry(run))
        is_followed = "amount" in effects[run].unexplained and passed_on.is_followed(run)
        candidate = _judged(case, found, effects[run], changes, elsewhere, suspicion, is_followed=is_followed)
        reds = passed_on.red_above(run)
        if reds:
            candidate.score *= _after_red(case, found, reds)
            candidate.reasons.append(f"a test had failed on {case.name(reds[0].dataset)}, which went into it")
        yield candidate


class _Suspicion(msgspec.Struct):
    """What a run may have to do with an effect that was seen further down only."""

    strength: float = 0.0
    shown_by: str = ""
    """The job that shows it."""
    shown: float = 0.0
    """The effect itself, if this run has changed: shared with others that have."""
    is_entry: bool = False
    """Whether what it reads comes from outside."""
    is_cleared: str = ""
    """The job above that a run which shows an effect may have it from: one that changed and says nothing."""


def _suspected(
    findings: Mapping[Id, Findings],
    effects: Mapping[Id, Signs],
    strongest: Mapping[Id, float],
    passed_on: PassedOn,
    shared: Mapping[Setting, int],
) -> dict[Id, _Suspicion]:
    """Share what is odd about runs that did not change themselves with those above that say nothing of the kind.

    Most with those where data comes in from outside: in between nothing changed either.
    """
    found: dict[Id, _Suspicion] = {}
    for run, signs in effects.items():
        if strongest[run] <= VISIBLE or _has_changed(findings[run]):
            continue
        silent = {one.run.id: one for topic in sorted(signs.unexplained) for one in passed_on.silent_above(run, topic)}
        entries = [one for one in silent if passed_on.is_entry(one)]
        changed = [one for one in silent.values() if _has_changed(one)]
        for one, above in silent.items():
            share = 0.6 / len(entries) ** 0.5 if one in entries else 0.3
            suspicion = found.setdefault(one, _Suspicion())
            if strongest[run] * share > suspicion.strength:
                suspicion.strength, suspicion.shown_by = strongest[run] * share, findings[run].run.name
            if _has_changed(above):
                found.setdefault(run, _Suspicion()).is_cleared = above.run.name
                shown = strongest[run] / len(changed) ** 0.5 / commonness(_rarest(above, shared))
                suspicion.shown = max(suspicion.shown, shown)
    return found


def _has_changed(found: Findings) -> bool:
    return found.has_changed or found.is_partial or bool(found.sources)


def _rarest(found: Findings, shared: Mapping[Setting, int]) -> int:
    """How many have the change that the fewest have."""
    changes = [shared[change.facet, change.path, change.after] for change in found.settings]
    changes += [shared[_deploy(change)] for change in found.code if change.is_notable]
    return 1 if found.inputs or found.took_over or found.sources or found.is_partial else min(changes, default=1)


def _known(found: Findings) -> Candidate:
    candidate = _candidate(found)
    candidate.reasons.append("it was there when the test passed")
    candidate.score = 0.01 * PER_STEP**found.distance
    return candidate


def _candidate(found: Findings) -> Candidate:
    return Candidate(found.run.job_id, found.run.namespace, found.run.name, found.run, found.distance)


def _judged(
    case: Case,
    found: Findings,
    effects: Signs,
    changes: Signs,
    elsewhere: float,
    suspicion: _Suspicion,
    *,
    is_followed: bool,
) -> Candidate:
    """`is_followed` where what was made of it has more or less rows as well: they take all columns with them."""
    candidate = _candidate(found)
    parts = effects.strengths(case)
    strongest = max(parts, default=0.0)
    effect = max(strongest, suspicion.strength, suspicion.shown)
    has_effect = effect > VISIBLE
    # A change without an effect is less likely where another has one.
    doubt = 1.0 if has_effect else 1 - 0.6 * elsewhere
    if parts and not has_effect and (found.volumes or found.metrics):
        # What is odd about it came from elsewhere.
        doubt *= 0.6
    if _has_failed_itself(case) and found.distance > 0 and not has_effect:
        # A run fails of its own code, or of what it reads; and of that nothing is to be seen here.
        doubt *= 0.5
    parts += [strength * doubt for strength in changes.strengths(case)]
    candidate.evidence = [*_failed(found), *effects.evidence, *changes.evidence, *_slow(found)]
    candidate.reasons = [*effects.reasons, *changes.reasons]
    if has_effect and changes.weights and (_has_changed(found) or found.repeated is not None):
        parts.append(0.5 if max(strongest, suspicion.strength) > VISIBLE else 0.5 * effect)
        candidate.reasons.append("what changed goes with an effect")
    if suspicion.strength:
        parts.append(suspicion.strength)
        candidate.reasons.append(f"what {suspicion.shown_by} shows may have come from here: nothing is said against it")
    if found.is_partial:
        parts.append(0.85 * case.fit("failed"))
    if found.duration is not None:
        parts.append(0.05)
    if suspicion.is_entry and case.failure.question.kind == "freshness":
        # All have run, and data does not grow old on its way.
        parts.append(0.08)
        candidate.reasons.append("if what was read is old, it was so when it came in here")
    parts.append(0.06 if found.distance == 0 else 0.02)
    score = 0.0
    for part in parts:
        score = _or(score, part)
    if _reach_of(case, found.run.id) == frozenset() and not is_followed:
        # Who is joined to something decides how many rows there are, whatever column is looked at.
        score *= 0.6 if "amount" in effects.unexplained else 0.3
        candidate.reasons.append("nothing of it is said to reach the column")
    if found.is_new_way:
        score *= 0.85
        candidate.reasons.append("by another way it had come in before, and the test passed")
    if suspicion.is_cleared:
        score *= 0.7
        candidate.reasons.append(f"it did not change, and {suspicion.is_cleared}, which it has data from, did")
    candidate.score = score * PER_STEP**found.distance
    return candidate


def _has_failed_itself(case: Case) -> bool:
    """Whether a run is to be explained that failed. One that was called off was so for others' faults."""
    run = None if case.bad.start is None else case.runs.get(case.bad.start.run)
    return case.failure.question.kind == "run" and run is not None and run.state != "ABORT"


def _reach_of(case: Case, run: Id) -> frozenset[str] | None:
    """The columns of what a run wrote that went into the one that is tested; None for not known."""
    reached: frozenset[str] = frozenset()
    for version in case.bad.written[run]:
        columns = case.bad.columns.get(version.dataset)
        if columns is None:
            return None
        reached |= columns
    return reached


def _failed(found: Findings) -> Iterator[Evidence]:
    if found.is_partial:
        run = found.run
        sentence = f"{run.name} ended with {run.state}{said(run.error_message)}"
        yield Evidence("run_failed", run.name, "COMPLETE", run.state, sentence)


def _slow(found: Findings) -> Iterator[Evidence]:
    if found.duration is not None:
        before, after = span(found.duration.usual), span(found.duration.amount)
        yield Evidence("duration", found.run.name, before, after, f"it took {after}, usually {before}")


# Effects


def _tested_amount(case: Case, findings: Mapping[Id, Findings]) -> Oddity | None:
    """What is odd about how much there is of what was tested, if that is what the test asks."""
    start = case.bad.start
    found = None if start is None or case.failure.question.kind != "volume" else findings.get(start.run)
    volume = None if start is None or found is None else found.volumes.get(start.dataset)
    return None if volume is None else volume[1]


def _effects(case: Case, found: Findings, passed_on: PassedOn, tested: Oddity | None) -> Signs:
    reach = _reach_of(case, found.run.id)
    signs = Signs()
    for dataset, (word, odd) in found.volumes.items():
        explained = passed_on.volume(found.run.id, odd)
        of_volume = _volume(case, dataset, word, odd, explained, tested)
        if not explained and passed_on.is_grown_on_the_way(found.run.id, odd):
            of_volume.weights = [(name, strength * _GROWN) for name, strength in of_volume.weights]
            of_volume.reasons.append("what it read had changed in the same way, though by less")
        signs.add(of_volume)
    for dataset in found.schemas:
        signs.add(_schema(case, found, dataset, passed_on, reach))
    for dataset, changes in found.metrics.items():
        for change in changes:
            explained = passed_on.metric(found.run.id, change)
            signs.add(_metric(case, dataset, change, explained, reach))
    if found.unchanged:
        signs.add(_unchanged(found, is_old=passed_on.is_old(found.run.id)))
    return signs


def _red_tests(case: Case, found: Findings, *, is_after: bool) -> Signs:
    """That it was bad by then. Why, is as open as it is of what failed. The most telling one speaks for all.

    `is_after` where something above it was red before, or is odd: that is why.
    """
    signs, strongest = Signs(), 0.0
    for red in found.red_tests:
        strength = _RED_ALIKE if _asks_alike(case, red) else _RED
        reach = case.bad.columns.get(red.dataset)
        if red.column and reach is not None and red.column not in reach:
            strength *= 0.4
        strongest = max(strongest, strength)
        what = f"{red.name}({red.column})" if red.column else red.name
        sentence = f"the test {what} failed on {case.name(red.dataset)}, at {red.at:%Y-%m-%d %H:%M}"
        signs.evidence.append(Evidence("test_failed", case.name(red.dataset), "pass", "fail", sentence))
    signs.evidence = signs.evidence[:_MOST_TOLD]
    signs.weights.append(("red", strongest * (_EXPLAINED if is_after else 1.0)))
    return signs


def _asks_alike(case: Case, red: RedTest) -> bool:
    return question(red.name, red.column).kind == case.failure.question.kind


def _after_red(case: Case, found: Findings, reds: Sequence[RedTest]) -> float:
    """What is left of a run that read what had failed a test already."""
    if _has_changed(found):
        return _CHANGED_AFTER_RED
    return _AFTER_RED_ALIKE if any(_asks_alike(case, red) for red in reds) else _AFTER_RED


def _volume(case: Case, dataset: Id, word: str, odd: Oddity, explained: str | None, tested: Oddity | None) -> Signs:
    signs = Signs(evidence=[volume_evidence(case, dataset, word, odd, explained)])
    is_contrary = tested is not None and tested.score * odd.score < 0
    left = _EXPLAINED if explained else _CONTRARY if is_contrary else 0.85
    signs.weights.append((direction(odd), odd.strength * left))
    if explained:
        signs.reasons.append("the amount was passed on, not caused here")
        return signs
    if is_contrary:
        signs.reasons.append(
            f"of what was tested there is {'less' if odd.score > 0 else 'more'}, and not {direction(odd)}"
        )
        return signs
    signs.unexplained.add("amount")
    if abs(odd.log_ratio) > EXTREME:
        signs.weights.append(("broken", 0.6))
    if not odd.amount and case.failure.question.kind == "freshness":
        # It ran, and brought nothing: what there is grows old as if it had not run.
        signs.weights.append(("stale", 0.85))
    return signs


def volume_evidence(
    case: Case, dataset: Id, word: str, odd: Oddity, explained: str | None = None, runs: int = 1
) -> Evidence:
    share = f"{odd.amount / max(odd.usual, 1):.0%} of what is usual"
    by = f" by {runs} runs together" if runs > 1 else ""
    why = f"; {explained} accounts for it" if explained else ""
    sentence = f"{count(odd.amount)} {word} written{by}, {share}{why}"
    return Evidence("volume", case.names.get(dataset, ""), count(odd.usual), count(odd.amount), sentence)


def direction(odd: Oddity) -> str:
    return "less" if odd.score < 0 else "more"


def _schema(case: Case, found: Findings, dataset: Id, passed_on: PassedOn, reach: frozenset[str] | None) -> Signs:
    change = found.schemas[dataset]
    explained = passed_on.schema(found.run.id, change)
    sentence = f"schema changed: {schema_words(change)}" + (f"; {explained} had changed so before" if explained else "")
    evidence = _schema_evidence(case, dataset, change, sentence)
    broken = change.broken if passed_on.adds_nothing() else broken_columns(case, change, reach)
    if not broken:
        return Signs([("schema", 0.08)], [evidence])
    if explained:
        return Signs([("schema", 0.85 * _EXPLAINED)], [evidence], ["the column vanished further upstream"])
    hits = reach is None or bool(reach & broken) or case.failure.question.column in broken
    return Signs([("schema", 0.85 if hits else 0.4)], [evidence], unexplained={"schema"})


def schema_words(change: SchemaChange) -> str:
    words = [f"{name} is gone" for name in change.removed]
    words += [f"{name} is {after}, was {before}" for name, before, after in change.retyped]
    words += [f"{name} is new" for name in change.added]
    return ", ".join(words)


def broken_columns(case: Case, change: SchemaChange, reach: frozenset[str] | None) -> frozenset[str]:
    """Columns that are not what they were, or may not be: who asks for columns asks for new ones as well."""
    wanted = (reach or frozenset()) | {case.failure.question.column}
    new = change.added if case.failure.question.kind == "schema" else change.instead_of(wanted)
    return change.broken.union(new)


def _schema_evidence(case: Case, dataset: Id, change: SchemaChange, sentence: str) -> Evidence:
    before = ", ".join([*change.removed, *(f"{name}: {type_}" for name, type_, _ in change.retyped)])
    after = ", ".join([*change.added, *(f"{name}: {type_}" for name, _, type_ in change.retyped)])
    return Evidence("schema", case.names.get(dataset, ""), before, after, sentence)


def _metric(
    case: Case, dataset: Id, change: MetricChange, explained: str | None, reach: frozenset[str] | None
) -> Signs:
    weight = metric_weight(case, change, reach) * (_EXPLAINED if explained else 1.0)
    evidence = [metric_evidence(case, dataset, change, explained)]
    return Signs([(change.what, weight)], evidence, unexplained=set() if explained else {"values"})


def metric_weight(case: Case, change: MetricChange, reach: frozenset[str] | None) -> float:
    """`reach` are the columns that went into the one that is tested; None for not known."""
    hits = reach is None or change.column in reach or change.column == case.failure.question.column
    return 0.85 if hits else 0.3


def metric_evidence(case: Case, dataset: Id, change: MetricChange, explained: str | None = None) -> Evidence:
    words = "of it are null" if change.what == "nulls" else "on average"
    before, after = (
        f"{value:.1%}" if change.what == "nulls" else f"{value:,.4g}" for value in (change.before, change.after)
    )
    sentence = f"{change.column}: {after} {words}, was {before}" + (
        f"; {explained} was not as usual either" if explained else ""
    )
    return Evidence(change.what, f"{case.names.get(dataset, '')}.{change.column}", before, after, sentence)


def _unchanged(found: Findings, *, is_old: bool) -> Signs:
    evidence = [Evidence("unchanged", found.run.name, None, None, sign.sentence) for sign in found.unchanged]
    strength = 0.8 if any(sign.is_certain for sign in found.unchanged) else 0.5
    if is_old:
        return Signs([("stale", strength * _EXPLAINED)], evidence, ["what it read had not changed either"])
    return Signs([("stale", strength)], evidence)


# Changes


def _changes(case: Case, found: Findings, shared: Mapping[Setting, int]) -> Signs:
    signs = _code(case, found, shared)
    signs.add(_settings(found, shared), _sources(case, found), _repeated(found))
    return signs


def _code(case: Case, found: Findings, shared: Mapping[Setting, int]) -> Signs:
    """What tells of a deploy: of several signs the strongest, for it is the same deploy."""
    reach = _reach_of(case, found.run.id)
    wanted = {name.lower() for name in reach or ()} | {case.failure.question.column.lower()} - {""}
    signs = Signs()
    strengths = []
    new_columns = _harmless_columns(case, found, reach)
    for change in found.code:
        subject = change.whose or found.run.name
        signs.evidence.append(Evidence("code", subject, change.before, change.after, code_sentence(change)))
        strength = 0.48 * (1 - change.habit)
        if change.words and wanted & change.words:
            strength = 0.8
            signs.reasons.append("the change touches the column")
        elif change.is_of_rows:
            strength = 0.55
        elif change.words and wanted:
            strength = 0.3
        if change.is_elsewhere:
            strength *= 0.4
            signs.reasons.append("the code that is known of it is the same")
        elif not change.is_notable:
            signs.reasons.append("its code has a new version all the time")
        elif new_columns and not change.is_of_rows and (not change.words or new_columns & change.words):
            strength *= _FOR_NEW_COLUMNS
            signs.reasons.append("it has made new columns, and the others are as they were")
        strengths.append(strength / commonness(shared[_deploy(change)]))
    if found.inputs is not None:
        signs.evidence.append(_inputs_evidence(found.run.name, found.inputs))
        strengths.append(0.48)
    if found.took_over is not None:
        former, dataset = found.took_over.name, case.name(found.took_over.dataset)
        sentence = f"its first run known; before, {former} wrote {dataset}"
        signs.evidence.append(Evidence("new_job", dataset, former, found.run.name, sentence))
        strengths.append(0.55)
    if strengths:
        signs.weights.append(("code", max(strengths)))
    return signs


def _harmless_columns(case: Case, found: Findings, reach: frozenset[str] | None) -> frozenset[str]:
    """New columns of what it wrote, if all else in it is as it was."""
    changes = found.schemas.values()
    if any(broken_columns(case, change, reach) for change in changes):
        return frozenset()
    return frozenset(name.lower() for change in changes for name in change.added)


def code_sentence(change: CodeChange) -> str:
    whose = f"{change.whose}, which started it, has " if change.whose else ""
    if change.facet == "sourceCodeLocation":
        return f"{whose}new code version {change.after[:40]}, was {change.before[:40]}"
    what = "SQL" if change.facet == "sql" else "source code"
    return f"{whose}other {what}" if whose else f"the {what} changed"


def _inputs_evidence(name: str, change: InputChange) -> Evidence:
    words = [f"it no longer reads {dataset}" for dataset in change.gone]
    words += [f"it reads {dataset}, which it did not before" for dataset in change.new]
    return Evidence("inputs", name, ", ".join(change.gone), ", ".join(change.new), "; ".join(words))


def _settings(found: Findings, shared: Mapping[Setting, int]) -> Signs:
    if not found.settings:
        return Signs()
    common = min(shared[change.facet, change.path, change.after] for change in found.settings)
    rare = 0.5 if all(change.is_engine for change in found.settings) else 0.55
    if all(change.is_patch for change in found.settings):
        rare = 0.4
    if any(change.factor > _MUCH for change in found.settings):
        rare = 0.65
    evidence = [_setting_evidence(found, change) for change in found.settings]
    return Signs([("setting", rare / commonness(common))], evidence)


def _setting_evidence(found: Findings, change: SettingChange) -> Evidence:
    whose = f" of {change.whose}, which started it," if change.whose else ""
    sentence = f"{change.path} of {change.facet}{whose} is {change.after}, was {change.before}"
    kind = "engine" if change.is_engine else "parameter"
    return Evidence(kind, change.whose or found.run.name, change.before, change.after, sentence)


def _sources(case: Case, found: Findings) -> Signs:
    """What comes from outside and is not as it was."""
    signs = Signs()
    for dataset, change in found.sources.items():
        sentence = f"schema of {case.name(dataset)}, which it reads, changed: {schema_words(change)}"
        signs.evidence.append(_schema_evidence(case, dataset, change, sentence))
        reach = case.bad.columns.get(dataset)
        broken = broken_columns(case, change, reach)
        hits = reach is None or bool(reach & broken) or case.failure.question.column in broken
        signs.weights.append(("schema", 0.08 if not broken else 0.75 if hits else 0.35))
    return signs


def _repeated(found: Findings) -> Signs:
    again = found.repeated
    if again is None:
        return Signs()
    moment, last = f"{again.moment:%Y-%m-%d %H:%M}", f"{again.last:%Y-%m-%d %H:%M}"
    if again.is_older:
        sentence = f"it ran for {moment} after it had run for {last}"
        return Signs([("stale", 0.6)], [Evidence("older_run", found.run.name, last, moment, sentence)])
    sentence = f"it ran for {moment} once more"
    return Signs([("more", 0.5)], [Evidence("repeated_run", found.run.name, last, moment, sentence)])


def _deploy(change: CodeChange) -> Setting:
    return change.facet, change.whose, change.after


def commonness(number: int) -> float:
    """What many have in common did most of them no harm."""
    return 1 + 0.25 * (max(number, 1) - 1)


def _or(one: float, other: float) -> float:
    """That one of two independent reasons holds."""
    return 1 - (1 - one) * (1 - min(other, 0.99))

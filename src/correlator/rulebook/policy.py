"""How strict a judgement is. Two policies over one validator, and no switch that turns a layer off."""

from typing import Final, Literal

import msgspec

from correlator.rulebook.problems import ROOT, Problem

PolicyName = Literal["spec", "correlator"]
Formats = Literal["warn", "enforce"]


class Policy(msgspec.Struct, frozen=True):
    """How one event is judged.

    `spec` gives the verdict of the official schemas; `correlator` also asks for what lineage cannot do without, and
    lets a broken facet cost only itself.
    """

    name: PolicyName = "correlator"
    formats: Formats = "warn"
    max_problems: int = 1000
    """Errors, and warnings, that are looked for in one event; where there are more, one more line says so."""


SPEC: Final = Policy(name="spec")
CORRELATOR: Final = Policy(name="correlator")


class Findings:
    """What is held against one event, sorted by the policy into errors and warnings."""

    __slots__ = ("errors", "policy", "warnings")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []

    def add(self, problem: Problem) -> None:
        """A problem of the core, or of a facet where the policy makes no difference."""
        is_warning = problem.rule.startswith("format_") and self.policy.formats == "warn"
        self._keep(self.warnings if is_warning else self.errors, problem)

    def add_of_facet(self, problem: Problem, *, dropped: bool) -> None:
        """Under `correlator` a broken facet costs only itself."""
        if self.policy.name == "spec":
            self.add(problem)
        else:
            self.remark(problem, dropped=dropped)

    def remark(self, problem: Problem, *, dropped: bool = False) -> None:
        """Something that no policy refuses an event for."""
        if dropped:
            problem = Problem(problem.path, problem.rule, f"{problem.message}; {_DROPPED}")
        self._keep(self.warnings, problem)

    @property
    def is_full(self) -> bool:
        """Whether there are more errors than will be told, so that there is no use in looking for others."""
        return len(self.errors) > self.policy.max_problems

    def _keep(self, found: list[Problem], problem: Problem) -> None:
        if len(found) <= self.policy.max_problems:
            found.append(problem)

    def bounded(self, problems: list[Problem]) -> tuple[Problem, ...]:
        most = self.policy.max_problems
        if len(problems) <= most:
            return tuple(problems)
        return (*problems[:most], Problem(ROOT, "more_problems", f"and there are more, beyond the limit of {most:,}"))


_DROPPED: Final = "the facet is kept as it is and nothing is derived from it"

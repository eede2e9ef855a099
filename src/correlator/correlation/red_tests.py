"""Tests that had failed on what went into it: whatever they found was there before."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from correlator.correlation.case import Case
from correlator.correlation.findings import Findings, RedTest
from correlator.correlation.ids import Id
from correlator.correlation.reds import reds

_LATELY: Final = timedelta(days=1)
"""Where no good result is known."""


def find_red_tests(case: Case, findings: Mapping[Id, Findings]) -> None:
    """Of versions further up; what was red when all was well has done no harm."""
    versions = [
        version
        for run, found in findings.items()
        if found.is_new
        for version in case.bad.written[run]
        if version.dataset != case.failure.dataset
    ]
    if not versions:
        return
    since = case.good.start.at if case.good.start is not None else case.failure.at - _LATELY
    for (dataset, run, _), of_version in reds(case.history, versions, since, case.failure.at).items():
        findings[run].red_tests += [RedTest(dataset, red.test, red.column, red.at) for red in of_version]

"""Faults are put where a test notices them, as far away as was asked for."""

from itertools import pairwise

import pytest

from correlator.demo.faults import FaultKind
from correlator.demo.luck import Luck
from correlator.demo.parts import DAY
from correlator.demo.planting import plant
from correlator.demo.scenario import Scenario, simulate
from correlator.demo.testing import all_tests
from correlator.demo.topology import random_company


@pytest.mark.parametrize("hops", range(5))
def test_a_test_looks_where_the_fault_will_be_noticed(hops: int) -> None:
    company = random_company(3, 40)
    planted = plant(company, Luck(1), FaultKind.VOLUME_DROP, hops, 10.0 * DAY)
    assert planted is not None
    assert planted.hops == hops
    asked = [(test.kind, test.column) for test in all_tests(company, planted.table)]
    assert (planted.test.kind, planted.test.column) in asked


@pytest.mark.parametrize("hops", range(5))
def test_the_distance_that_was_asked_for_is_the_distance_in_the_history(hops: int) -> None:
    made = simulate(Scenario(seed=8, jobs=30, days=10, kinds=(FaultKind.CODE_CHANGE,), hops=(hops,), hourly_share=0.0))
    assert hops in {truth.hops for truth in made.truths}


def test_several_faults_are_days_apart() -> None:
    made = simulate(Scenario(seed=8, jobs=30, days=24, faults=3, hourly_share=0.0))
    moments = [fault.begins for fault in made.faults]
    assert len(moments) == 3
    assert min(after - before for before, after in pairwise(moments)) >= 2 * DAY

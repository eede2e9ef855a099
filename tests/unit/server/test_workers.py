"""How many workers there are, and what each may hold."""

import os
from pathlib import Path

import pytest

from correlator.config import ServerSettings
from correlator.server.workers import number_of_workers, share_of, usable_cores


def test_as_many_workers_as_are_set() -> None:
    assert number_of_workers(ServerSettings(workers=7)) == 7


def test_zero_is_one_for_each_core_and_no_more_than_four() -> None:
    assert number_of_workers(ServerSettings(workers=0)) == min(4, usable_cores())
    assert number_of_workers(ServerSettings()) == 1


@pytest.mark.parametrize(("quota", "cores"), [("100000 100000\n", 1), ("50000 100000\n", 1), ("999900000 100000\n", 0)])
def test_a_container_that_has_less_than_the_machine_counts(tmp_path: Path, quota: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(quota, encoding="ascii")
    assert usable_cores(tmp_path / "cpu.max") == (cores or len(os.sched_getaffinity(0)))


def test_without_a_limit_of_the_container_it_is_the_cores_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("max 100000\n", encoding="ascii")
    assert usable_cores(tmp_path / "cpu.max") == len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path / "none") == len(os.sched_getaffinity(0))


def test_limits_are_shared_out_but_the_largest_request_always_has_room() -> None:
    settings = ServerSettings(
        max_inflight_bytes=400, max_request_bytes=150, max_waiting_events=100, max_batch_events=30
    )
    assert share_of(settings, 2).max_inflight_bytes == 200
    assert share_of(settings, 2).max_waiting_events == 50
    assert share_of(settings, 4).max_inflight_bytes == 150
    assert share_of(settings, 4).max_waiting_events == 30
    assert share_of(settings, 4).max_request_bytes == 150

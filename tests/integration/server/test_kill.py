"""Nothing acknowledged is lost, whoever is killed: a few rounds of what `python -m tests.chaos` does twenty of."""

from pathlib import Path

from tests.chaos.harm import kill_all, kill_backend, kill_postmaster, kill_server
from tests.chaos.rounds import Rounds


def test_whatever_was_acknowledged_is_there_once_after_every_kind_of_death(data_dir: Path) -> None:
    rounds = Rounds(data_dir, seed="always the same")
    rounds.play([kill_server, kill_postmaster, kill_backend, kill_all])
    # There was something to lose.
    assert rounds.story.kept
    assert rounds.story.refused

"""The command beside the action."""

import subprocess
import sys

from correlator import __version__


def ge_correlator(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 (our own command)
        [sys.executable, "-X", "importtime", "-m", "correlator.integrations.great_expectations.cli", *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_tells_the_versions_without_importing_great_expectations() -> None:
    told = ge_correlator("--version")

    assert told.stdout.startswith(f"ge-correlator {__version__} (great_expectations ")
    assert " great_expectations\n" not in told.stderr


def test_its_help_shows_how_a_checkpoint_gets_the_action() -> None:
    assert "CorrelatorValidationAction(name=" in ge_correlator("--help").stdout

"""Settings as options: what a command sees of what was typed."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from correlator.cli.options import with_settings
from correlator.config import ServerSettings, settings_of


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current directory without a file of settings."""
    monkeypatch.chdir(tmp_path)


@click.command
@click.argument("word")
@with_settings(ServerSettings)
def show(*, word: str, settings: ServerSettings) -> None:
    click.echo(f"{word} {settings!r}")


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(show, ["hello", *arguments], env=environment)


def test_a_command_gets_its_settings_beside_its_own_arguments(tmp_path: Path) -> None:
    result = run("--port", "0", "--max-event-bytes", "1MiB", "--insecure", "--data-dir", "here", "--request-timeout=5m")
    assert result.exit_code == 0
    expected = ServerSettings(
        port=0, max_event_bytes=1024**2, insecure=True, data_dir=tmp_path / "here", request_timeout=300.0
    )
    assert result.output == f"hello {expected!r}\n"


def test_a_flag_can_say_no_to_the_environment() -> None:
    assert "insecure=True" in run(CORRELATOR_INSECURE="yes").output
    assert "insecure=False" in run("--no-insecure", CORRELATOR_INSECURE="yes").output


def test_a_named_file_is_read_and_a_missing_one_told(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[server]\nport = 7")
    assert "port=7," in run("--config", "mine.toml").output
    assert "port=7," in run(CORRELATOR_CONFIG="mine.toml").output
    missing = run("--config", "other.toml")
    assert missing.exit_code == 2
    assert missing.output == "Error: There is no file other.toml, which --config or CORRELATOR_CONFIG names.\n"


def test_a_value_that_cannot_be_used_is_wrong_usage_of_its_flag() -> None:
    result = run("--port", "eighty")
    assert result.exit_code == 2
    assert "Invalid value for '--port': it takes a whole number from 0 to 65535, not 'eighty'." in result.output


def test_the_help_names_every_flag_with_its_variable_and_default() -> None:
    words = " ".join(run("--help").output.split())
    for setting in settings_of(ServerSettings):
        if setting.flag is not None:
            assert f"[env: {setting.variable}; default: {setting.default}]" in words
            assert f" {setting.flag}" in words


def test_a_password_has_no_flag() -> None:
    assert run("--tls-key-password", "geheim").exit_code == 2

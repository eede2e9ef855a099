"""`correlator config`: what is in force, and where it comes from."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from correlator.cli.config import SETTINGS
from correlator.cli.main import COMMANDS, main
from correlator.cli.options import SETTINGS_OF_COMMAND
from correlator.config import CommonSettings, all_settings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current directory without a file of settings."""
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["config", *arguments], env=environment)


def told(*arguments: str, **environment: str) -> dict[str, Any]:
    result = run("--json", *arguments, **environment)
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def settings_in(command: click.Command) -> Iterator[type[CommonSettings]]:
    """What the functions of a command and of those below it are given."""
    settings = getattr(command.callback, SETTINGS_OF_COMMAND, None)
    if settings is not None:
        yield settings
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from settings_in(each)


def test_each_command_is_told_with_the_settings_that_it_reads() -> None:
    for name in COMMANDS.keys() - {"config"}:
        read = set(settings_in(import_module(f"correlator.cli.{name}").command))
        if name in SETTINGS:
            assert SETTINGS[name] in read
            assert all(issubclass(SETTINGS[name], each) for each in read)
        else:
            assert not read, name


def test_every_setting_of_every_command_is_told_and_none_is_an_invention() -> None:
    answer = told()
    assert answer["commands"].keys() == SETTINGS.keys()
    names = {name for settings in answer["commands"].values() for name in settings}
    assert names == {setting.name for setting in all_settings()}
    lines = run().stdout
    for name in names:
        assert f"\n  {name} " in lines


def test_a_value_is_told_with_the_flag_variable_or_file_that_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "correlator.toml").write_text('log_level = "debug"\n[server]\nworkers = 3')
    answer = told("serve", "--port", "9000", CORRELATOR_HOST="::1")
    assert answer["file"] == "correlator.toml"
    assert list(answer["commands"]) == ["serve"]
    serve = answer["commands"]["serve"]
    assert serve["port"] == {"value": "9000", "from": "flag", "where": "--port"}
    assert serve["host"] == {"value": "::1", "from": "environment", "where": "CORRELATOR_HOST"}
    assert serve["log_level"] == {"value": "debug", "from": "file", "where": "correlator.toml"}
    assert serve["workers"] == {"value": "3", "from": "file", "where": "[server] of correlator.toml"}
    assert serve["formats"] == {"value": "warn", "from": "default", "where": None}


def test_where_commands_differ_each_value_stands_with_its_commands(tmp_path: Path) -> None:
    (tmp_path / "correlator.toml").write_text('[proxy]\nhost = "::1"')
    rows = [line.split() for line in run().stdout.splitlines() if line.startswith("  host ")]
    assert rows == [
        ["host", "127.0.0.1", "default", "(up,", "serve,", "doctor)"],
        ["host", "::1", "[proxy]", "of", "correlator.toml", "(proxy)"],
    ]


def test_a_file_may_be_named_before_the_command_and_behind_it(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("port = 7")
    for arguments in (
        ("--config", "mine.toml", "serve"),
        ("serve", "--config", "mine.toml"),
        ("--config", "mine.toml"),
    ):
        answer = told(*arguments)
        assert answer["file"] == "mine.toml"
        assert answer["commands"]["serve"]["port"]["value"] == "7"


def test_secrets_are_told_to_be_set_and_not_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "correlator.toml").write_text('tls_certificate = "c.pem"\ntls_key_password = "geheim"')
    environment = {"CORRELATOR_DATABASE_URL": "postgresql://ann:geheim@db.example/lineage"}
    for arguments in ((), ("--json",), ("serve",), ("serve", "--json")):
        result = run(*arguments, **environment)
        assert result.exit_code == 0
        assert "geheim" not in result.output
        assert "postgresql://ann:***@db.example/lineage" in result.output
    assert told("serve", **environment)["commands"]["serve"]["tls_key_password"]["value"] == "set"


def test_all_that_cannot_be_used_is_told_once_with_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "correlator.toml").write_text("[server]\nprt = 1")
    result = run(CORRELATOR_HOSTT="x", CORRELATOR_TRIGGER="soon")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "Error: CORRELATOR_HOSTT in the environment is not a setting; did you mean CORRELATOR_HOST?",
        "In [server] of correlator.toml: prt is not a setting; did you mean port?",
        "CORRELATOR_TRIGGER is 'soon'; it must be a time such as 30s, 5m, 24h, 7d or 90 (seconds).",
    ]


def test_a_command_that_there_is_not_is_wrong_usage() -> None:
    assert run("srve").exit_code == 2

"""`correlator doctor`: whether this machine has what Correlator needs, and what to do where it does not."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import click
import msgspec

from correlator.cli.doctor import machine
from correlator.cli.doctor.finding import Finding, Outcome
from correlator.cli.doctor.ports import port
from correlator.cli.options import with_settings
from correlator.cli.report import printable
from correlator.config import ProxySettings, UpSettings
from correlator.setting_kinds import BYTES, Bytes
from correlator.setting_sources import SettingsError, load, settings_file

_COLOURS: Final[dict[Outcome, str]] = {"ok": "green", "warning": "yellow", "problem": "red"}
_LEAST_FREE: Final = "1GB"


def _size(_: click.Context, __: click.Parameter, text: str) -> Bytes:
    try:
        return BYTES.read(text)
    except ValueError as error:
        raise click.BadParameter(f"it takes {BYTES.allowed}.") from error


@click.command("doctor", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
@click.option(
    "--min-free",
    callback=_size,
    default=_LEAST_FREE,
    show_default=True,
    metavar="SIZE",
    help="The least room on the disk of the data directory; below five times that there is a warning.",
)
@click.pass_context
@with_settings(UpSettings)
def command(context: click.Context, *, as_json: bool, min_free: Bytes, settings: UpSettings) -> None:
    """Check whether everything is there that `correlator up` needs, and say what to do where it is not.

    Python and packages, Java, the data directory and its disk, the ports, the database, the clocks, the pages. Nothing
    is changed; an embedded database that is there is started if it does not run, and stopped again.

    \b
    With --json:
      {"healthy": whether there is no problem,
       "findings": [{"check", "outcome": "ok" | "warning" | "problem",
                     "said", "advice": what to do or null}, …]}

    \b
    Exit code:
      0  there is no problem; there may be warnings
      1  there is a problem
      2  could not tell: the settings cannot be used
    """  # noqa: D301 (click's mark for a paragraph that must not be wrapped anew)
    is_healthy = True
    findings = []
    for finding in _findings(settings, context.params["config"], min_free):
        is_healthy &= finding.outcome != "problem"
        findings.append(finding)
        if not as_json:
            for line in _lines(finding):
                click.echo(line)
    if as_json:
        click.echo(msgspec.json.encode({"healthy": is_healthy, "findings": findings}))
    sys.exit(0 if is_healthy else 1)


def _findings(settings: UpSettings, file: Path | None, min_free: Bytes) -> Iterator[Finding]:
    read = settings_file(file)
    yield Finding("settings", "ok", f"{read}, and the environment" if read else "no file, and the environment")
    yield machine.python()
    yield machine.packages()
    yield machine.java()
    yield machine.data_directory(settings.data_dir)
    yield machine.disk(settings.data_dir, min_free)
    yield port("port", settings, "server")
    yield from _proxy(settings, file)
    yield from _database(settings)
    yield machine.pages()


def _proxy(settings: UpSettings, file: Path | None) -> Iterator[Finding]:
    """Its port, where it is not the same as the server's: then one of the two stands on another machine."""
    try:
        proxy = load(ProxySettings, file=file).settings
    except SettingsError as error:
        yield Finding("proxy", "warning", str(error), "`correlator proxy` does not start with these settings.")
        return
    if proxy.port != settings.port:
        yield port("port of the proxy", proxy, "proxy")


def _database(settings: UpSettings) -> Iterator[Finding]:
    try:
        database = import_module("correlator.cli.doctor.database").database
    except ModuleNotFoundError as error:
        yield Finding("database", "problem", f"It cannot be asked without the package {error.name}.", machine.INSTALL)
        return
    yield from database(settings)


def _lines(finding: Finding) -> Iterator[str]:
    outcome = click.style(f"{finding.outcome:7}", fg=_COLOURS[finding.outcome])
    first, *rest = finding.said.splitlines() or [""]
    yield f"{outcome}  {finding.check}: {printable(first)}"
    yield from (f"         {printable(line)}" for line in (*rest, *(finding.advice or "").splitlines()))

"""What stands in deploy/ and in the manual is what the proxy knows."""

import configparser
import re
from pathlib import Path

import yaml  # type: ignore[import-untyped]  # no types come with it

from correlator.config import ProxySettings, settings_of
from correlator.proxy.destinations import parse
from correlator.setting_sources import FILE_VARIABLE

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "deploy" / "proxy" / "correlator-proxy.service"
SIDECAR = ROOT / "deploy" / "kubernetes" / "proxy-sidecar.yaml"
MANUAL = (ROOT / "docs" / "proxy.md").read_text(encoding="utf-8")

VARIABLES = {setting.variable: setting for setting in settings_of(ProxySettings)}


def test_the_sidecar_sets_what_there_is_to_set_and_is_asked_where_it_answers() -> None:
    documents = list(yaml.safe_load_all(SIDECAR.read_text(encoding="utf-8")))
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    (proxy,) = deployment["spec"]["template"]["spec"]["initContainers"]
    assert proxy["restartPolicy"] == "Always"
    environ = {each["name"]: each["value"] for each in proxy["env"]}
    assert environ.keys() <= VARIABLES.keys()
    for name, value in environ.items():
        VARIABLES[name].kind.read(value)
    assert parse(environ["CORRELATOR_DESTINATION"]).name == "prod"
    assert {proxy[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == {"/ping", "/ready"}
    (worker,) = deployment["spec"]["template"]["spec"]["containers"]
    assert worker["env"][0]["value"].endswith(str(ProxySettings.port))


def test_the_unit_sets_what_there_is_to_set() -> None:
    text = UNIT.read_text(encoding="utf-8")
    names = re.findall(r"^Environment=([A-Z_]+)=", text, re.MULTILINE)
    assert names
    assert set(names) <= VARIABLES.keys() | {FILE_VARIABLE}
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string(text)
    assert unit["Service"]["ExecStart"].endswith("correlator proxy")
    assert unit["Service"]["Restart"] == "always"


def test_the_manual_speaks_of_settings_that_there_are() -> None:
    known = {setting.name for setting in settings_of(ProxySettings)}
    for name in re.findall(r"^\| `([a-z_]+)`(?:, `[a-z_]+`)* \| [0-9]", MANUAL, re.MULTILINE):
        assert name in known
    for flag in re.findall(r"`--([a-z-]+)", MANUAL):
        assert flag.removeprefix("no-").replace("-", "_") in known, flag

"""The page of limits has every limit, with its default, and no other."""

import re
from pathlib import Path

from correlator.config import ProxySettings, Setting, all_settings, settings_of
from correlator.setting_kinds import BYTES, HOURS, RATE, TIME

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([^|]+) \| `(\w+)` \| ([^|]+) \| ([^|]*)\|$", re.MULTILINE)
NO_LIMITS = {"port"}


def is_limit(setting: Setting) -> bool:
    is_bounding = setting.kind in (BYTES, HOURS, RATE, TIME) or setting.kind.allowed.startswith("a whole number")
    return is_bounding and setting.name not in NO_LIMITS


def test_every_limit_that_can_be_set_is_on_the_page_with_its_default() -> None:
    told = [(name, default.strip()) for _, name, default, _ in ROW.findall(PAGE)]
    # What the proxy only has another default of is told in words.
    elsewhere = {setting.name for setting in all_settings() if setting.group != "proxy"}
    limits = [
        (setting.name, setting.default)
        for setting in all_settings()
        if is_limit(setting) and not (setting.group == "proxy" and setting.name in elsewhere)
    ]

    assert sorted(told) == sorted(limits)


def test_what_the_proxy_has_another_default_of_is_told() -> None:
    others = {setting.name: setting.default for setting in all_settings() if setting.group != "proxy"}
    differing = {
        setting.name: setting.default
        for setting in settings_of(ProxySettings)
        if is_limit(setting) and others.get(setting.name, setting.default) != setting.default
    }

    assert differing
    for name, default in differing.items():
        assert f"`{name}` {default}" in PAGE


def test_the_tables_of_other_pages_name_the_same_defaults() -> None:
    operations = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    section = operations.partition("## Retention")[2].partition("\n## ")[0]
    defaults = {setting.name: setting.default for setting in all_settings()}
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+`) \| ([^|]+) \|$", section, re.MULTILINE)

    assert rows
    for names, told in rows:
        wanted = [defaults[name] for name in re.findall(r"`(\w+)`", names)]
        assert re.split(", | \u00d7 ", told.strip()) == wanted

"""The Dockerfile cannot be built by a test. What can be told without that is told here."""

import fnmatch
import json
import re
import shlex
import tomllib
from collections.abc import Iterator

from correlator import __version__
from correlator.cli.main import COMMANDS
from correlator.config import UpSettings, settings_of
from correlator.pipeline import class_archive
from tests.unit.deploy.dockerfile import FILE, ROOT, Stage, environment, health_command, stages

STAGES = stages()
FINAL = STAGES[-1]


def copies(stage: Stage) -> Iterator[tuple[str | None, list[str], str]]:
    """The stage that each COPY is from, what it copies, and where to."""
    for line in stage.all("COPY"):
        words = shlex.split(line)
        origin = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else None
        yield origin, words[:-1], words[-1]


def is_sent(path: str) -> bool:
    """As .dockerignore has it: the last pattern that matches decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!").removeprefix("**/")
        parts = path.split("/")
        places = ["/".join(parts[: length + 1]) for length in range(len(parts))]
        if any(fnmatch.fnmatchcase(place, pattern) for place in places) or ("**/" in line and pattern in parts):
            sent = line.startswith("!")
    return sent


def test_whoever_runs_in_the_image_is_not_root_and_has_a_number_that_kubernetes_can_check() -> None:
    (user,) = FINAL.all("USER")
    number = user.partition(":")[0]
    assert number.isdecimal()
    assert int(number) > 0
    assert re.search(rf"useradd --uid {number} ", FINAL.all("RUN")[0])


def test_what_it_copies_is_here_and_is_sent_to_the_build() -> None:
    copied = [path for stage in STAGES for origin, paths, _ in copies(stage) if origin is None for path in paths]
    assert "src" in copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert is_sent(path), path


def test_nothing_else_is_sent_to_the_build() -> None:
    needed = {
        path.partition("/")[0] for stage in STAGES for origin, paths, _ in copies(stage) if not origin for path in paths
    }
    assert {path.name for path in ROOT.iterdir() if is_sent(path.name)} == needed
    for made_here in ("src/correlator/server/web/index.html", "web/node_modules/x", "src/correlator/__pycache__/x.pyc"):
        assert not is_sent(made_here)
    assert is_sent("src/correlator/server/app.py")


def test_what_it_copies_from_another_stage_that_stage_has_made() -> None:
    (outside,) = re.findall(r'outDir: "([^"]+)"', (ROOT / "web/vite.config.ts").read_text(encoding="utf-8"))
    made = {
        "code": {"/build/openapi.json"},
        # Where the pages are built from, and where their own settings say that they go.
        "pages": {f"/build/{outside.removeprefix('../')}"},
        "wheel": {"/opt/correlator"},
    }
    assert "> openapi.json" in STAGES[0].last("RUN")
    assert STAGES[1].last("WORKDIR") == "/build/web"
    assert "venv /opt/correlator " in STAGES[2].last("RUN")
    earlier: set[str] = set()
    for stage in STAGES:
        for origin, paths, _ in copies(stage):
            if origin is not None:
                assert origin in earlier
                assert set(paths) <= made[origin]
        assert stage.image in earlier or re.fullmatch(r"(python|node):[0-9.]+-[a-z-]+", stage.image)
        earlier.add(stage.name)


def test_what_the_package_is_built_from_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    copied = {path for _, paths, _ in copies(STAGES[0]) for path in paths}
    assert {project["readme"], *project["license-files"], "pyproject.toml", "src"} <= copied
    assert "[all]" in STAGES[2].last("RUN")
    assert "all" in project["optional-dependencies"]
    oldest = tuple(map(int, project["requires-python"].removeprefix(">=").split(".")))
    for stage in (STAGES[0], FINAL):
        assert tuple(map(int, re.findall(r"python:([0-9]+)\.([0-9]+)", stage.image)[0])) >= oldest
    scripts = json.loads((ROOT / "web/package.json").read_text(encoding="utf-8"))["scripts"]
    assert set(re.findall(r"npm run (\w+)", STAGES[1].last("RUN"))) <= scripts.keys()


def test_its_variables_are_settings_with_values_that_can_be_used() -> None:
    known = {setting.variable: setting for setting in settings_of(UpSettings)}
    ours = {name: value for name, value in environment(FINAL).items() if name.startswith("CORRELATOR_")}
    assert ours
    for name, value in ours.items():
        known[name].kind.read(value)
    assert "CORRELATOR_INSECURE" not in ours


def test_it_runs_a_command_that_there_is() -> None:
    *_, program = json.loads(FINAL.last("ENTRYPOINT"))
    assert program == "correlator"
    assert json.loads(FINAL.last("CMD"))[0] in COMMANDS
    assert FINAL.last("EXPOSE") == str(UpSettings.port)
    assert health_command(FINAL)[0] == "python"


def test_the_archive_of_sparks_classes_is_made_by_the_user_who_will_look_for_it_and_with_what_it_is_of() -> None:
    step = f"python -m {class_archive.__name__}"
    before = FINAL.steps[: FINAL.steps.index(("RUN", step))]
    assert "USER" in [name for name, _ in before]
    assert "--from=wheel /opt/correlator /opt/correlator" in [rest for name, rest in before if name == "COPY"]
    assert "--create-home" in FINAL.all("RUN")[0]


def test_it_installs_little_and_leaves_no_lists_behind() -> None:
    for stage in STAGES:
        for step in stage.all("RUN"):
            if "apt-get install" in step:
                assert "--no-install-recommends" in step
                assert "rm -rf /var/lib/apt/lists/*" in step
            if "pip install" in step or "pip wheel" in step:
                assert step.count("--no-cache-dir") == len(re.findall("pip (install|wheel)", step))
    assert "openjdk-17-jre-headless" in FINAL.all("RUN")[0]


def test_the_tag_in_the_instructions_is_this_version() -> None:
    assert f"-t correlator:{__version__} ." in FILE.read_text(encoding="utf-8")

"""The manifests, against the schemas of Kubernetes and against what Correlator knows of itself."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import kubernetes_validate  # type: ignore[import-untyped]  # no types come with it
import pytest
import yaml  # type: ignore[import-untyped]  # no types come with it

from correlator import __version__
from correlator.cli.config import SETTINGS
from correlator.cli.main import COMMANDS
from correlator.config import Setting, settings_of
from tests.unit.deploy.dockerfile import ROOT, stages

DIRECTORY = ROOT / "deploy" / "kubernetes"
FILES = sorted(DIRECTORY.glob("*.yaml"))
OURS = f"registry.example.com/correlator:{__version__}"
OLDEST = "1.29"
"""Of Kubernetes: the first with sidecars that are on without being asked for."""
USER = int(stages()[-1].last("USER").partition(":")[0])


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


RESOURCES = [
    pytest.param(resource, id=f"{file.stem}-{resource['kind']}")
    for file in FILES
    if file.name != "kustomization.yaml"
    for resource in documents(file)
]
PODS = [
    pytest.param(each.values[0]["spec"]["template"]["spec"], id=each.id)
    for each in RESOURCES
    if isinstance(each.values[0], dict) and each.values[0]["kind"] == "Deployment"
]


def containers(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from pod.get("initContainers", ())
    yield from pod["containers"]


def ours(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = (each for each in containers(pod) if each["image"] == OURS)
    return found


def variables(container: dict[str, Any]) -> dict[str, Setting]:
    return {setting.variable: setting for setting in settings_of(SETTINGS[container["args"][0]])}


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("resource", RESOURCES)
def test_a_resource_is_what_kubernetes_takes(resource: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(resource, version, strict=True)


def test_a_slip_of_the_pen_would_be_noticed() -> None:
    (deployment,) = (each for each in documents(DIRECTORY / "server.yaml") if each["kind"] == "Deployment")
    ours(deployment["spec"]["template"]["spec"])["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readinesProbe"):
        kubernetes_validate.validate(deployment, OLDEST, strict=True)


@pytest.mark.parametrize("pod", PODS)
def test_nobody_is_root_or_may_become_it(pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == USER
    assert pod["automountServiceAccountToken"] is False
    for container in containers(pod):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert ours(pod)["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("pod", PODS)
def test_every_container_says_what_it_takes(pod: dict[str, Any]) -> None:
    for container in containers(pod):
        resources = container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys()
        assert "memory" in resources["limits"]
        assert container["image"].rpartition(":")[2] not in {"latest", ""}


@pytest.mark.parametrize("pod", PODS)
def test_every_volume_that_is_mounted_is_there(pod: dict[str, Any]) -> None:
    there = {volume["name"] for volume in pod["volumes"]}
    for container in containers(pod):
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= there


@pytest.mark.parametrize("pod", PODS)
def test_it_runs_commands_that_there_are_with_settings_that_they_have(pod: dict[str, Any]) -> None:
    container = ours(pod)
    name, *rest = container["args"]
    assert name in COMMANDS
    command = import_module(f"correlator.cli.{name}").command
    for word in rest:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    known = variables(container)
    for variable in container["env"]:
        setting = known[variable["name"]]
        if setting.is_secret and setting.name != "destination" and "value" in variable:
            assert setting.kind.show(setting.kind.read(variable["value"])) == variable["value"], "a secret in a file"
        if "value" in variable:
            setting.kind.read(variable["value"])


@pytest.mark.parametrize("pod", PODS)
def test_the_database_is_named_by_a_secret_and_nowhere_else(pod: dict[str, Any]) -> None:
    for variable in ours(pod)["env"]:
        if variable["name"] == "CORRELATOR_DATABASE_URL":
            assert variable["valueFrom"]["secretKeyRef"] == {"name": "correlator", "key": "database-url"}
            assert "value" not in variable


def test_the_server_is_asked_where_it_answers_and_found_where_it_listens() -> None:
    deployment, service = documents(DIRECTORY / "server.yaml")
    container = ours(deployment["spec"]["template"]["spec"])
    environ = {each["name"]: each.get("value") for each in container["env"]}
    (port,) = container["ports"]
    assert str(port["containerPort"]) == environ["CORRELATOR_PORT"]
    assert deployment["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == environ["CORRELATOR_PORT"]
    paths = {
        probe: container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {"startupProbe": "/ping", "livenessProbe": "/ping", "readinessProbe": "/ready"}
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert {each["targetPort"] for each in service["spec"]["ports"]} == {port["name"]}


def test_there_is_one_pipeline_and_never_two_on_its_volume() -> None:
    claim, deployment = documents(DIRECTORY / "pipeline.yaml")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    (data,) = (each for each in deployment["spec"]["template"]["spec"]["volumes"] if each["name"] == "data")
    assert data["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_the_kustomization_has_the_parts_of_correlator_and_its_version() -> None:
    (kustomization,) = documents(DIRECTORY / "kustomization.yaml")
    examples = {"kustomization.yaml", "proxy-sidecar.yaml"}
    assert set(kustomization["resources"]) == {file.name for file in FILES} - examples
    (image,) = kustomization["images"]
    assert f"{image['name']}:{image['newTag']}" == OURS

"""The shipped manifests as data."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

Object = dict[str, Any]

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = DEPLOY / "manifests"
EXAMPLES = sorted((DEPLOY / "examples").glob("*.yaml"))
OVERLAYS = sorted(path.name for path in (MANIFESTS / "overlays").iterdir())
NAMESPACE = "accelscale"
KUBECTL = shutil.which("kubectl")

needs_kubectl = pytest.mark.skipif(
    KUBECTL is None, reason="kubectl, which has kustomize, is absent"
)


def documents(path: Path) -> list[Object]:
    """What stands in a file."""
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def sources() -> Iterator[tuple[str, Object]]:
    """Every object that stands in a file of its own, patches aside; each with the file's name."""
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        if path.name == "kustomization.yaml":
            continue
        patches = kustomization(path.parent).get("patches", [])
        if path.name not in [patch.get("path") for patch in patches]:
            for document in documents(path):
                yield f"{path.relative_to(MANIFESTS)} {document['kind']}", document


def kustomization(folder: Path) -> Object:
    """The kustomization of a folder."""
    (found,) = documents(folder / "kustomization.yaml")
    return found


def built(folder: Path, *, anywhere: bool = False) -> list[Object]:
    """What kustomize makes of a folder."""
    assert KUBECTL is not None
    options = ["--load-restrictor", "LoadRestrictionsNone"] if anywhere else []
    done = subprocess.run(
        [KUBECTL, "kustomize", *options, str(folder)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def the(objects: list[Object], kind: str, name: str | None = None) -> Object:
    """The one object of a kind, or of a kind and name."""
    (found,) = [
        each
        for each in objects
        if each["kind"] == kind and name in (None, each["metadata"]["name"])
    ]
    return found


def scaler_objects() -> list[Object]:
    """What the scaler consists of."""
    names = kustomization(MANIFESTS / "scaler")["resources"]
    return [each for name in names for each in documents(MANIFESTS / "scaler" / name)]


def pod_template(workload: Object) -> Object:
    """The pod of a Deployment or a DaemonSet."""
    template: Object = workload["spec"]["template"]
    return template


def container(workload: Object) -> Object:
    """The one container of a Deployment or a DaemonSet."""
    (found,) = pod_template(workload)["spec"]["containers"]
    return dict(found)

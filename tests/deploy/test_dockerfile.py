"""The images cannot be built where the tests run; what they are made of can be looked at."""

from __future__ import annotations

import re

from deploy.manifests import DEPLOY, MANIFESTS, container, documents, pod_template, scaler_objects
from deploy.manifests import the as the_one

ROOT = DEPLOY.parent
TEXT = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
IGNORED = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()


def stage(name: str) -> list[tuple[str, str]]:
    """The instructions of a stage."""
    found = re.search(rf"^FROM \S+ AS {name}$(.*?)(?=^FROM|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    lines = [line.split(None, 1) for line in found[1].splitlines() if line and line[0] != "#"]
    return [(line[0], line[1]) for line in lines]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    sources = [
        name for kind, rest in stage("wheels") if kind == "COPY" for name in rest.split()[:-1]
    ]
    assert sources
    for name in sources:
        assert (ROOT / name).exists()
        assert f"!{name}" in IGNORED
    assert IGNORED[1] == "*"


def test_every_plugin_but_the_example_is_in_the_agent() -> None:
    plugins = {path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")}
    plugins -= {"accelscale-example"}
    (wheels,) = [rest for kind, rest in stage("wheels") if kind == "RUN"]
    (installed,) = [rest for kind, rest in stage("agent") if kind == "RUN"]
    assert set(re.findall(r"\./plugins/(\S+)", wheels)) == plugins
    assert set(re.findall(r"accelscale-\w+", installed)) == plugins


def test_nothing_is_installed_but_what_was_built() -> None:
    for name in ("scaler", "agent"):
        (run,) = [rest for kind, rest in stage(name) if kind == "RUN"]
        assert "--no-index --find-links /wheels" in run
        assert "apt-get" not in run


def test_the_images_are_those_of_the_manifests() -> None:
    named = set(re.findall(r"-t (\S+)", TEXT))
    scaler = the_one(scaler_objects(), "Deployment")
    agent = the_one(documents(MANIFESTS / "agent" / "base" / "agent.yaml"), "DaemonSet")
    assert {container(scaler)["image"], container(agent)["image"]} == named
    user = dict(stage("scaler"))["USER"]
    context = pod_template(scaler)["spec"]["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert dict(stage("agent"))["USER"] == "0:0"
    assert container(agent)["securityContext"]["runAsUser"] == 0
    assert dict(stage("scaler"))["ENTRYPOINT"] == '["accelscale"]'

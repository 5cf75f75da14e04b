"""``accelscale doctor`` against plugins in a real process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accelscale.cli.environment import container
from cli.distributions import write_distribution
from cli.workbench import INSTALLED, Workbench

HANGING = """
import time

from accelscale.backend import Attempt, Probe
from accelscale.hookspecs import hookimpl
from accelscale.testing import FakeBackend


def read_the_stuck_register():
    time.sleep(600)


class Hanging(FakeBackend):
    name = "hanging"
    vendor = "hanging"

    def diagnose(self):
        yield Attempt("open", "opened", True, 0.001)
        read_the_stuck_register()


class Raising(FakeBackend):
    name = "raising"
    vendor = "raising"

    def probe(self):
        raise KeyError("libraising.so")


@hookimpl
def accelscale_register_backends(register):
    register(Hanging)
    register(Raising)
"""

CARDS = {
    "card-0": {
        "values": {"utilization_percent": 37.0},
        "failures": {"power_watts": "permission", "temperature_celsius": "permission"},
    },
    "card-1": {"lost": "Xid 79"},
}


def test_json_has_every_attempt_and_advice(workbench: Workbench) -> None:
    workbench.example(CARDS)
    result = workbench.run("doctor", "--json")
    assert result.returncode == 0
    document = json.loads(result.stdout)
    (example,) = document["backends"]
    assert (example["name"], example["works"], example["viable"]) == ("example", True, True)
    assert example["hanging"] is None
    attempts = {(a["device"], a["call"]): a for a in example["attempts"]}
    assert attempts[None, "open"]["ok"]
    assert attempts["card-0", "utilization_percent"]["result"] == "37"
    power = attempts["card-0", "power_watts"]
    assert not power["ok"]
    assert power["result"] == "permission: no power_watts today"
    assert all(attempt["seconds"] >= 0 for attempt in example["attempts"])
    advice = {text.partition(" ")[0]: text for text in example["advice"]}
    assert set(advice) == {"permission", "lost"}
    assert "power_watts" in advice["permission"]
    assert "and 2" in advice["lost"]  # not all of some twenty calls
    assert sorted(document["disabled"]) == INSTALLED


def test_the_environment_names_no_machine(workbench: Workbench) -> None:
    workbench.example({"card-0": {}})
    result = workbench.run(
        "doctor",
        "--json",
        HTTPS_PROXY="http://user:secret@proxy.example:3128",
        LD_LIBRARY_PATH="/home/somebody/lib",
        HOME="/home/somebody",
        CUDA_VISIBLE_DEVICES="1",
        ACCELSCALE_AGENTS="gpu-node-17:6001",
        HOSTNAME="gpu-node-17",
    )
    environment = json.loads(result.stdout)["environment"]
    assert environment["variables"] == {
        "ACCELSCALE_DISABLE_PLUGINS": ",".join(INSTALLED),
        "CUDA_VISIBLE_DEVICES": "1",
        "LD_LIBRARY_PATH": "~/lib",
        "HTTPS_PROXY": "(set)",
    }
    assert environment["python"].startswith("CPython 3.")
    assert environment["distributions"]["attrs"]
    for secret in ("secret", "somebody", "gpu-node-17"):
        assert secret not in result.stdout


def test_text_marks_each_call(workbench: Workbench) -> None:
    workbench.example(CARDS)
    result = workbench.run("doctor")
    assert result.returncode == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["example:", "works"] in rows
    marks = {(row[3], row[2]) for row in rows if len(row) > 3 and row[1] == "ms"}
    assert ("utilization_percent", "ok") in marks
    assert ("power_watts", "FAIL") in marks
    assert ("sm_clock_megahertz", "n/a") in marks
    assert any(row[:2] == ["->", "permission"] for row in rows)


def test_a_backend_that_cannot_be_opened(workbench: Workbench) -> None:
    workbench.example({}, probe="load the example driver")
    result = workbench.run("doctor")
    assert result.returncode == 1
    assert "example: does not work\n  -> load the example driver\n" in result.stdout


def test_a_stand_in_alone_is_no_working_accelerator(workbench: Workbench) -> None:
    workbench.example({"card-0": {}}, on_request=True)
    assert workbench.run("doctor").returncode == 1
    assert workbench.run("doctor", "--backend", "example").returncode == 0


def test_a_hanging_call_is_named_and_given_up(workbench: Workbench) -> None:
    points = {"accelscale": {"hanging": "hanging_accelerator"}}
    source = {"hanging_accelerator": HANGING}
    write_distribution(workbench.plugins, "hanging-accelerator", points, source)
    result = workbench.run("doctor", "--limit", "0.5", "--json")
    assert result.returncode == 1
    backends = {each["name"]: each for each in json.loads(result.stdout)["backends"]}
    hanging = backends["hanging"]
    assert hanging["hanging"] == "read_the_stuck_register (hanging_accelerator)"
    assert [attempt["call"] for attempt in hanging["attempts"]] == ["open"]
    assert "did not return within 0.5 s" in hanging["advice"][0]
    assert not hanging["works"]
    raising = backends["raising"]
    assert raising["attempts"][0]["result"] == "KeyError: 'libraising.so'"
    text = workbench.run("doctor", "--limit", "0.5", "--backend", "hanging").stdout
    assert "HANGS" in text


def test_an_unknown_backend_is_one_line(workbench: Workbench) -> None:
    workbench.example({})
    result = workbench.run("doctor", "--backend", "nosuch")
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, None),
        ({".dockerenv": ""}, "docker"),
        ({"run/.containerenv": ""}, "podman"),
        ({"proc/1/cgroup": "0::/kubepods.slice/kubepods-pod1.slice/x"}, "kubernetes"),
        ({"proc/1/cgroup": "1:cpu:/docker/abc"}, "docker"),
        ({"proc/1/cgroup": "0::/init.scope"}, None),
    ],
)
def test_containers_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], kind: str | None
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert container(tmp_path) == kind
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert container(tmp_path) == "kubernetes"

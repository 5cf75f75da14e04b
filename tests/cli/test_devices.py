"""``accelscale devices`` against a plugin in a real process."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from cli.workbench import INSTALLED, Workbench

KEYS = {"id", "name", "vendor", "backend", "parent", "pci_address", "metrics", "failures"}

CARD = {
    "name": "Example 9000",
    "pci_address": "0000:1b:00.0",
    "values": {
        "utilization_percent": 0.0,
        "memory_used_bytes": 20 * 2**30,
        "memory_total_bytes": 80 * 2**30,
    },
    "failures": {"power_watts": "permission"},
}


def listed(workbench: Workbench, *arguments: str) -> dict[str, Any]:
    result = workbench.run("devices", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""

    def refuse(text: str) -> float:
        raise AssertionError(f"{text} is no JSON number")

    document: dict[str, Any] = json.loads(result.stdout, parse_constant=refuse)
    return document


def test_json_gives_each_device_with_values_or_reasons(workbench: Workbench) -> None:
    part = {"parent": "card-0", "values": {"memory_used_bytes": 5.0, "memory_total_bytes": 10.0}}
    workbench.example({"card-0": CARD, "part-0": part, "card-1": {"lost": "Xid 79"}})
    document = listed(workbench)
    card, slice_, lost = document["devices"]
    assert set(card) == set(slice_) == set(lost) == KEYS
    assert card["id"] == "card-0"
    assert card["name"] == "Example 9000"
    assert (card["vendor"], card["backend"]) == ("example", "example")
    assert (card["parent"], card["pci_address"]) == (None, "0000:1b:00.0")
    assert card["metrics"]["utilization_percent"] == 0.0
    assert card["metrics"]["memory_used_percent"] == 25.0
    assert card["failures"]["power_watts"] == "permission"
    assert card["failures"]["power_used_percent"] == "permission"
    assert card["failures"]["temperature_celsius"] == "not_supported"
    assert slice_["parent"] == "card-0"
    assert slice_["metrics"]["memory_used_percent"] == 50.0
    assert lost["metrics"] == {}
    assert set(lost["failures"].values()) == {"lost"}
    for device in document["devices"]:
        assert not set(device["metrics"]) & set(device["failures"])
        assert all(math.isfinite(value) for value in device["metrics"].values())
    backend = document["backends"][0]
    assert backend == {
        "name": "example",
        "vendor": "example",
        "state": "ready",
        "reason": backend["reason"],
        "devices": 3,
    }
    disabled = {each["name"]: each["state"] for each in document["backends"][1:]}
    assert disabled == dict.fromkeys(INSTALLED, "disabled")


def test_text_shows_values_with_units_and_reasons(workbench: Workbench) -> None:
    workbench.example({"card-0": CARD, "card-1": {"lost": "fell off the bus"}})
    result = workbench.run("devices")
    assert result.returncode == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[:3] == ["Example 9000 (example)", "id card-0", "pci address 0000:1b:00.0"]
    assert "utilization_percent 0 %" in lines
    assert "memory_used_bytes 20 GiB" in lines
    assert "power_watts - permission: no power_watts today" in lines
    assert "problem lost: fell off the bus" in lines
    assert any(line.startswith("lost: fell off the bus: utilization_percent, ") for line in lines)
    assert any(
        line.startswith("never on this device: ") and "temperature_celsius" in line
        for line in lines
    )


def test_without_a_device_each_backend_says_why(workbench: Workbench) -> None:
    workbench.example({}, probe="the example driver is not loaded: load it")
    result = workbench.run("devices")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("accelscale: no devices found\n")
    assert "  example: the example driver is not loaded: load it\n" in result.stderr
    assert "accelscale doctor" in result.stderr
    assert "Traceback" not in result.stderr


def test_without_a_device_json_is_still_a_document(workbench: Workbench) -> None:
    workbench.example({}, probe="not here")
    result = workbench.run("devices", "--json")
    assert result.returncode == 1
    document = json.loads(result.stdout)
    assert document["devices"] == []
    assert document["backends"][0]["state"] == "failed"
    assert "not here" in document["backends"][0]["reason"]


def test_a_backend_on_request_must_be_asked_for(workbench: Workbench) -> None:
    workbench.example({"card-0": CARD}, on_request=True)
    unasked = workbench.run("devices")
    assert unasked.returncode == 1
    assert "example: used only when asked for: --backend example" in unasked.stderr
    assert [device["id"] for device in listed(workbench, "--backend", "example")["devices"]] == [
        "card-0"
    ]


def test_a_broken_plugin_is_named_where_nothing_is_found(workbench: Workbench) -> None:
    workbench.example({})
    (workbench.plugins / "example_accelerator.py").write_text("raise KeyError('libexample.so')")
    result = workbench.run("devices")
    assert result.returncode == 1
    assert "example-accelerator 1.2" in result.stderr
    assert "libexample.so" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_hanging_device_hides_no_other(workbench: Workbench, arguments: list[str]) -> None:
    workbench.example({"card-0": CARD, "card-1": {**CARD, "hang": True}})
    result = workbench.run("devices", "--wait", "4s", *arguments)
    assert result.returncode == 0
    assert "timeout" in result.stdout
    assert "card-0" in result.stdout

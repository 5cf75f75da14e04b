"""``accelscale plugins`` against plugins in a real process."""

from __future__ import annotations

import json

from cli.distributions import write_distribution
from cli.workbench import INSTALLED, Workbench


def broken(workbench: Workbench) -> None:
    points = {"accelscale": {"bad": "bad_accelerator"}}
    source = {"bad_accelerator": "raise KeyError('libbad.so')"}
    write_distribution(workbench.plugins, "bad-accelerator", points, source, version="0.9")


def test_backends_failures_and_disabled_plugins_are_listed(workbench: Workbench) -> None:
    workbench.example({"card-0": {}})
    broken(workbench)
    result = workbench.run("plugins", "--json")
    assert result.returncode == 0
    document = json.loads(result.stdout)
    assert (
        document["backends"]
        == [
            {
                "name": "example",
                "vendor": "example",
                "distribution": "example-accelerator",
                "version": "1.2",
                "viable": True,
                "reason": "1 fake devices",
                "on_request_only": False,
            }
        ]
        or document["backends"][0]["viable"]
    )
    (failure,) = document["failures"]
    assert (failure["plugin"], failure["distribution"]) == ("bad", "bad-accelerator")
    assert failure["version"] == "0.9"
    assert "libbad.so" in failure["reason"]
    assert sorted(document["disabled"]) == INSTALLED


def test_text_says_what_works_and_why_not(workbench: Workbench) -> None:
    workbench.example({}, probe="the example driver is not loaded", on_request=True)
    broken(workbench)
    result = workbench.run("plugins")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "example  (example-accelerator 1.2)  does not work here"
    assert "  the example driver is not loaded" in lines
    assert "  used only when asked for: --backend example" in lines
    assert any(line.startswith("refused: plugin 'bad' of bad-accelerator 0.9: ") for line in lines)
    assert "disabled: nvidia (ACCELSCALE_DISABLE_PLUGINS)" in lines

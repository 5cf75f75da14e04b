"""The figures of a server: setups, settings, and what no server can have."""

from __future__ import annotations

import attrs
import pytest

from accelscale.errors import ConfigurationError, NotFoundError
from accelscale.lab.simulate.server_model import FIGURES, SETUPS, setup, with_figures
from lab.simulate.cases import SIMPLE, model


def test_each_setup_is_found_by_its_name() -> None:
    assert set(SETUPS) == {"llama-70b", "llama-8b"}
    assert setup("LLAMA-8B") is SETUPS["llama-8b"]
    with pytest.raises(NotFoundError, match="known are llama-70b, llama-8b"):
        setup("gpt")


def test_figures_are_set_from_texts() -> None:
    found = with_figures(
        SIMPLE,
        {
            "load_seconds": "4m",
            "max_requests": "64",
            "weight_bytes": "16Gi",
            "reserves_cache": "no",
            "step_seconds": "0.02",
        },
    )
    assert (found.load_seconds, found.max_requests) == (240.0, 64)
    assert (found.weight_bytes, found.reserves_cache) == (16 * 1024**3, False)
    assert found.step_seconds == 0.02
    assert found.decode_watts == SIMPLE.decode_watts


def test_every_wrong_text_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        with_figures(SIMPLE, {"max_batch": "4", "max_requests": "many", "reserves_cache": "so"})
    problems = {fault.key: fault.problem for fault in caught.value.faults}
    assert problems["max_requests"] == "must be a whole number"
    assert problems["reserves_cache"] == "must be yes or no"
    assert "is no figure of a server" in problems["max_batch"]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"max_requests": 0}, "max_requests"),
        ({"step_tokens": 8}, "step_tokens"),
        ({"prefill_tokens_per_second": 0.0}, "prefill_tokens_per_second"),
        ({"step_seconds": 0.0}, "step_seconds"),
        ({"idle_watts": 400.0}, "decode_watts"),
        ({"weight_bytes": 90e9}, "memory_bytes"),
        ({"loaded_memory_percent": 101.0}, "loaded_memory_percent"),
        ({"load_seconds": float("nan")}, "load_seconds"),
        ({"load_seconds": float("inf")}, "load_seconds"),
    ],
)
def test_what_no_server_can_have_is_refused(changes: dict[str, float], key: str) -> None:
    with pytest.raises(ConfigurationError, match=key):
        model(**changes)


def test_every_figure_says_what_it_means() -> None:
    fields = {field.name for field in attrs.fields(type(SIMPLE))} - {"name"}
    assert set(FIGURES) == fields
    assert all(field.metadata["help"].endswith(".") for field in FIGURES.values())


def test_memory_in_use() -> None:
    assert SIMPLE.memory_used_bytes(0) == SIMPLE.memory_used_bytes(10_000) == 72e9
    grows = model(reserves_cache=False)
    assert grows.memory_used_bytes(0) == 16e9
    assert grows.memory_used_bytes(10_000) == 72e9
    assert grows.memory_used_bytes(5_000) == pytest.approx(44e9)

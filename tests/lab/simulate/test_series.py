"""What agents would have recorded of a simulated fleet, and what a recording tells of a server."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest

from accelscale.errors import ConfigurationError
from accelscale.lab.jsonlines import read_jsonlines, write_jsonlines
from accelscale.lab.parquet import read_parquet, write_parquet
from accelscale.lab.recording import Recording
from accelscale.lab.replay import Conditions, Replayer
from accelscale.lab.simulate.fitting import fitted
from accelscale.lab.simulate.fleet import Silence
from accelscale.lab.simulate.run import Simulation
from accelscale.lab.simulate.series import RECORDED, recorded
from accelscale.lab.simulate.synthetic import Lengths, Rate, synthetic
from lab.simulate.cases import SIMPLE, fixed, model, simulated, steady
from lab.toys import policy, recording, wave

REAL = model(
    idle_watts=95.0,
    decode_watts=420.0,
    prefill_watts=420.0,
    full_utilization_percent=96.0,
    load_seconds=45.0,
    loaded_memory_percent=88.0,
)


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    """A load that swings, so that replicas come and go."""
    arrivals = synthetic(
        Rate(0.5, 14.0, 1800.0), seconds=3600.0, lengths=Lengths(100.0, 80.0), seed=5
    )
    return simulated(
        arrivals, policy(threshold="70"), REAL, tail=0.0, silences=(Silence(900.0, 960.0, None),)
    )


@pytest.fixture(scope="module")
def kept(simulation: Simulation) -> Recording:
    return recorded(simulation)


def test_every_device_of_every_replica_is_recorded(simulation: Simulation, kept: Recording) -> None:
    replicas = simulation.fleet.all_replicas
    assert len(kept.devices) == len(replicas) > 2
    assert {metric for _, metric in kept.columns} == set(RECORDED)
    for holder, replica in zip(kept.holders, replicas, strict=True):
        assert holder.pod == replica.name
        assert (holder.start, holder.end) == (
            max(replica.created, 0.0),
            min(replica.gone, simulation.seconds),
        )


def test_a_faulted_agent_leaves_a_gap(kept: Recording) -> None:
    times = kept.columns["replica-0-device-0", "power_watts"].times
    assert np.diff(times).max() == 61.0
    assert not ((times >= 900.0) & (times < 960.0)).any()


def test_the_recording_can_be_written_and_read(kept: Recording, tmp_path: Path) -> None:
    write_parquet(kept, tmp_path / "fleet.parquet")
    same = read_parquet(tmp_path / "fleet.parquet")
    with (tmp_path / "fleet.jsonl").open("w") as file:
        write_jsonlines(kept, file)
    other = read_jsonlines(tmp_path / "fleet.jsonl")
    for found in (same, other):
        assert found.samples == kept.samples
        key = ("replica-1-device-0", "utilization_percent")
        assert found.columns[key].values.tolist() == pytest.approx(
            kept.columns[key].values.tolist()
        )


def test_a_replay_of_it_leads_to_the_same_replicas(simulation: Simulation, kept: Recording) -> None:
    """Open loop over the fleet that the same policy made: what it asked for, it asks for again."""
    replay = Replayer(kept).replay(
        simulation.policy,
        Conditions(load_time=REAL.load_seconds, replicas=simulation.start_replicas),
    )
    assert abs(len(replay.changes()) - len(simulation.changes())) <= 4
    again = replay.changes()[-1][1], max(count for _, count in replay.changes())
    assert again[1] == pytest.approx(max(count for _, count in simulation.changes()), abs=1)


def test_a_recording_gives_back_what_hardware_tells_of_a_server(kept: Recording) -> None:
    fit = fitted(SIMPLE, kept)
    found = fit.model
    assert found.idle_watts == pytest.approx(95.0, abs=2)
    assert found.decode_watts == pytest.approx(420.0, rel=0.06)
    assert found.prefill_watts == found.decode_watts
    assert found.full_utilization_percent == pytest.approx(96.0, abs=1)
    assert found.load_seconds == pytest.approx(45.0, abs=3)
    assert found.loaded_memory_percent == pytest.approx(88.0, abs=0.2)
    assert found.reserves_cache
    assert found.memory_bytes == 80e9
    for name in ("prefill_tokens_per_second", "step_seconds", "max_requests", "cache_tokens"):
        assert getattr(found, name) == getattr(SIMPLE, name)
    assert len(fit.found) == 5
    assert "do not tell them; they are those of simple" in fit.lacking[-1]


def test_memory_that_moves_with_the_load_is_seen() -> None:
    grows = attrs.evolve(REAL, reserves_cache=False)
    arrivals = synthetic(
        Rate(0.5, 6.0, 600.0), seconds=1200.0, lengths=Lengths(300.0, 200.0), seed=5
    )
    fit = fitted(SIMPLE, recorded(simulated(arrivals, fixed(1), grows, tail=0.0)))
    assert not fit.model.reserves_cache
    assert any("moves from" in text for text in fit.found)


def test_what_a_recording_does_not_tell_stays_and_is_named() -> None:
    calm = recording({"utilization_percent": [20.0], "power_watts": [150.0]}, seconds=600.0)
    fit = fitted(SIMPLE, calm)
    assert fit.model == SIMPLE
    assert fit.found == ()
    text = "\n".join(fit.lacking)
    assert "it spans 0 points" in text
    assert "the devices were never full" in text
    assert "there is no memory_used_percent" in text
    assert "no pod is seen to start" in text
    bare = fitted(SIMPLE, recording({"temperature_celsius": [50.0]}, seconds=600.0))
    assert bare.model == SIMPLE
    assert "there is no utilization_percent" in "\n".join(bare.lacking)


def test_a_load_that_never_reaches_the_top_is_no_saturation() -> None:
    swinging = recording({"utilization_percent": [wave(5.0, 40.0, 600.0)]}, seconds=1800.0)
    fit = fitted(SIMPLE, swinging)
    assert fit.model.full_utilization_percent == SIMPLE.full_utilization_percent


def test_figures_that_fit_no_server_are_refused() -> None:
    odd = recording({"power_limit_watts": [0.5], "utilization_percent": [50.0]}, seconds=600.0)
    with pytest.raises(ConfigurationError, match="fit to toy: power_limit_watts"):
        fitted(SIMPLE, odd)


def test_pods_that_were_there_before_tell_no_load_time() -> None:
    found = simulated(steady(1.0, 300.0), fixed(2), REAL, tail=0.0)
    fit = fitted(SIMPLE, recorded(found))
    assert fit.model.load_seconds == SIMPLE.load_seconds

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accelscale.errors import ConfigurationError
from accelscale.lab.loading import load
from accelscale.lab.recording import Recording
from accelscale.model import Reason

T0 = 1_760_000_000
DCGM = {
    "__name__": "DCGM_FI_DEV_GPU_UTIL",
    "UUID": "GPU-a",
    "gpu": "0",
    "modelName": "NVIDIA H100",
    "Hostname": "node-1",
    "pod": "dcgm-exporter-x",
    "namespace": "monitoring",
    "exported_pod": "vllm-0",
    "exported_namespace": "llm",
    "exported_container": "main",
}


def points(*values: str, start: int = T0, step: int = 15) -> list[list[Any]]:
    return [[start + step * number, value] for number, value in enumerate(values)]


def series(values: list[list[Any]], **labels: str | None) -> dict[str, Any]:
    merged = {**DCGM, **labels}
    return {"metric": {k: v for k, v in merged.items() if v is not None}, "values": values}


def answer(*found: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(found)}}


def read(tmp_path: Path, document: Any, **options: Any) -> Recording:
    path = tmp_path / "range.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return load([path], **options)


def test_a_range_query_of_dcgm_becomes_a_recording(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        answer(
            series(points("10", "20", "30")),
            series(points("0.25", "0.5", "0.75"), __name__="DCGM_FI_PROF_SM_ACTIVE"),
            series(points("1024", "1024", "2048"), __name__="DCGM_FI_DEV_FB_USED"),
            series(
                points("5000", "20000", "35000"), __name__="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
            ),
        ),
    )
    (device,) = found.devices
    assert (device.id, device.name, device.node) == ("GPU-a", "NVIDIA H100", "node-1")
    assert found.columns["GPU-a", "utilization_percent"].values.tolist() == [10.0, 20.0, 30.0]
    assert found.columns["GPU-a", "sm_activity_percent"].values.tolist() == [25.0, 50.0, 75.0]
    assert found.columns["GPU-a", "memory_used_bytes"].values.tolist()[0] == 2**30
    assert found.columns["GPU-a", "energy_joules_total"].values.tolist() == [5.0, 20.0, 35.0]
    assert found.columns["GPU-a", "energy_rate_watts"].values.tolist() == [1.0, 1.0]
    assert (found.start, found.end, found.interval) == (T0, 30.0, 15.0)


def test_the_users_pod_is_not_the_exporters(tmp_path: Path) -> None:
    found = read(tmp_path, answer(series(points("10", "20"))))
    (holder,) = found.holders
    assert (holder.namespace, holder.pod, holder.container) == ("llm", "vllm-0", "main")
    nobody = {"exported_pod": "", "exported_container": ""}
    assert not read(tmp_path, answer(series(points("1", "2"), **nobody))).holders
    plain = dict.fromkeys(("exported_pod", "exported_namespace", "exported_container"))
    found = read(tmp_path, answer(series(points("1", "2"), **plain)))
    assert found.holders[0].pod == "dcgm-exporter-x"


def test_a_card_that_changes_hands_is_one_device_with_two_holders(tmp_path: Path) -> None:
    later = points("50", "60", start=T0 + 45)
    found = read(
        tmp_path,
        answer(series(later, exported_pod="vllm-1"), series(points("10", "20", "30"))),
    )
    assert found.columns["GPU-a", "utilization_percent"].values.tolist() == [10, 20, 30, 50, 60]
    spans = {holder.pod: (holder.start, holder.end) for holder in found.holders}
    assert spans["vllm-0"] == (0.0, 45.0)
    assert spans["vllm-1"][0] == 45.0


def test_a_slice_of_a_card_is_a_device_of_its_own(tmp_path: Path) -> None:
    found = read(tmp_path, answer(series(points("1", "2"), GPU_I_ID="3", GPU_I_PROFILE="1g.10gb")))
    assert [(d.id, d.parent) for d in found.devices] == [("GPU-a/mig-3", "GPU-a")]


def test_series_of_the_amd_exporter_are_known_in_both_spellings(tmp_path: Path) -> None:
    labels = {"serial_number": "S1", "gpu_id": "2", "card_model": "MI300X"}
    labels |= {"UUID": None, "modelName": None}
    for name in ("gpu_gfx_activity", "amd_gpu_gfx_activity", "GPU_GFX_ACTIVITY"):
        found = read(tmp_path, answer(series(points("93", "94"), __name__=name, **labels)))
        (device,) = found.devices
        assert (device.id, device.vendor, device.name) == ("S1/2", "amd", "MI300X")
        assert found.columns["S1/2", "utilization_percent"].values.tolist() == [93.0, 94.0]


def test_no_number_is_absent_and_a_hole_is_a_gap(tmp_path: Path) -> None:
    holed = [[T0, "10"], [T0 + 15, "NaN"], [T0 + 30, "20"], [T0 + 300, "30"]]
    found = read(tmp_path, answer(series(holed)))
    column = found.columns["GPU-a", "utilization_percent"]
    assert column.times.tolist() == [0.0, 30.0, 300.0]
    (absence,) = found.absences["GPU-a", "utilization_percent"]
    assert (absence.start, absence.end, absence.reason) == (15.0, 30.0, Reason.ERROR)


def test_a_bare_result_as_promtool_prints_it_is_taken(tmp_path: Path) -> None:
    assert read(tmp_path, [series(points("1", "2"))]).samples == 2


def test_a_series_without_a_name_needs_to_be_named(tmp_path: Path) -> None:
    document = answer(series(points("1", "2"), __name__=None))
    with pytest.raises(ConfigurationError, match="say what it holds by --metric-of"):
        read(tmp_path, document)
    assert read(tmp_path, document, metric="utilization_percent").samples == 2


def test_what_is_not_known_is_left_out_and_named(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        answer(
            series(points("1", "2")),
            series(points("1", "2"), __name__="DCGM_FI_DEV_XID_ERRORS"),
            series(points("3", "4"), __name__="DCGM_FI_DEV_MEM_COPY_UTIL"),
            series(points("0.1", "0.1"), __name__="DCGM_FI_PROF_DRAM_ACTIVE"),
        ),
    )
    assert any("DCGM_FI_DEV_XID_ERRORS: no metric that is known here" in n for n in found.notes)
    assert any("DCGM_FI_PROF_DRAM_ACTIVE left out" in note for note in found.notes)
    assert len(found.columns) == 2


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (json.dumps(answer(series(points("1", "2"))))[:-30], r"range\.json, line 1 column \d+: "),
        ({"status": "error", "error": "parse error at char 3"}, "is an error of Prometheus: parse"),
        (
            {"status": "success", "data": {"resultType": "vector", "result": []}},
            "is a vector, a single moment: ask /api/v1/query_range",
        ),
        ({"status": "success"}, "has no data.result"),
        (answer({"metric": {}, "histograms": []}), r"result\[0\]: has histograms"),
        (answer({"values": []}), r"result\[0\]: has no labels"),
        (answer(series([[T0, "1"], [T0 + 15]])), r"result\[0\]\.values\[1\]: is no \[time, value"),
        (answer(series(points("1", "two"))), r"result\[0\]\.values\[1\]: 'two' is no number"),
        (answer(series(points("1", "2", step=-15))), r"values\[1\]: time goes back"),
        (answer(series(points("1", "2", step=0))), r"values\[1\]: time stands still"),
        (answer(series(points("1", "250"))), r"values\[1\]: .* lies outside 0 to 100 percent"),
        (answer(series(points("1", "2"), UUID=None, gpu=None)), "no label names the device"),
        (answer(), "it holds no series"),
    ],
)
def test_a_broken_answer_is_refused_with_the_place(
    tmp_path: Path, document: Any, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read(tmp_path, document)

"""The JSON answer of a Prometheus range query over series of the DCGM or AMD exporter.

Such an answer comes from ``/api/v1/query_range``, from ``promtool query range -o json`` (the bare
result), and from Thanos, Mimir and VictoriaMetrics alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelscale.lab.importers.series import LabelledSeries, gather
from accelscale.lab.recording import Recording, broken

if TYPE_CHECKING:
    from accelscale.lab.loading import Reading


def recognizes(head: str) -> bool:
    """Whether a file that begins so is such an answer."""
    text = head.lstrip()
    return text.startswith(("{", "[")) and any(
        mark in text for mark in ('"resultType"', '"status"', '"metric"', '"data"')
    )


def read(path: Path, reading: Reading) -> Recording:
    """Read such a file.

    Raises:
        ConfigurationError: it is cut off, an error, no range query, or a point of it is broken.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        where = f"{path.name}, line {error.lineno} column {error.colno}"
        raise broken(where, f"the JSON is cut off or damaged there ({error.msg})") from error
    except UnicodeDecodeError as error:
        raise broken(f"{path.name}, byte {error.start}", "is no UTF-8") from error
    result = _result(document, path.name)
    series = [_series(one, f"{path.name}, result[{index}]") for index, one in enumerate(result)]
    return gather(
        series, path.name, metrics=reading.metrics, repair=reading.repair, metric=reading.metric
    )


def _result(document: Any, name: str) -> Sequence[Any]:
    if isinstance(document, Mapping) and document.get("status") == "error":
        raise broken(name, f"is an error of Prometheus: {document.get('error')}")
    data = document.get("data", document) if isinstance(document, Mapping) else document
    if isinstance(data, Mapping):
        kind = data.get("resultType", "matrix")
        if kind != "matrix":
            problem = f"is a {kind}, a single moment: ask /api/v1/query_range instead"
            raise broken(name, problem)
        data = data.get("result")
    if not isinstance(data, list):
        raise broken(name, "has no data.result, as a range query does")
    return data


def _series(one: Any, where: str) -> LabelledSeries:
    if not isinstance(one, Mapping) or not isinstance(one.get("metric"), Mapping):
        raise broken(where, "has no labels under 'metric'")
    if "values" not in one:
        what = "histograms" if "histograms" in one else "no 'values'"
        raise broken(where, f"has {what}: not a series of a range query")
    labels = {str(key): str(value) for key, value in one["metric"].items()}
    name = labels.pop("__name__", "")
    return LabelledSeries(name, labels, list(_points(one["values"], where)), where)


def _points(values: Any, where: str) -> Iterator[tuple[float, str, str]]:
    if not isinstance(values, list):
        raise broken(where, "its 'values' are no list")
    for index, point in enumerate(values):
        place = f"{where}.values[{index}]"
        try:
            time, text = point
            yield float(time), str(text), place
        except (TypeError, ValueError) as error:
            raise broken(place, f"is no [time, value] ({point!r})") from error

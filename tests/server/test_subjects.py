"""What is remembered of who asked, and what the log says about them."""

from __future__ import annotations

import logging
import tracemalloc

import pytest

from accelscale.engine import Evaluation
from accelscale.errors import AccelscaleError, ConfigurationError, NoDataError
from accelscale.metrics import METRICS
from accelscale.model import Reason, Workload
from accelscale_server.subjects import MOST, Subjects

METADATA = {"metric": "utilization_percent", "threshold": "70"}


@pytest.fixture
def subjects() -> Subjects:
    return Subjects(METRICS, ("node",))


def evaluation(
    subject, value: float | AccelscaleError, active: bool | AccelscaleError
) -> Evaluation:
    return Evaluation(subject.trigger, Workload("this node", ()), 0.0, value, active)


def test_metadata_are_parsed_once(subjects: Subjects) -> None:
    first = subjects.of("shop", "web", METADATA)
    assert subjects.of("shop", "web", dict(reversed(METADATA.items()))) is first
    assert subjects.of("shop", "api", METADATA) is not first
    assert subjects.of("shop", "web", {**METADATA, "threshold": "50"}).trigger.threshold == 50


def test_bad_metadata_raise_each_time_without_growing(subjects: Subjects) -> None:
    for _ in range(3):
        with pytest.raises(ConfigurationError, match="threshold='x'") as caught:
            subjects.of("shop", "web", {**METADATA, "threshold": "x"}).trigger  # noqa: B018
    assert len(caught.traceback) <= 3


def test_the_number_of_subjects_is_bounded(subjects: Subjects) -> None:
    for number in range(MOST + 50):
        subjects.of("shop", f"web-{number}", METADATA)
    assert len(subjects) == MOST


def test_overlong_metadata_are_answered_and_not_kept(
    subjects: Subjects, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = {**METADATA, "devices": ",".join(f"GPU-{n:05}" for n in range(5000))}
    tracemalloc.start()
    for number in range(20):
        subject = subjects.of("shop", f"web-{number}", metadata)
        assert len(subject.trigger.devices) == 5000
        subject.note(evaluation(subject, 1.0, True))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(subjects) == 0
    assert kept < 4e6
    assert not caplog.records


def test_warnings_are_logged_once_per_scaled_object(
    subjects: Subjects, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        for name in ("web", "api"):
            assert subjects.of("shop", name, {**METADATA, "threshold": "0.7"}).trigger
    assert [record.scaled_object for record in caplog.records] == ["shop/web", "shop/api"]
    assert "was 70 meant?" in caplog.records[0].why
    assert caplog.records[0].levelno == logging.WARNING


def test_bad_metadata_are_logged_once_and_without_values(
    subjects: Subjects, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        subjects.of("shop", "web", {**METADATA, "apiToken": "hunter2", "threshold": "-1"})
    (record,) = caplog.records
    assert "apiToken: is no known key" in record.why
    assert "threshold: must be" in record.why
    assert "hunter2" not in str(vars(record))


def test_only_changes_of_the_verdict_are_logged(
    subjects: Subjects, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    subject = subjects.of("shop", "web", METADATA)
    lost, late = NoDataError("a is lost", reason=Reason.LOST), NoDataError("b", reason=Reason.STALE)
    for value, active in (
        (50.0, True),
        (60.0, True),
        (0.0, False),
        (lost, lost),
        (NoDataError("a is lost, 5 s old", reason=Reason.LOST),) * 2,
        (late, late),
        (0.0, late),
        (1.0, False),
    ):
        for _ in range(3):
            subject.note(evaluation(subject, value, active))
    said = [(r.getMessage(), r.levelname, getattr(r, "why", "")) for r in caplog.records]
    assert said == [
        ("verdict", "INFO", ""),
        ("verdict", "INFO", ""),
        ("no value", "WARNING", "a is lost"),
        ("no value", "WARNING", "b"),
        ("no verdict", "WARNING", "b"),
        ("verdict", "INFO", ""),
    ]
    assert (caplog.records[1].value, caplog.records[1].active) == (0.0, False)
    assert {r.scaled_object for r in caplog.records} == {"shop/web"}
    assert {r.metric for r in caplog.records} == {"accelscale-utilization-percent"}

"""The one map from errors to statuses: every row, and what must never come out."""

from __future__ import annotations

import logging
from urllib.parse import quote

import grpc
import pytest

from accelscale.errors import (
    AccelscaleError,
    BackendError,
    ConfigurationError,
    Fault,
    ForbiddenError,
    NoDataError,
    NotFoundError,
    UnsupportedError,
)
from accelscale.model import Reason
from accelscale.testing import FakeBackend
from accelscale_server.servicer import status_of

Code = grpc.StatusCode


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError([Fault("threshold", "x", "bad")]), Code.INVALID_ARGUMENT),
        (NotFoundError("no device"), Code.NOT_FOUND),
        (UnsupportedError("never"), Code.FAILED_PRECONDITION),
        (UnsupportedError("never", reason=Reason.NOT_SUPPORTED), Code.FAILED_PRECONDITION),
        (UnsupportedError("too large", reason=Reason.OUT_OF_RANGE), Code.OUT_OF_RANGE),
        (ForbiddenError("not yours"), Code.PERMISSION_DENIED),
        (NoDataError("later"), Code.UNAVAILABLE),
        (BackendError("driver"), Code.UNAVAILABLE),
    ],
)
def test_every_error_has_its_status_and_keeps_its_text(error: AccelscaleError, code: Code) -> None:
    assert status_of(error) == (code, str(error))


def test_every_kind_of_error_has_a_row() -> None:
    ours = [
        kind for kind in AccelscaleError.__subclasses__() if kind.__module__ == "accelscale.errors"
    ]
    assert len(ours) == 6
    for kind in ours:
        error = kind([]) if kind is ConfigurationError else kind("text")
        assert status_of(error)[0] is not Code.INTERNAL, kind


@pytest.mark.parametrize("error", [ValueError("secret"), KeyError("secret"), AccelscaleError("s")])
def test_what_nobody_foresaw_is_internal_and_says_nothing(error: Exception) -> None:
    code, text = status_of(error)
    assert code is Code.INTERNAL
    assert text != str(error)
    assert "secret" not in text


@pytest.mark.parametrize("letter", ["x", "é", "\n", "%", "😀"])
def test_a_text_too_long_for_a_header_is_clipped(letter: str) -> None:
    _, text = status_of(NotFoundError(letter * 100_000))
    assert text.endswith(f"{letter} ...")
    assert 6000 < len(quote(text, safe="".join(map(chr, range(32, 127))).replace("%", ""))) < 8000


async def test_our_bug_is_internal_and_its_trace_stays_in_the_log(
    start, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeBackend({"a": {"utilization_percent": 60.0}})
    server = await start(fake)
    broken = "the engine stumbled over a secret"

    def stumble(trigger: object) -> None:
        raise ZeroDivisionError(broken)

    server.monitor.evaluate = stumble
    with caplog.at_level(logging.ERROR, "accelscale_server.servicer"):
        for call in (server.value, server.active):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call()
            assert caught.value.code() is Code.INTERNAL
            assert "internal error" in caught.value.details()
            assert "stumbled" not in caught.value.details()
    assert caplog.text.count(f"ZeroDivisionError: {broken}") == 2
    del server.monitor.evaluate
    assert await server.active() is True


async def test_a_driver_error_and_a_forbidden_one_on_the_wire(start) -> None:
    server = await start(FakeBackend({"a": {"utilization_percent": 60.0}}))
    for error, code in (
        (ForbiddenError("namespace shop is not yours"), Code.PERMISSION_DENIED),
        (BackendError("NVML: driver/library version mismatch"), Code.UNAVAILABLE),
    ):

        def fail(trigger: object, error: AccelscaleError = error) -> None:
            raise error

        server.monitor.evaluate = fail
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.value()
        assert (caught.value.code(), caught.value.details()) == (code, str(error))


@pytest.mark.parametrize("letter", ["x", "ü", "%"])
async def test_a_long_list_of_faults_arrives(start, letter: str) -> None:
    server = await start(FakeBackend({"a": {"utilization_percent": 60.0}}))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.spec(**{f"key{n}": letter * 100 for n in range(200)})
    assert caught.value.code() is Code.INVALID_ARGUMENT
    assert "is no known key" in caught.value.details()

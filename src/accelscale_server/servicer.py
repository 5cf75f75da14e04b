# ruff: noqa: N802 - gRPC gives the calls their names
"""What KEDA calls: five RPCs, and the one map from errors to gRPC statuses.

Every answer comes from memory; nothing here waits for hardware. No call depends on an earlier one,
so any replica, freshly started or not, answers any of them alike; the first of a ScaledObject may
take a moment where what it asks for has to come from elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from accelscale.errors import (
    AccelscaleError,
    BackendError,
    ConfigurationError,
    ForbiddenError,
    NoDataError,
    NotFoundError,
    UnsupportedError,
)
from accelscale.model import Reason
from accelscale_server._proto import externalscaler_pb2 as pb
from accelscale_server._proto.externalscaler_pb2_grpc import ExternalScalerServicer

if TYPE_CHECKING:
    from accelscale.engine import Evaluation
    from accelscale.trigger import Trigger
    from accelscale_server.changes import Changes
    from accelscale_server.evaluations import Evaluations
    from accelscale_server.subjects import Subject, Subjects

logger = logging.getLogger("accelscale_server.servicer")

SERVICE = "externalscaler.ExternalScaler"

_STATUSES: tuple[tuple[type[AccelscaleError], grpc.StatusCode], ...] = (
    (ConfigurationError, grpc.StatusCode.INVALID_ARGUMENT),
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (UnsupportedError, grpc.StatusCode.FAILED_PRECONDITION),
    (ForbiddenError, grpc.StatusCode.PERMISSION_DENIED),
    (NoDataError, grpc.StatusCode.UNAVAILABLE),
    (BackendError, grpc.StatusCode.UNAVAILABLE),
)
_INDEX_PREFIX = re.compile(r"s[0-9]+-")

_LONGEST_TEXT = 7000
"""Bytes of a status's text in its header; clients refuse headers of more than 8 KiB."""

_Context = Any  # grpc.aio.ServicerContext, which is generic for the type checker alone
_Response = TypeVar("_Response")


def status_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    """The gRPC status for an error, and its text; what we did not raise on purpose says nothing."""
    if isinstance(error, UnsupportedError) and error.reason is Reason.OUT_OF_RANGE:
        return grpc.StatusCode.OUT_OF_RANGE, _clipped(str(error))
    for kind, code in _STATUSES:
        if isinstance(error, kind):
            return code, _clipped(str(error))
    return grpc.StatusCode.INTERNAL, "internal error; the log of the server has the details"


def _clipped(text: str) -> str:
    """As much of the text as fits; each byte that is not plain ASCII takes three there."""
    if 9 * len(text) <= _LONGEST_TEXT:
        return text
    size = 0
    for index, character in enumerate(text):
        plain = " " <= character <= "~" and character != "%"
        size += 1 if plain else 3 * len(character.encode(errors="replace"))
        if size > _LONGEST_TEXT:
            return text[:index] + " ..."
    return text


def answering(
    call: Callable[[Any, Any, _Context], Awaitable[_Response]],
) -> Callable[[Any, Any, _Context], Awaitable[_Response]]:
    """Turn what a call raises into its status."""

    @functools.wraps(call)
    async def answer(self: Any, request: Any, context: _Context) -> _Response:
        try:
            return await call(self, request, context)
        except AccelscaleError as error:
            status = status_of(error)
        except Exception as error:
            logger.exception("a call failed", extra={"method": call.__name__})
            status = status_of(error)
        await context.abort(*status)
        raise AssertionError("abort raises")

    return answer


class ExternalScaler(ExternalScalerServicer):
    """KEDA's external scaler, for triggers of type external and external-push."""

    def __init__(self, subjects: Subjects, evaluations: Evaluations, changes: Changes) -> None:
        self._subjects = subjects
        self._evaluations = evaluations
        self._changes = changes

    @answering
    async def GetMetricSpec(
        self, request: pb.ScaledObjectRef, context: _Context
    ) -> pb.GetMetricSpecResponse:
        """Name and target, from the metadata alone: also while no device can be read."""
        return _spec(self._subject(request).trigger)

    @answering
    async def GetMetrics(
        self, request: pb.GetMetricsRequest, context: _Context
    ) -> pb.GetMetricsResponse:
        """The one value, or the error that makes KEDA hold."""
        subject = self._subject(request.scaledObjectRef)
        name = _known_name(request.metricName, subject.trigger)
        value = (await self._first_evaluation(subject)).metric_value()
        # Older versions of KEDA read the integer alone, and all of them where the float is 0.
        metric = pb.MetricValue(
            metricName=name, metricValue=math.ceil(value), metricValueFloat=value
        )
        return pb.GetMetricsResponse(metricValues=[metric])

    @answering
    async def IsActive(self, request: pb.ScaledObjectRef, context: _Context) -> pb.IsActiveResponse:
        """Whether the workload is active; an error where nobody can tell, never false."""
        evaluation = await self._first_evaluation(self._subject(request))
        return pb.IsActiveResponse(result=evaluation.is_active())

    @answering
    async def StreamIsActive(self, request: pb.ScaledObjectRef, context: _Context) -> None:
        """The state on open and every change of it; what cannot be told is not sent."""
        subject, sent, count = self._subject(request), None, -1
        while await self._changes.after(count):
            count = self._changes.count
            active = self._active(subject)
            if isinstance(active, bool) and active is not sent:
                await context.write(pb.IsActiveResponse(result=active))
                sent = active

    @answering
    async def StreamMetricSpec(self, request: pb.ScaledObjectRef, context: _Context) -> None:
        """The spec on open. It follows from the metadata of this very request: it never changes."""
        await context.write(_spec(self._subject(request).trigger))
        while await self._changes.after(self._changes.count):
            pass

    def _subject(self, request: pb.ScaledObjectRef) -> Subject:
        return self._subjects.of(request.namespace, request.name, request.scalerMetadata)

    def _evaluation(self, subject: Subject) -> Evaluation:
        trigger = self._subjects.trigger_of(subject)
        return self._evaluations.of(trigger, subject.namespace, subject.name)

    async def _first_evaluation(self, subject: Subject) -> Evaluation:
        """The evaluation, for which a ScaledObject that asks for the first time waits a moment.

        What it asks for is under way from then on, and would be there at its next poll; but an
        error at the first one is noted by KEDA and looked at by people.
        """
        end = subject.since + self._evaluations.first_answer_seconds
        while True:
            count, left = self._changes.count, end - time.monotonic()
            try:
                evaluation = self._evaluation(subject)
            except NoDataError:
                if left <= 0:
                    raise
            else:
                if left <= 0 or _is_whole(evaluation):
                    subject.note(evaluation)
                    return evaluation
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    if not await self._changes.after(count):
                        end = 0.0  # the server stops: answer what is known

    def _active(self, subject: Subject) -> bool | AccelscaleError:
        try:
            evaluation = self._evaluation(subject)
        except NoDataError as error:
            return error
        subject.note(evaluation)
        return evaluation.active


def _is_whole(evaluation: Evaluation) -> bool:
    """Whether nothing that counts here could still be under way."""
    missing = isinstance(evaluation.value, NoDataError | NotFoundError)
    return not missing and evaluation.fill == "none"


def _spec(trigger: Trigger) -> pb.GetMetricSpecResponse:
    spec = pb.MetricSpec(
        metricName=trigger.metric_name,
        targetSize=math.ceil(trigger.threshold),
        targetSizeFloat=trigger.threshold,
    )
    return pb.GetMetricSpecResponse(metricSpecs=[spec])


def _known_name(asked: str, trigger: Trigger) -> str:
    """The trigger's own name for the metric asked for.

    The HPA lower-cases names, and KEDA 2.5 and 2.6 sent ``s0-`` in front (kedacore/keda#2640).

    Raises:
        NotFoundError: the trigger has no such metric.
    """
    name = asked.lower()
    if trigger.metric_name in (name, _INDEX_PREFIX.sub("", name, count=1)):
        return trigger.metric_name
    raise NotFoundError(f"this trigger has no metric {asked!r}; it has {trigger.metric_name!r}")

"""``accelscale doctor``: what was tried, what each call returned, how long it took, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelscale.cli.options import AsJson, Backends, one_line, positive_seconds, print_json, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from accelscale.backend import Attempt
    from accelscale.cli.diagnosis import Diagnosis
    from accelscale.plugins import Registry


def doctor(
    backend: Backends = None,
    as_json: AsJson = False,
    limit: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            parser=positive_seconds,
            help="Give up on a backend after so long without an answer.",
        ),
    ] = 10.0,
) -> None:
    """Try every driver call and say what to do."""
    from accelscale.cli.diagnosis import diagnose
    from accelscale.cli.environment import facts
    from accelscale.plugins import load_plugins

    registry = load_plugins()
    for name in backend or ():
        registry.create(name)  # says which names there are if this is none of them
    environment = facts()
    chosen = list(dict.fromkeys(backend or registry.backends))
    if as_json:
        diagnoses = [diagnose(registry, name, limit) for name in chosen]
        print_json(_record(environment, diagnoses, registry))
    else:
        for line in _environment_lines(environment):
            say(line)
        diagnoses = []
        for name in chosen:
            diagnoses.append(diagnose(registry, name, limit))
            for line in _lines(diagnoses[-1]):
                say(line)
        for failure in registry.failures:
            say("")
            say(f"{failure.plugin}: refused")
            say(f"  {failure}")
    # A machine on which only the stand-in works has no working accelerator.
    wanted = [d for d in diagnoses if backend or not d.backend.backend.on_request_only]
    if not any(diagnosis.works for diagnosis in wanted):
        raise typer.Exit(1)


def _record(
    environment: Mapping[str, object], diagnoses: Sequence[Diagnosis], registry: Registry
) -> dict[str, Any]:
    return {
        "environment": environment,
        "backends": [
            {
                "name": d.backend.name,
                "distribution": d.backend.distribution,
                "version": d.backend.version,
                "works": d.works,
                "viable": d.probe.viable if d.probe else False,
                "reason": d.probe.reason if d.probe else None,
                "driver_version": d.probe.version if d.probe else None,
                "hanging": d.hanging,
                "attempts": [_attempt_record(attempt) for attempt in d.attempts],
                "advice": list(d.advice),
            }
            for d in diagnoses
        ],
        "failures": [str(failure) for failure in registry.failures],
        "disabled": list(registry.disabled),
    }


def _attempt_record(attempt: Attempt) -> dict[str, Any]:
    return {
        "call": attempt.call,
        "device": attempt.device_id,
        "ok": attempt.ok,
        "result": attempt.result,
        "seconds": round(attempt.seconds, 6),
    }


def _environment_lines(environment: Mapping[str, Any]) -> Iterator[str]:
    yield f"accelscale {environment['accelscale']}, {environment['python']}"
    yield f"{environment['kernel']}, {environment['libc']}, container: {environment['container']}"
    yield ", ".join(
        f"{name} {version or '(not installed)'}"
        for name, version in environment["distributions"].items()
    )
    for name, value in environment["variables"].items():
        yield f"{name}={value}"


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    registered, probe = diagnosis.backend, diagnosis.probe
    state = "works" if diagnosis.works else "hangs" if diagnosis.hanging else "does not work"
    yield ""
    yield f"{registered.name}: {state}"
    if probe is not None and probe.viable:
        yield f"  {probe.reason}{f' (version {probe.version})' if probe.version else ''}"
    device_id: str | None = None
    width = max((len(attempt.call) for attempt in diagnosis.attempts), default=0)
    for attempt in diagnosis.attempts:
        if attempt.device_id != device_id:
            device_id = attempt.device_id
            if device_id is not None:
                yield f"  {device_id}"
        yield f"  {_attempt_line(attempt, width)}"
    if diagnosis.hanging:
        yield f"  {'HANGS':>8}         {diagnosis.hanging}"
    for advice in diagnosis.advice:
        yield f"  -> {one_line(advice)}"


def _attempt_line(attempt: Attempt, width: int) -> str:
    from accelscale.cli.diagnosis import reason_of
    from accelscale.cli.figures import duration

    mark = "ok" if attempt.ok else _MARKS.get(str(reason_of(attempt)), "FAIL")
    return (
        f"{duration(attempt.seconds):>8}  {mark:<4}  {attempt.call:<{width}}"
        f"  {one_line(attempt.result)}"
    )


_MARKS = {"not_supported": "n/a", "no_progress": "wait", "counter_reset": "wait"}

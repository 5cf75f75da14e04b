"""``accelscale record``: what the hardware does, or did, to a file that ``replay`` reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelscale.cli.options import Backends, positive_seconds, say

if TYPE_CHECKING:
    import threading
    from contextlib import AbstractContextManager

    from accelscale.lab.recorder import Progress
    from accelscale.lab.recording import Recording
    from accelscale.lab.sources import Source, Wanted

FIRST_READING_SECONDS = 5.0
LINE_SECONDS = 60.0
"""Between two lines of progress where there is no terminal."""


def record(
    output: Annotated[
        Path,
        typer.Argument(
            metavar="OUTPUT",
            help="NAME.parquet, NAME.jsonl, or a folder of Parquet parts.",
            show_default=False,
        ),
    ],
    backend: Backends = None,
    interval: Annotated[
        float,
        typer.Option(metavar="SECONDS", parser=positive_seconds, help="Time between two readings."),
    ] = 1.0,
    for_: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="SECONDS",
            parser=positive_seconds,
            help="Stop after this time (30m, 8h). [default: at Ctrl-C]",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Record this metric; may be repeated. [default: all]",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="ADDRESS",
            help="Record what others read: agent:HOST:PORT (several with commas between them) or"
            " scaler:HOST:PORT. [default: this machine]",
            show_default=False,
        ),
    ] = None,
    rotate: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            parser=positive_seconds,
            help="Begin a new part after this time; OUTPUT is a folder then.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            metavar="PARTS",
            min=1,
            help="Keep so many complete parts, and remove older ones.",
            show_default=False,
        ),
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Go on with a recording that was stopped.")
    ] = False,
    imports: Annotated[
        list[Path] | None,
        typer.Option(
            "--import",
            metavar="FILE",
            help="Convert this instead: the JSON of a Prometheus range query, a CSV of such series,"
            " or a log of nvidia-smi --query-gpu=... --format=csv; may be repeated.",
            show_default=False,
        ),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Leave broken rows of an import out.")
    ] = False,
    metric_of: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="What imported series without a name hold.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Record the devices to a file, or convert logs of others."""
    from accelscale.lab.extra import need_lab, writing

    need_lab("record")
    if imports:
        with writing(output):
            _convert(imports, output, metric, repair=repair, metric_of=metric_of)
        return
    _check_metrics(metric or [])
    from accelscale.lab.recorder import Recorder
    from accelscale.lab.sinks import begun, open_sink
    from accelscale.lab.sources import Wanted

    earlier = begun(output) if append else None
    sink = open_sink(output, seconds=rotate, keep=keep, append=append)
    start, offset = _goes_on(earlier)
    wanted = Wanted(interval, tuple(metric or ()))
    show = _progress(quiet)
    with writing(output), _until_stopped(for_) as stop:
        recorder = Recorder(sink, metrics=wanted.metrics, start=start, offset=offset)
        with recorder, _opened(source, backend, wanted, stop) as passes:
            for observed in passes:
                recorder.take(observed)
                show(recorder.progress, last=False)
    show(recorder.progress, last=True)
    say(f"recorded {output}: {_told(recorder.progress)}", err=True)


def _opened(
    source: str | None, backend: list[str] | None, wanted: Wanted, stop: threading.Event
) -> AbstractContextManager[Source]:
    if source is None:
        return _this_machine(backend, wanted, stop)
    from accelscale.lab.sources import open_source

    return open_source(source, wanted, stop)


@contextmanager
def _this_machine(
    backend: list[str] | None, wanted: Wanted, stop: threading.Event
) -> Iterator[Source]:
    from accelscale.cli.devices import complain_of_no_devices
    from accelscale.cli.watching import statuses, watching
    from accelscale.lab.sources import passes_of

    seconds = FIRST_READING_SECONDS + wanted.interval
    with watching(backend, interval=wanted.interval, seconds=seconds, passes=1) as monitor:
        if not monitor.snapshot().devices:
            complain_of_no_devices(statuses(monitor))
            raise typer.Exit(1)
        yield passes_of(monitor, stop)


def _goes_on(earlier: tuple[float, float] | None) -> tuple[float | None, float]:
    """Where an earlier recording began, and the time in it that is now."""
    if earlier is None:
        return None, 0.0
    start, last = earlier
    offset = time.time() - start
    if offset <= last:
        raise typer.BadParameter(
            f"the recording ends {last - offset:.0f} s in the future: the clock of this machine"
            " has gone back",
            param_hint="--append",
        )
    return start, offset


def _check_metrics(names: list[str]) -> None:
    from accelscale.metrics import METRICS
    from accelscale.plugins import load_plugins
    from accelscale.values import did_you_mean

    known = {**METRICS, **load_plugins().extra_metrics()} if names else {}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise typer.BadParameter(f"{name} is no known metric{hint}", param_hint="--metric")


def _convert(
    paths: list[Path],
    output: Path,
    metrics: list[str] | None,
    *,
    repair: bool,
    metric_of: str | None,
) -> None:
    from accelscale.lab.loading import load

    if output.exists():
        raise typer.BadParameter(f"{output} exists: name another file", param_hint="OUTPUT")
    recording = load(paths, metrics=metrics, repair=repair, metric=metric_of)
    _write(recording, output)
    for note in recording.notes:
        say(f"note: {note}", err=True)
    say(
        f"recorded {output}: {recording.samples} samples of {len(recording.devices)} devices,"
        f" {', '.join(recording.metrics)}",
        err=True,
    )


def _write(recording: Recording, output: Path) -> None:
    if output.suffix == ".jsonl":
        from accelscale.lab.jsonlines import write_jsonlines

        unfinished = output.with_name(f".{output.name}.unfinished")
        with unfinished.open("w", encoding="utf-8") as file:
            write_jsonlines(recording, file)
        unfinished.replace(output)
    elif output.suffix == ".parquet":
        from accelscale.lab.parquet import write_parquet

        write_parquet(recording, output)
    else:
        raise typer.BadParameter("must end with .parquet or .jsonl", param_hint="OUTPUT")


@contextmanager
def _until_stopped(seconds: float | None) -> Iterator[threading.Event]:
    """An event that is set by Ctrl-C, SIGTERM or SIGHUP, or after the seconds."""
    import signal
    import threading

    stop = threading.Event()

    def end(number: int, frame: Any) -> None:
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    timer = None
    if seconds is not None:
        timer = threading.Timer(seconds, stop.set)
        timer.daemon = True
        timer.start()
    try:
        yield stop
    finally:
        if timer is not None:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _progress(quiet: bool) -> Callable[..., None]:
    """Shows progress: one line that changes on a terminal, else a line a minute."""
    on_terminal = sys.stderr.isatty()
    shown = time.monotonic()

    def show(progress: Progress, *, last: bool) -> None:
        nonlocal shown
        if quiet:
            return
        if on_terminal:
            sys.stderr.write(f"\r\x1b[2K{'' if last else _told(progress)}")
            sys.stderr.flush()
        elif not last and time.monotonic() - shown >= LINE_SECONDS:
            shown = time.monotonic()
            sys.stderr.write(f"{_told(progress)}\n")
            sys.stderr.flush()

    return show


def _told(progress: Progress) -> str:
    minutes, seconds = divmod(int(progress.seconds), 60)
    hours, minutes = divmod(minutes, 60)
    missing = f", {progress.missing} readings fail" if progress.missing else ""
    count = progress.devices
    return (
        f"{hours}:{minutes:02}:{seconds:02}, {count} device{'s' * (count != 1)},"
        f" {progress.samples:,} samples{missing}"
    )

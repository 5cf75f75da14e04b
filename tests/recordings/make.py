"""Makes the recordings of this folder anew: ``python tests/recordings/make.py [NAME]...``.

They are examples: recorded from stand-ins of our own making, none from real hardware. A recording
of real hardware comes from ``accelscale record-hardware`` and is never made anew, only replayed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import evolve

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(ROOT / "plugins/accelscale-example/tests")]

from accelscale.plugins import load_plugins  # noqa: E402 - needs the path above
from accelscale.testing.recording import record  # noqa: E402
from accelscale.testing.recording.scrub import Scrubber  # noqa: E402


@contextmanager
def amd(folder: Path) -> Iterator[Path]:
    """Two cards, the second in two partitions; the first shows no power."""
    from amd.trees import HWMON, Tree

    tree = Tree(folder)
    lacking = {name: value for name, value in HWMON.items() if not name.startswith("power")}
    tree.card("0000:03:00.0", unique_id="bd2a3a1c0f4e7b91", hwmon=lacking)
    tree.split(tree.card("0000:83:00.0", unique_id="bd2a3a1c0f4e7c02"), "DPX", 2)
    yield folder


@contextmanager
def intel(folder: Path) -> Iterator[Path]:
    """A card of xe that one process uses, and one that sleeps."""
    from intel.trees import Tree, full_xe_card, xe_client

    tree = Tree(folder)
    full_xe_card(tree)
    asleep = tree.card(1, "0000:04:00.0")
    tree.write(f"{asleep}/power/runtime_status", "suspended")
    tree.rights(0)
    tree.host_processes()
    tree.client(77, 5, "/dev/dri/renderD128", xe_client(clock=1000, ccs=500))
    tree.link("proc/77/fd/6", "/home/somebody/thesis")
    yield folder


@contextmanager
def fpga(folder: Path) -> Iterator[Path]:
    """A DFL card with sensors, and an Alveo card without XRT's tool."""
    from fpga.trees import SysTree

    tree = SysTree(folder)
    tree.intel("0000:3b:00.0")
    tree.alveo("0000:65:00.1")
    yield folder


@contextmanager
def nvidia(folder: Path) -> Iterator[None]:
    """Two cards by way of the real binding, the second lost; calls, so there are no files."""
    from drivers.nvml import state as nvml

    library = nvml.build(folder / "driver")
    cards = [f"GPU-3f2a9b1c-8d1e-4c5b-9a77-0123456789a{number}" for number in (1, 2)]
    fake = nvml.FakeNvml(folder / "nvml.state")
    for card in cards:
        fake.device(card, utilization_gpu=37)
    fake.lose(cards[1]).write()
    os.environ["ACCELSCALE_NVML_LIBRARY"] = str(library)
    os.environ[nvml.STATE_VARIABLE] = str(fake.path)
    yield None


@contextmanager
def example(folder: Path) -> Iterator[Path]:
    """The cards of the example plugin, one of them split."""
    from trees import Tree

    tree = Tree(folder)
    tree.card(0, "0000:17:00.0")
    split = tree.card(
        1,
        "0000:5e:00.0",
        serial_number="EX4K-0017-4402",
        power_microwatts=None,
        temperature_millicelsius="N/A",
    )
    for number in (0, 1):
        tree.partition(split, number)
    yield folder


RECORDINGS: dict[str, tuple[str, Callable[..., object], Path]] = {
    "amd-mi300x": ("amd", amd, HERE / "amd-mi300x"),
    "intel-xe": ("intel", intel, HERE / "intel-xe"),
    "fpga-two-makers": ("fpga", fpga, HERE / "fpga-two-makers"),
    "nvidia-h100": ("nvidia", nvidia, HERE / "nvidia-h100"),
    "example": (
        "example",
        example,
        ROOT / "plugins/accelscale-example/tests/recordings/one-split-card",
    ),
}


def main(names: list[str]) -> None:
    """Make these recordings, or all."""
    registry = load_plugins()
    for name in names or RECORDINGS:
        backend, stand_in, home = RECORDINGS[name]
        shutil.rmtree(home, ignore_errors=True)
        # A key that is known gives the same stand-ins again, so a change shows as one.
        scrubber = Scrubber(key=b"made from a stand-in, so there is nothing to hide")
        with tempfile.TemporaryDirectory() as folder, stand_in(Path(folder)) as root:  # type: ignore[attr-defined]
            recording = record(registry.backends[backend], root=root, scrubber=scrubber)
        recording = evolve(
            recording,
            recorded="from a stand-in",
            system="a stand-in of our own making",
            attempts=tuple(evolve(attempt, seconds=0.0) for attempt in recording.attempts),
        )
        recording.save(home)
        sys.stdout.write(f"{home.relative_to(ROOT)}: {recording.why_no_files or 'with files'}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

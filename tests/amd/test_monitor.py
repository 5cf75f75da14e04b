"""Through the monitor: what a trigger sees of AMD cards and of their faults."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from accelscale import open_monitor, parse_trigger
from accelscale.errors import NoDataError
from accelscale.model import Reason, Snapshot
from accelscale.monitor import Monitor
from accelscale_amd import AmdBackend
from amd.conftest import FIRST, SECOND
from amd.trees import TABLE, Tree


@contextmanager
def monitored(tree: Tree) -> Iterator[Monitor]:
    with open_monitor([AmdBackend(tree.root)], interval=0.05) as monitor:
        assert monitor.wait(30.0, passes=2)
        yield monitor


def wait_for(monitor: Monitor, condition: Callable[[Snapshot], bool]) -> Snapshot:
    end = time.monotonic() + 30
    while not condition(snapshot := monitor.snapshot()):
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)
    return snapshot


def value(monitor: Monitor, **keys: str) -> float:
    metadata = {"threshold": "70", "scope": "node", "windowStatistic": "last", **keys}
    return monitor.evaluate(parse_trigger(metadata)).metric_value()


def test_an_energy_counter_that_stands_still_is_no_power(tree: Tree) -> None:
    tree.card(FIRST)
    key = (FIRST, "energy_rate_watts")
    with monitored(tree) as monitor:
        snapshot = wait_for(
            monitor, lambda s: key in s.failures and "stands still" in s.failures[key].detail
        )
        assert snapshot.failures[key].reason is Reason.NO_PROGRESS
        assert key not in snapshot.samples
        assert snapshot.value(FIRST, "power_watts") == 300


def test_a_trigger_on_what_fails_and_on_what_works(tree: Tree) -> None:
    tree.card(FIRST).write("gpu_busy_percent", "N/A")
    with monitored(tree) as monitor:
        trigger = parse_trigger(
            {"metric": "utilization_percent", "threshold": "70", "scope": "node"}
        )
        assert isinstance(monitor.evaluate(trigger).value, NoDataError)
        share = value(monitor, metric="memory_used_percent", vendor="amd")
        assert round(share, 2) == round(100 * 40 / 192, 2)


def test_partitions_count_and_not_their_card(tree: Tree) -> None:
    card = tree.card(FIRST)
    card.table(**{**TABLE, "xcp_stats": [{"gfx_busy_inst": [80]}, {"gfx_busy_inst": [20]}]})
    tree.split(card, "DPX", 2)
    tree.card(SECOND, gpu_busy_percent=10)
    with monitored(tree) as monitor:
        assert value(monitor, metric="utilization_percent") == 80 + 20 + 10
        assert value(monitor, metric="power_watts") == 600  # of the cards, each once


def test_the_hook_costs_no_library_and_prints_nothing(tmp_path: Path) -> None:
    """A node without AMD hardware, with a binding that would explode."""
    (tmp_path / "amdsmi").mkdir()
    (tmp_path / "amdsmi/__init__.py").write_text("print('noise')\nraise KeyError('no')\n")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from accelscale.plugins import load_plugins\n"
        "backend = load_plugins().backends['amd'].backend(Path(sys.argv[1]))\n"
        "probe = backend.probe()\n"
        "assert not probe.viable and 'no AMD GPU' in probe.reason, probe\n"
        "assert 'amdsmi' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

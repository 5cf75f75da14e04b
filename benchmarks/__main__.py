"""Run all benchmarks, or those named."""

from __future__ import annotations

import sys

from benchmarks import calls, collection, fleet, footprint, freshness, plugins, replay, startup

BENCHMARKS = {
    "calls": calls.run,
    "collection": collection.run,
    "fleet": fleet.run,
    "footprint": footprint.run,
    "freshness": freshness.run,
    "plugins": plugins.run,
    "replay": replay.run,
    "startup": startup.run,
}

unknown = set(sys.argv[1:]) - set(BENCHMARKS)
if unknown:
    sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
for name in sys.argv[1:] or BENCHMARKS:
    BENCHMARKS[name]()

"""How fast the simulator is: packet receptions a second on one core, with trace and audit.

    .venv/bin/python bench/simulator.py [--json]

Five nodes under several loads. Times are processor time, the best of several short runs. Machines are noisy
and interpreters differ, so each figure is also given as a ratio to an empty loop measured in the same run:
how many iterations of ``x += i`` a reception costs. Compare ratios, not seconds.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from ordercast.audit.properties import audit
from ordercast.catalogue import LAB_TOTEM
from ordercast.sim.network import preset
from ordercast.sim.workload import Workload, drive
from ordercast.sim.world import World
from ordercast.trace.writer import TraceWriter

LOADS = {
    "lan, all ready to send 1000 bytes": (
        "lan",
        Workload(arrivals="saturating", size=1000, safe=0.2),
        60_000,
    ),
    "lan, 3000 messages/s of 1000 bytes": ("lan", Workload(rate=3000, size=1000, safe=0.2), 400_000),
    "lan, 200 messages/s of 1000 bytes": ("lan", Workload(rate=200, size=1000, safe=0.2), 1_000_000),
    "ethernet10, 200 messages/s of 1000 bytes": ("ethernet10", Workload(rate=200, size=1000), 5_000_000),
}
RUNS = 8


def loop_us(iterations: int = 300_000) -> float:
    """Microseconds that one iteration of an empty loop takes now."""
    began = time.process_time()
    x = 0
    for i in range(iterations):
        x += i
    return (time.process_time() - began) / iterations * 1e6


def measure(network: str, load: Workload, until_us: int) -> dict[str, float]:
    """One run: microseconds a reception, by part, and the ratio to the loop."""
    before_us = loop_us()
    world = World(LAB_TOTEM.make({}), (1, 2, 3, 4, 5), preset(network), seed=7)
    drive(world, load)
    marks = [time.process_time()]
    world.start()
    world.run_until(until_us)
    marks.append(time.process_time())
    with tempfile.TemporaryDirectory() as directory, TraceWriter(Path(directory), "bench") as trace:
        trace.write(world.rows)
    marks.append(time.process_time())
    assert audit(world.rows).clean
    marks.append(time.process_time())
    parts = [(end - begin) / world.receptions * 1e6 for begin, end in pairwise(marks)]
    return {
        "simulate_us": parts[0],
        "write_us": parts[1],
        "audit_us": parts[2],
        "receptions_per_s": 1e6 / sum(parts),
        "loops_per_reception": sum(parts) / ((before_us + loop_us()) / 2),
    }


def main() -> None:
    """Measure every load and print the best runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    gc.disable()
    figures = {}
    for name, load in LOADS.items():
        runs = [measure(*load) for _ in range(RUNS)]
        figures[name] = max(runs, key=lambda run: run["receptions_per_s"]) | {
            "loops_per_reception": min(run["loops_per_reception"] for run in runs)
        }
    if as_json:
        print(json.dumps(figures))
        return
    for name, best in figures.items():
        print(
            f"{name}: {best['receptions_per_s']:,.0f} receptions/s; "
            f"a reception {best['simulate_us']:.1f} µs, "
            f"its trace {best['write_us']:.1f}, its audit {best['audit_us']:.1f}; "
            f"{best['loops_per_reception']:.0f} loops"
        )


if __name__ == "__main__":
    main()

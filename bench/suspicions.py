"""What a slow member costs: outage and wrongly killed members, by how long a member is paused (004 §4.3.5).

    .venv/bin/python bench/suspicions.py [--json] [--seeds 10] [--detector attempts] [--loss 0.1]

Five simulated nodes under load; one of them, each in turn, is paused and goes on. The same faults for RBP
(its Reformation), for CM (a view change by consensus, nothing else), for iRBP (token lists inside views) and
for primary-backup (rotating coordinators).
`--detector` is how they suspect each other (the setting), `--loss` the share of packets that are lost.
The *outage* is the longest time for which a member that was not paused delivered nothing; a member that was
paused and had to halt for it was *killed*. Virtual time: the figures are the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable
from typing import NamedTuple, get_args

import msgspec
from rich.console import Console
from rich.table import Table

from ordercast.catalogue import lab_protocol
from ordercast.core.identity import NodeId
from ordercast.sim.faults import At, Pause, Resume, schedule
from ordercast.sim.network import preset
from ordercast.sim.workload import Workload, drive
from ordercast.trace.schema import Row
from ordercast.viewsync.config import Detection

LAB_PROTOCOLS = {
    "rbp": "RBP",
    "cm": "view change alone",
    "irbp": "iRBP",
    "primary-backup": "primary-backup",
}
NODES = (1, 2, 3, 4, 5)
AGGRESSIVE_US, CONSERVATIVE_US = 60_000, 400_000
PAUSES_MS = (30, 80, 150, 250, 350, 600)
PAUSE_AT_US, UNTIL_US = 1_000_000, 3_000_000


class Outcome(NamedTuple):
    """What one run came to."""

    outage_us: int
    killed: int


def run(name: str, node: NodeId, pause_ms: int, seed: int, detector: str, loss: float) -> Outcome:
    """One run, in which one node is paused once."""
    settings: dict[str, object] = {
        "detector": detector,
        "heartbeat_us": 20_000,
        "aggressive_us": AGGRESSIVE_US,
        "conservative_us": CONSERVATIVE_US,
        "silence_us": 10_000,
    }
    world = lab_protocol(name).world(settings, NODES, msgspec.structs.replace(preset("lan"), loss=loss), seed)
    at_us = PAUSE_AT_US + 1_700 * seed
    schedule(world, [At(at_us, Pause(node)), At(at_us + pause_ms * 1_000, Resume(node))])
    drive(world, Workload(rate=400.0, size=200, start_us=300_000))
    world.start()
    world.run_until(UNTIL_US)
    killed = sum(row[0] == node and row[4] == "halt" for row in world.rows)
    return Outcome(longest_gap(world.rows, node, at_us), killed)


def longest_gap(rows: Iterable[Row], paused: NodeId, since_us: int) -> int:
    """The longest time without a delivery at a member that was not paused."""
    last: dict[NodeId, int] = {}
    longest = 0
    for row in rows:
        node, time_us = row[0], row[3]
        if row[4] == "deliver" and node != paused and time_us >= since_us:
            longest = max(longest, time_us - last.get(node, since_us))
            last[node] = time_us
    return longest


def measure(seeds: int, detector: str, loss: float) -> list[dict[str, float | str | int]]:
    """All runs, summed up by protocol and length of the pause."""
    rows: list[dict[str, float | str | int]] = []
    for name in LAB_PROTOCOLS:
        for pause_ms in PAUSES_MS:
            outcomes = [
                run(name, NODES[seed % len(NODES)], pause_ms, seed, detector, loss) for seed in range(seeds)
            ]
            rows.append(
                {
                    "protocol": name,
                    "pause_ms": pause_ms,
                    "runs": len(outcomes),
                    "outage_ms": statistics.median(outcome.outage_us for outcome in outcomes) / 1_000,
                    "worst_outage_ms": max(outcome.outage_us for outcome in outcomes) / 1_000,
                    "killed": sum(outcome.killed for outcome in outcomes),
                }
            )
    return rows


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10, help="runs for each protocol and length")
    parser.add_argument("--detector", choices=get_args(Detection), default="heartbeats", help="the setting")
    parser.add_argument("--loss", type=float, default=0.0, help="share of the packets that are lost")
    parser.add_argument("--json", action="store_true", help="for machines")
    options = parser.parse_args()
    rows = measure(options.seeds, options.detector, options.loss)
    if options.json:
        print(json.dumps({"aggressive_us": AGGRESSIVE_US, "conservative_us": CONSERVATIVE_US, "rows": rows}))
        return
    table = Table(title=f"One of {len(NODES)} members paused once, {options.seeds} runs each")
    table.add_column("paused for")
    for title in LAB_PROTOCOLS.values():
        table.add_column(f"{title}: outage (worst)", justify="right")
        table.add_column("killed", justify="right")
    for pause_ms in PAUSES_MS:
        cells: list[str] = []
        for name in LAB_PROTOCOLS:
            row = next(row for row in rows if (row["protocol"], row["pause_ms"]) == (name, pause_ms))
            cells += [f"{row['outage_ms']:.0f} ms ({row['worst_outage_ms']:.0f})", str(row["killed"])]
        table.add_row(f"{pause_ms} ms", *cells)
    Console().print(table)
    print(
        f"aggressive timeout {AGGRESSIVE_US // 1000} ms, conservative timeout {CONSERVATIVE_US // 1000} ms; "
        "virtual time"
    )


if __name__ == "__main__":
    main()

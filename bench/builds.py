"""Whether the compiled build does what the pure one does, and how much faster it is: seed by seed.

    make compiled
    .venv/bin/python bench/builds.py --seeds 500 [--protocol totem] [--compiled DIR]

Fuzzed runs of each protocol, judged by the auditor, in both builds: the pure one from `src`, and the compiled
one that is installed, or is in DIR. Each seed is run twice, with packets in its trace and without. The
SHA-256 of all rows have to be equal; the processor time is that of the runs without. Builds take turns in
chunks of seeds, so that whatever else the machine does hits both: believe the ratio, not the seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

SRC = Path(__file__).parent.parent / "src"
CHUNK = 20
"""Seeds that one build runs before it is the other's turn."""


def seed_lines(protocol: str, seeds: range) -> Iterator[str]:
    """Of each seed, as JSON: two hashes, and seconds of processor time. The first line names the build."""
    from ordercast.catalogue import fuzzed_protocol
    from ordercast.core.build import build
    from ordercast.sim.fuzz import plan, run

    of = fuzzed_protocol(protocol)
    run(of, plan(of, seeds.start, of.nodes))  # what is loaded and made once
    yield json.dumps(build())
    for seed in seeds:
        began = time.process_time()
        _, world = run(of, plan(of, seed, of.nodes))
        took_s = time.process_time() - began
        hashes = []
        for rows in (world.rows, run(of, plan(of, seed, of.nodes), packets=True)[1].rows):
            hashes.append(hashlib.sha256(msgspec.json.encode(rows)).hexdigest())
        yield json.dumps([hashes, took_s])


def run_chunk(build: str, where: str | None, protocol: str, seeds: range) -> list[tuple[list[str], float]]:
    """The same from another process, which has the package in `where`; None: the one that is installed."""
    which = ("--only", protocol, "--from", str(seeds.start), "--seeds", str(len(seeds)))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if where is not None:
        environment["PYTHONPATH"] = where
    words = [sys.executable, __file__, *which]
    done = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found, *lines = map(json.loads, done.stdout.splitlines())
    if found != build:
        sys.exit(f"what is in {where or 'this environment'} is {found}, not {build}: make compiled")
    return [(hashes, took_s) for hashes, took_s in lines]


def compare(protocol: str, first: int, seeds: int, compiled: str | None) -> int:
    """Run the seeds of a protocol in both builds and print what came of it; how many seeds differ."""
    differing: list[int] = []
    pure_s = compiled_s = 0.0
    for start in range(first, first + seeds, CHUNK):
        chunk = range(start, min(start + CHUNK, first + seeds))
        ours = run_chunk("pure", str(SRC), protocol, chunk)
        theirs = run_chunk("compiled", compiled, protocol, chunk)
        for seed, (one, one_s), (other, other_s) in zip(chunk, ours, theirs, strict=True):
            pure_s += one_s
            compiled_s += other_s
            if one != other:
                differing.append(seed)
    print(
        f"{protocol}: {seeds} seeds, {len(differing)} differ {differing[:5] or ''}; "
        f"{seeds / pure_s:.1f} seeds/s pure, {seeds / compiled_s:.1f} compiled: "
        f"{pure_s / compiled_s:.2f} times as many",
        flush=True,
    )
    return len(differing)


def main() -> int:
    """Compare the builds, protocol by protocol."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100, help="of each protocol")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--protocol", action="append", help="this one; may be repeated; else all")
    parser.add_argument("--compiled", metavar="DIR", help="where the compiled package is, if not installed")
    parser.add_argument("--only", metavar="PROTOCOL", help="run these seeds here, and print lines")
    arguments = parser.parse_args()
    if arguments.only:
        for line in seed_lines(arguments.only, range(arguments.first, arguments.first + arguments.seeds)):
            print(line)
        return 0
    from ordercast.catalogue import LAB_PROTOCOLS, LAB_RINGS

    differing = 0
    for protocol in arguments.protocol or [*LAB_PROTOCOLS, LAB_RINGS.name]:
        differing += compare(protocol, arguments.first, arguments.seeds, arguments.compiled)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

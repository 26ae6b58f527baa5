"""What traces hash to: whether a change that is meant to change nothing changes nothing.

`trace_hashes.json` holds, for each protocol, the hash of the trace of each of the first seeds. A test
compares a few of them, ``python tests/sim/trace_hashes.py`` all. If behaviour was changed on purpose,
``--write`` makes the list anew, and the commit says which defect it mended.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import msgspec

from ordercast.catalogue import LAB_PROTOCOLS, LAB_RINGS, lab_protocol
from ordercast.sim.fuzz import plan, run
from ordercast.trace.columns import CHECKSUM, TIMESTAMP

SEEDS = 200
"""Seeds of each protocol in the list."""
SEEDS_OF_RINGS = 12
"""And of rings, which take ten times as long."""
FILE = Path(__file__).with_suffix(".json")


def trace_hash(protocol: str, seed: int) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of all rows of a fuzzed run, packets included.

    Columns that came later and say nothing are left out: hashes from before they came still hold.
    """
    of = lab_protocol(protocol)
    _, world = run(of, plan(of, seed, of.nodes), packets=True)
    digest = hashlib.sha256()
    for row in world.rows:
        digest.update(msgspec.json.encode(row[: TIMESTAMP if row[TIMESTAMP] is None else CHECKSUM]))
    return digest.hexdigest()[:16]


def seeds_of() -> dict[str, int]:
    """How many hashes the list has of each protocol."""
    return {**dict.fromkeys(LAB_PROTOCOLS, SEEDS), LAB_RINGS.name: SEEDS_OF_RINGS}


def recorded() -> dict[str, list[str]]:
    """The hashes in the file, by protocol; the place in the list is the seed."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, list[str]])


def main() -> int:
    """Compare all hashes, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="make the list anew")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds of each protocol, at most")
    parser.add_argument("--protocol", choices=sorted(seeds_of()), help="this one alone")
    arguments = parser.parse_args()
    found: dict[str, list[str]] = {}
    for name, seeds in seeds_of().items():
        if arguments.protocol in (None, name):
            found[name] = [trace_hash(name, seed) for seed in range(min(seeds, arguments.seeds))]
            print(f"{name}: {len(found[name])} seeds", file=sys.stderr)
    if arguments.write:
        others = recorded() if arguments.protocol else {}
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(others | found), indent=1) + b"\n")
        return 0
    before = recorded()
    other = [
        (name, seed)
        for name, hashes in found.items()
        for seed, value in enumerate(hashes)
        if value != before[name][seed]
    ]
    for name, seed in other:
        print(f"{name}, seed {seed}: another trace")
    print(f"{sum(map(len, found.values()))} traces compared, {len(other)} differ")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())

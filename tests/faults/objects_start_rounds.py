"""Kills processes in the middle of the very first start of a group, and of the transfer of a state.

    .venv/bin/python tests/faults/objects_start_rounds.py DIR [--rounds 20] [--seed 1] [--protocol totem]

Each round has a group of its own. Processes kill themselves at one of the changes that they make to the
directory of the object, or at a moment of the transfer: the one that needs the state, or the one that gives
it. Then they start again, and everything must be there. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from group import Member, wait_until
from objects_group import NODES, Objects
from timed_rounds import timed_rounds

FIRST_WRITES = 14
"""So many changes of its directory a node makes when it begins, about."""
VALUE = "x" * 4000
STATE_KEYS = 300
"""Of a state that is sent in several pieces."""
TAKING = ("state transfer begins", "state transfer ends")
GIVING = "state half sent"


class Campaign:
    """The rounds."""

    def __init__(self, directory: Path, protocol: str, seed: int) -> None:
        self.directory = directory
        self.protocol = protocol
        self.chance = random.Random(f"starts/{seed}")
        self.counts: Counter[str] = Counter()

    def _died(self, member: Member, what: str) -> None:
        """Wait until it has killed itself, or stands at a place where it does not."""
        done = wait_until(lambda: member.gone or member.said("ready"), f"{what}: see {member.log}")
        self.counts[f"{what}: {'killed' if done is True else 'did not come to it'}"] += 1

    def _rows(self, group: Objects, node: int, count: int, value: str) -> dict[str, str]:
        rows = {f"{node}-{number}": value for number in range(count)}
        group.members[node].order("write", rows=rows)
        return rows

    def round(self, number: int) -> None:
        """A first start, then the transfer of a state."""
        directory = self.directory / str(number)
        with Objects(directory, protocol=self.protocol, clients=0) as group:
            self.first_start(group)
            self.transfer(group)
            group.check_logs()
        shutil.rmtree(directory)

    def first_start(self, group: Objects) -> None:
        """All nodes begin for the first time, some are killed meanwhile, and begin again."""
        chance = self.chance
        some = chance.sample(NODES, chance.choice((1, 1, 2, 3)))
        for node in NODES:
            at = chance.randint(1, FIRST_WRITES) if node in some else 0
            group.start(node, die_at_write=at)
        ends = time.monotonic() + 20
        while time.monotonic() < ends and not all(
            group.members[node].gone or group.members[node].said("ready") for node in some
        ):
            time.sleep(0.05)  # who waits for one that has been killed waits for long
        for node in some:
            self.counts["first start: killed" if group.members[node].gone else "first start: not killed"] += 1
        group.kill(*(NODES if chance.random() < 0.5 else some))
        for node in NODES:
            if group.members[node].gone:
                group.start(node)
        assert not group.dump(*NODES), "nobody wrote anything"

    def transfer(self, group: Objects) -> None:
        """A node has lost its disk and gets the state; it is killed meanwhile, or the one that gives it."""
        chance = self.chance
        x, y, z = chance.sample(NODES, 3)
        truth = self._rows(group, y, STATE_KEYS, VALUE)
        group.kill(x)
        truth |= self._rows(group, z, 5, "while it was away")
        shutil.rmtree(group.durable(x))
        kind = chance.choice(("taker's moment", "taker's disk", "giver"))
        if kind == "taker's moment":
            self._died(group.start(x, die_at=chance.choice(TAKING)), kind)
        elif kind == "taker's disk":
            self._died(group.start(x, die_at_write=chance.randint(1, 30)), kind)
        else:
            group.kill(y)
            group.start(y, die_at=GIVING)
            group.ready(y)
            group.kill(z)
            group.start(z, die_at=GIVING)
            group.ready(z)
            group.start(x)
            wait_until(
                lambda: any(group.members[node].gone for node in (y, z)) or group.members[x].said("ready"),
                "who gives the state is killed",
            )
            gone = [node for node in (y, z) if group.members[node].gone]
            self.counts[f"{kind}: {'killed' if gone else 'did not come to it'}"] += 1
            group.kill(y, z)
            for node in (y, z):
                group.start(node)
        group.kill(x)
        group.start(x)
        self.check(group, truth, x, y, z)
        # all of it is on the disk of x
        group.kill(y)
        truth |= self._rows(group, x, 5, "after that")
        group.kill(x, z)
        group.start(x)
        group.start(y)
        self.check(group, truth, x, y)

    def check(self, group: Objects, truth: dict[str, str], *nodes: int) -> None:
        """These hold what was answered."""
        found = {key: value for key, (value, _) in group.dump(*nodes).items()}
        assert found == truth, f"{len(found)} keys and not {len(truth)}: {found.keys() ^ truth.keys()}"

    def run(self, rounds: int) -> dict[str, Any]:
        begun = time.monotonic()
        for number in timed_rounds(rounds, told_each=5):
            self.round(number)
        return {
            "rounds": rounds,
            "seconds": round(time.monotonic() - begun),
            **dict(sorted(self.counts.items())),
        }


def main() -> int:
    """Run it, and print what came of it."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    words.add_argument("directory", type=Path)
    words.add_argument("--rounds", type=int, default=20)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--protocol", choices=("totem", "total"), default="totem")
    given = words.parse_args()
    print(json.dumps(Campaign(given.directory, given.protocol, given.seed).run(given.rounds), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

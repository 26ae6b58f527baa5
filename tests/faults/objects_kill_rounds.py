"""Kills all nodes of a group at once, again and again, and looks whether what was answered is there.

    .venv/bin/python tests/faults/objects_kill_rounds.py DIR [--rounds 100] [--seed 1] [--protocol totem]

Three processes have a map on disk each, with `level="majority-disk"`. Clients in them write; at a random
moment all are killed with ``kill -9``, also while they start. Then they start again, in any order, sometimes
two of them first and the third while clients write. Each time all replicas must be the same, and must hold
what was answered. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from objects_group import NODES, Books, Objects, check_revisions
from timed_rounds import timed_rounds


class Campaign:
    """The group, and the rounds."""

    def __init__(self, directory: Path, protocol: str, seed: int, rate: float) -> None:
        self.chance = random.Random(f"kills/{seed}")
        self.group = Objects(directory, protocol=protocol)
        self.books = Books()
        self.rate = rate
        self.counts: Counter[str] = Counter()
        self.any_majority = protocol == "totem"
        """Any majority of the voters goes on; else, one of those who were together last."""
        self.two_suffice = False
        """At the very first start all voters have to be there."""

    def round(self) -> None:
        """All start, clients write, all are killed."""
        chance, group = self.chance, self.group
        order = chance.sample(NODES, len(NODES))
        few = self.two_suffice and chance.random() < 0.4
        first = order[:2] if few else order
        for node in first:
            group.start(node)
        if chance.random() < 0.15:
            time.sleep(chance.uniform(0, 1.5))
            self.counts["killed while they start"] += 1
            self.two_suffice &= self.any_majority
        else:
            self.books.check(group.dump(*first))
            self.two_suffice = self.any_majority or not few
            for member in group.ready(*first):
                member.order("load", rate=self.rate)
            time.sleep(chance.uniform(0, 1.0))
            if len(first) < len(NODES):
                self.counts["two first"] += 1
                third = group.start(order[-1])
                if chance.random() < 0.6:
                    third.ready  # noqa: B018 - it is waited for
                    third.order("load", rate=self.rate)
                    self.counts["the third came under load"] += 1
                time.sleep(chance.uniform(0, 1.0))
        group.kill(*chance.sample(NODES, len(NODES)))
        noted = group.noted()
        check_revisions(noted)
        self.books.add(noted)

    def run(self, rounds: int, seconds: float) -> dict[str, Any]:
        begun, done = time.monotonic(), 0
        with self.group as group:
            for _ in timed_rounds(rounds, seconds, told_each=10):
                self.round()
                done += 1
            for node in NODES:
                group.start(node)
            rows = group.dump(*NODES)
            self.books.check(rows)
            group.check_logs()
        return {
            "rounds": done,
            "seconds": round(time.monotonic() - begun),
            "writes answered": self.books.answered,
            "keys": len(rows),
            **dict(sorted(self.counts.items())),
        }


def main() -> int:
    """Run it, and print what came of it."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("directory", type=Path)
    words.add_argument("--rounds", type=int, default=100)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--protocol", choices=("totem", "total"), default="totem")
    words.add_argument("--rate", type=float, default=20.0, help="writes a second of each of 12 clients")
    words.add_argument("--seconds", type=float, default=1e9, help="no round begins after so long")
    given = words.parse_args()
    logging.basicConfig(level=logging.WARNING)
    campaign = Campaign(given.directory, given.protocol, given.seed, given.rate)
    print(json.dumps(campaign.run(given.rounds, given.seconds), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

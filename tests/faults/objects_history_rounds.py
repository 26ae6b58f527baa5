"""Kills, stops and cuts off nodes of a group for minutes; judges what clients of its objects were answered.

    .venv/bin/python tests/faults/objects_history_rounds.py DIR [--minutes 5] [--seed 1] [--protocol totem]

Three processes in network namespaces of their own have a map on disk each, and locks. Clients in them read,
write, compare and set the same keys, and hold the same locks. Meanwhile processes are killed with ``kill -9``
and start again, with clocks that are wrong by hours; are stopped for seconds (SIGSTOP); and are cut off from
the others.

In the end everybody is whole again, reads everything, and all that was answered is judged: the histories of
each key and of each lock must be linearizable, each write has a later revision than all that were answered
before, and a resource that the locks protect refused nobody who held one. Needs root, for the namespaces.
Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from objects_group import NODES, Noted, Objects, Resource, await_members, check_revisions

from ordercast.measure.netns import Namespaces
from ordercast.testing import LOCK, MAP, Call, Undecided, linearizable


class Campaign:
    """The group, its faults, and what is judged."""

    def __init__(self, group: Objects, network: Namespaces | None, seed: int, rate: float) -> None:
        self.group = group
        self.network = network
        self.rate = rate
        self.chance = random.Random(f"histories/{seed}")
        self.counts: Counter[str] = Counter()
        self._ahead_s = dict.fromkeys(NODES, 0.0)
        self._latest_s = 0.0
        """No clock was ever further ahead."""
        self._split = False
        self._paused: set[int] = set()

    # --- faults ---------------------------------------------------------------------------------

    def _start(self, *nodes: int) -> None:
        for node in nodes:
            if self.chance.random() < 0.5:
                self._ahead_s[node] = self.chance.choice((0.0, -86_400.0, 7_200.0, self.chance.gauss(0, 60)))
                self.counts["clocks set"] += 1
            self._latest_s = max(self._latest_s, self._ahead_s[node])
            self.group.start(node, ahead_s=self._ahead_s[node])

    def _whole(self) -> None:
        """All reach all, all run, and clients call at all of them."""
        if self.network is not None and self._split:
            self.network.heal()
            self._split = False
        for node in sorted(self._paused):
            self.group.members[node].go_on()
        self._paused.clear()
        dead = [node for node in NODES if self.group.members[node].gone]
        self._start(*dead)
        for member in self.group.ready(*NODES):
            member.order("load", rate=self.rate)

    def kill(self) -> None:
        """One, two or all processes."""
        some = self.chance.sample(NODES, self.chance.choice((1, 1, 1, 2, 3)))
        self.group.kill(*some)
        self.counts[f"killed, {len(some)} at once"] += 1
        time.sleep(self.chance.uniform(0, 1.5))
        if len(some) == len(NODES):
            # locks are in memory: of their tokens nothing is left but that they follow the clocks
            self._ahead_s = dict.fromkeys(NODES, self._latest_s + 1)
            for node in NODES:
                self.group.start(node, ahead_s=self._ahead_s[node])
        elif self.chance.random() < 0.5:
            self._start(*(node for node in some if self.chance.random() < 0.7))

    def pause(self) -> None:
        """One or two processes stand still."""
        for node in self.chance.sample(NODES, self.chance.choice((1, 1, 2))):
            if not self.group.members[node].gone and node not in self._paused:
                self.group.members[node].stop()
                self._paused.add(node)
                self.counts["stopped"] += 1
        time.sleep(self.chance.choice((0.2, 1.0, 3.0, 5.0)) * self.chance.random())

    def split(self) -> None:
        """One is cut off, or all from each other."""
        if self.network is None:
            return
        sides: list[set[int]] = [{node} for node in NODES]
        if self.chance.random() < 0.8:
            one = self.chance.choice(NODES)
            sides = [{one}, set(NODES) - {one}]
        self.network.split(*sides)
        self._split = True
        self.counts["partitions"] += 1
        time.sleep(self.chance.uniform(0, 4))

    # --- all of it ------------------------------------------------------------------------------

    def run(self, seconds: float) -> list[Noted]:
        """Run the group under faults for this many seconds; all that was called."""
        begun = time.monotonic()
        self._start(*NODES)
        told = 0
        faults: tuple[Callable[[], None], ...] = (self.kill, self.pause, self.split)
        while (passed := time.monotonic() - begun) < seconds:
            self._whole()
            time.sleep(self.chance.uniform(0.2, 2))
            for _ in range(self.chance.choice((1, 1, 2))):
                self.chance.choice(faults)()
            if passed > told + 60:
                told += 60
                print(f"{passed:.0f} s: {dict(self.counts)}", file=sys.stderr, flush=True)
        self._whole()
        members = self.group.ready(*NODES)
        await_members(members)
        for member in members:
            member.order("quiet")
        self.counts["seconds"] = round(time.monotonic() - begun)
        asked = time.monotonic()
        rows = self.group.dump(*NODES)
        reports = [member.report() for member in members]
        refused = [each for report in reports for each in report["refused"]]
        assert not refused, f"who held a lock was refused: {refused[:3]}"
        self.group.kill(*NODES)
        noted = self.group.noted()
        keys = {key for key, call in noted if call.name in ("put", "compare_and_set", "delete")}
        last = [
            Noted(
                key,
                Call(
                    client="end",
                    name="get",
                    args=(key,),
                    began=asked,
                    ended=time.monotonic(),
                    result=rows[key][0] if key in rows else None,
                ),
            )
            for key in sorted(keys)
        ]
        assert rows.keys() <= keys, f"nobody wrote {sorted(rows.keys() - keys)[:3]}"
        return noted + last


def judge(noted: list[Noted], counts: Counter[str]) -> None:
    """Whether all of it can have happened, one after the other."""
    check_revisions(noted)
    parts: dict[str, list[Call]] = defaultdict(list)
    for part, call in noted:
        parts[part].append(call)
    for part, calls in sorted(parts.items()):
        model = LOCK if part.startswith("lock-") else MAP
        try:
            linearizable(calls, model)
        except Undecided:
            counts[f"{model.name}s: histories that took too long to judge"] += 1
            continue
        answered = [call for call in calls if call.ended is not None]
        counts[f"{model.name}s judged"] += 1
        counts[f"{model.name}: calls that were answered"] += len(answered)
        counts[f"{model.name}: calls without an answer"] += len(calls) - len(answered)


def main() -> int:
    """Run it, and print what came of it."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    words.add_argument("directory", type=Path)
    words.add_argument("--minutes", type=float, default=5.0)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--protocol", choices=("totem", "total"), default="totem")
    words.add_argument("--rate", type=float, default=8.0, help="calls a second of each of 12 clients")
    given = words.parse_args()
    found = under_faults(given.directory, given.protocol, given.seed, given.minutes * 60, given.rate)
    print(json.dumps(found, indent=2))
    return 0


def under_faults(
    directory: Path, protocol: str, seed: int, seconds: float, rate: float = 8.0
) -> dict[str, int]:
    """Run a group in network namespaces, under faults, and judge its history."""
    directory.mkdir(parents=True, exist_ok=True)
    resource = Resource(directory / "resource")
    jobs: dict[str, Any] = {"clients": 4, "lockers": 2, "resource": str(resource.path), "timeout": 8.0}
    with Namespaces(len(NODES)) as network, Objects(directory, network, protocol=protocol, **jobs) as group:
        campaign = Campaign(group, network, seed, rate)
        noted = campaign.run(seconds)
        group.check_logs()
    resource.close()
    counts = campaign.counts
    judge(noted, counts)
    counts["uses of the resource, accepted"] = len(resource.accepted)
    counts["uses of the resource, refused"] = resource.refused
    return dict(counts)


if __name__ == "__main__":
    sys.exit(main())

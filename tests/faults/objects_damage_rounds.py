"""Damages what one node of a group has of an object on disk, again and again, and looks what the group makes
of it.

    .venv/bin/python tests/faults/objects_damage_rounds.py [--rounds 1000] [--seed 1] [--protocol totem]
        [--real DIR]

Three nodes have a map on disk each. In each round one of them is down while its files are damaged: bits are
flipped, bytes zeroed, files cut, removed, exchanged, or put back as they once were. Then it starts again. If
something was lost, a sentence must say so and name a file; all replicas must hold what was answered. Whether
the disk is whole again shows next: it and another node write, and a third does not. Then all start again, but
the other one does so without its disk, or not at all.

Nodes are in this process, in virtual time; with ``--real`` they are processes, with files on disk. Prints one
JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "log"))

from damage import KINDS, damage
from objects_group import NODES, Objects
from objects_worker import NAME
from timed_rounds import timed_rounds

from ordercast import NoMajority
from ordercast.directory import LOCK
from ordercast.memory_directory import MemoryDirectory
from ordercast.objects.map import Map
from ordercast.replicated import disk
from ordercast.replicated.durable.files import ObjectFiles
from ordercast.replicated.durable.frames import Owner
from ordercast.replicated.durable.reading import Found, survey
from ordercast.testing import Cluster, run

KEYS = 40
LOG_BYTES, SEGMENT_BYTES = 6_000, 2_000
"""Small ones, so that there are snapshots and several segments."""
MORE = tuple(kind for kind in KINDS if kind not in ("older", "delete"))
"""Where something is damaged already. A directory without any file is that of a node that is new."""
AGAIN = "the state is taken from another replica"
IN_PART = "was damaged in part"


class Group(Protocol):
    """Three nodes with a map each."""

    async def begin(self, *nodes: int) -> None:
        """Start these."""

    async def ready(self, *nodes: int) -> None:
        """Wait until these have the map."""

    async def kill(self, *nodes: int) -> None:
        """End these at once."""

    async def write(self, node: int, rows: Mapping[str, str | None]) -> None:
        """Put at a node, or delete, and wait for the answers."""

    async def read(self, node: int) -> dict[str, str]:
        """What the map holds at a node."""

    def files(self, node: int) -> dict[str, bytes]:
        """What a node that is down has on disk."""

    def put_files(self, node: int, files: Mapping[str, bytes]) -> None:
        """Have it find these."""

    def said(self, node: int) -> list[str]:
        """Sentences of this life of a node that tell of damage."""


class Virtual:
    """Nodes in this process, in virtual time."""

    def __init__(self, protocol: str, seed: int) -> None:
        self._cluster = Cluster(3, seed=seed, protocol=protocol, voters=NODES)
        self._maps: dict[int, Map[str]] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._chance = random.Random(f"crashes/{seed}")
        self._sentences: list[str] = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self._sentences.append(record.getMessage())  # type: ignore[method-assign]
        logger = logging.getLogger("ordercast")
        logger.addHandler(handler)
        logger.propagate = False
        self._where = Path("objects")

    async def begin(self, *nodes: int) -> None:
        for node in nodes:
            if node in self._starting:
                self._cluster.nodes[node - 1] = self._cluster.node(node)
            self._sentences = [each for each in self._sentences if f"of node {node}/" not in each]
            self._starting[node] = asyncio.create_task(self._start(node))

    async def _start(self, id: int) -> None:
        node = self._cluster.nodes[id - 1]
        await node.start()
        while True:
            try:
                self._maps[id] = await node.replicate(Map(str), NAME, durable=self._where, timeout=60)
                return
            except NoMajority:
                await asyncio.sleep(0.1)

    async def ready(self, *nodes: int) -> None:
        await asyncio.gather(*(self._starting[node] for node in nodes))

    async def kill(self, *nodes: int) -> None:
        network = self._cluster.network
        running = [node for node in network.nodes if node not in nodes]
        network.partition(running, *({node} for node in nodes))
        for node in nodes:
            copy = self._directory(node).copy_as_after_a_crash(self._chance)
            self._cluster._directories[node, self._where / NAME] = copy
        await asyncio.gather(*(self._cluster.nodes[node - 1].stop() for node in nodes))
        network.heal()

    def _directory(self, node: int) -> MemoryDirectory:
        return self._cluster._directories[node, self._where / NAME]

    async def write(self, node: int, rows: Mapping[str, str | None]) -> None:
        await write_all(self._maps[node], rows)

    async def read(self, node: int) -> dict[str, str]:
        await self._maps[node].sync()
        return dict(self._maps[node].local)

    def files(self, node: int) -> dict[str, bytes]:
        directory = self._directory(node)
        return {name: bytes(directory.content(name)) for name in directory.names()}

    def put_files(self, node: int, files: Mapping[str, bytes]) -> None:
        made = memory(files, f"objects of node {node}")
        self._cluster._directories[node, self._where / NAME] = made

    def said(self, node: int) -> list[str]:
        return [each for each in self._sentences if f"of node {node}/" in each]

    async def stop(self) -> None:
        await self._cluster.stop()


async def write_all(target: Map[str], rows: Mapping[str, str | None]) -> None:
    """All at once."""
    await asyncio.gather(
        *(target.delete(key) if value is None else target.put(key, value) for key, value in rows.items())
    )


class Real:
    """Processes, with files on disk."""

    def __init__(self, protocol: str, directory: Path) -> None:
        self._group = Objects(
            directory, protocol=protocol, clients=0, log_bytes=LOG_BYTES, segment_bytes=SEGMENT_BYTES
        )

    async def begin(self, *nodes: int) -> None:
        for node in nodes:
            self._group.start(node)

    async def ready(self, *nodes: int) -> None:
        self._group.ready(*nodes)

    async def kill(self, *nodes: int) -> None:
        self._group.kill(*nodes)

    async def write(self, node: int, rows: Mapping[str, str | None]) -> None:
        self._group.members[node].order("write", rows=rows)

    async def read(self, node: int) -> dict[str, str]:
        return {key: value for key, (value, _) in self._group.dump(node).items()}

    def files(self, node: int) -> dict[str, bytes]:
        return {
            path.name: path.read_bytes() for path in self._group.durable(node).iterdir() if path.name != LOCK
        }

    def put_files(self, node: int, files: Mapping[str, bytes]) -> None:
        place = self._group.durable(node)
        shutil.rmtree(place)
        place.mkdir()
        for name, data in files.items():
            (place / name).write_bytes(data)

    def said(self, node: int) -> list[str]:
        lines = self._group.members[node].log.read_text().splitlines()
        return [line for line in lines if AGAIN in line or IN_PART in line]

    async def stop(self) -> None:
        self._group.check_logs()
        self._group.__exit__(None, None, None)


def memory(files: Mapping[str, bytes], where: str) -> MemoryDirectory:
    """A directory with these files, which are synced."""
    made = MemoryDirectory(where)
    for name, data in files.items():
        made.write(name, 0, data)
        made.sync(name)
    made.sync_names()
    return made


class OnDisk(NamedTuple):
    """What can be read of a node's files."""

    found: Found
    promised: int

    @property
    def history(self) -> tuple[Any, ...]:
        """What of the object is there."""
        return self.found.head, list(self.found.entries), self.found.snapshot


def on_disk(files: Mapping[str, bytes], node: int) -> OnDisk:
    """Read these files, and change nothing."""
    found = survey(memory(files, "copy"), Owner(NAME, node))
    return OnDisk(found, found.promised)


class Campaign:
    """The rounds."""

    def __init__(self, group: Group, protocol: str, seed: int) -> None:
        self.group = group
        self.any_majority = protocol == "totem"
        """Any majority of the voters goes on; else, one of those who went on last."""
        self.chance = random.Random(f"damages/{seed}")
        self.truth: dict[str, str] = {}
        self.older: dict[int, dict[str, bytes]] = {}
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.told_by_file = 0
        self.examples: list[str] = []
        self._values = 0

    async def write(self, *nodes: int) -> None:
        """Some of these nodes write, and are answered."""
        for _ in range(self.chance.randint(1, 3)):
            rows: dict[str, str | None] = {}
            for _ in range(self.chance.randint(1, 12)):
                self._values += 1
                key = f"key-{self.chance.randrange(KEYS)}"
                value = f"{self._values}|".ljust(self.chance.randrange(300), "x")
                rows[key] = None if self.chance.random() < 0.1 else value
            await self.group.write(self.chance.choice(nodes), rows)
            for key, new in rows.items():
                if new is None:
                    self.truth.pop(key, None)
                else:
                    self.truth[key] = new

    async def start(self, *nodes: int) -> None:
        """Start these, and wait until they have the map."""
        await self.group.begin(*nodes)
        await self.group.ready(*nodes)

    async def check(self, what: str, *nodes: int) -> None:
        """All of these hold what was answered."""
        for node in nodes:
            found = await self.group.read(node)
            wrong = sorted(
                key for key in found.keys() | self.truth.keys() if found.get(key) != self.truth.get(key)
            )
            assert not wrong, (
                f"{what}: node {node} holds {[found.get(key) for key in wrong[:3]]} and not "
                f"{[self.truth.get(key) for key in wrong[:3]]} at {wrong[:3]}"
            )

    async def round(self, number: int) -> None:
        chance, group = self.chance, self.group
        x, y, z = chance.sample(NODES, 3)
        await self.write(x, y, z)
        down = chance.choice(("it alone is", "all are", "all are, and one missed something"))
        what = f"round {number}, node {x}, {down} down"
        if down == "it alone is":
            await group.kill(x)
            if chance.random() < 0.5:
                await self.write(y, z)
            what += f": {self.damage(x)}"
            await group.begin(x)
        elif down == "all are":
            await group.kill(x, y, z)
            what += f": {self.damage(x)}"
            await group.begin(x, y, z)
        else:
            await group.kill(y)
            await self.write(x, z)
            await group.kill(x, z)
            what += f": {self.damage(x)}"
            await group.begin(x, y)
            await asyncio.sleep(chance.uniform(0, 2))  # enough for them to go on, which they must not
            await group.begin(z)
        await group.ready(x, y, z)
        await self.check(what, x, y, z)
        self.judge(what, x)
        # the disk of x is whole again: it is all that y gets what it missed from
        await group.kill(y)
        await self.write(x, z)
        await group.kill(x, z)
        if chance.random() < 0.2 or x not in self.older:
            self.older[x] = group.files(x)
        if self.any_majority and chance.random() < 0.5:
            await self.start(x, y)
            await self.check(f"{what}; then with node {y} alone", x, y)
            await self.start(z)
        else:
            group.put_files(z, {})
            await self.start(x, y, z)
        assert not group.said(x), f"{what}; it was not repaired: {group.said(x)}"
        await self.check(f"{what}; then with both", x, y, z)

    def damage(self, node: int) -> str:
        """Damage files of a node that is down; says how, and remembers what is to be told of it."""
        files = self.group.files(node)
        before = on_disk(files, node)
        assert before.found.damage is None, before.found.damage
        with tempfile.TemporaryDirectory() as place:
            mine, older = Path(place) / "mine", None
            unfold(files, mine)
            if node in self.older:
                older = Path(place) / "older"
                unfold(self.older[node], older)
            done = [damage(self.chance, mine, older)]
            while self.chance.random() < 0.2:
                done.append(damage(self.chance, mine, None, MORE))
            damaged = {path.name: path.read_bytes() for path in mine.iterdir()}
        for each in done:
            self.kinds[each.split()[0]] += 1
        after = on_disk(damaged, node)
        self._lost = after.found.damage is not None
        self._names = {name for name in {*files, *damaged} if any(name in each for each in done)}
        words = "; ".join(done)
        if not self._lost:
            assert after.history == before.history, f"node {node}: {words}: not noticed"
            if after.promised != before.promised:
                self.counts["an older promise, nothing of the object"] += 1
        self.group.put_files(node, damaged)
        return words

    def judge(self, what: str, node: int) -> None:
        """What the node said."""
        said = self.group.said(node)
        if self._lost:
            assert any(AGAIN in each for each in said), f"{what}: lost, and nobody is told: {said}"
            self.counts["lost, told and repaired"] += 1
            self.told_by_file += any(name in each for name in self._names for each in said)
            assert any(suffix in each for suffix in (".wal", ".state", "head") for each in said), (
                f"{what}: no file is named: {said}"
            )
        elif said:
            assert all(IN_PART in each for each in said), f"{what}: {said}"
            self.counts["told, and made up for by a copy"] += 1
        else:
            self.counts["without effect"] += 1
        if len(self.examples) < 12:
            self.examples.append(f"{what} -> {said[-1] if said else 'nothing'}")

    async def run(self, rounds: int, seconds: float) -> dict[str, Any]:
        begun = time.monotonic()
        await self.start(*NODES)
        done = 0
        for number in timed_rounds(rounds, seconds):
            await self.round(number)
            done += 1
        await self.check("in the end", *NODES)
        return {
            "rounds": done,
            "seconds": round(time.monotonic() - begun),
            "values written": self._values,
            **dict(sorted(self.counts.items())),
            "of the lost, the damaged file is named": self.told_by_file,
            "kinds": dict(sorted(self.kinds.items())),
            "examples": self.examples,
        }


def unfold(files: Mapping[str, bytes], place: Path) -> None:
    """Write these files to a directory."""
    place.mkdir()
    for name, data in files.items():
        (place / name).write_bytes(data)


def small_files() -> None:
    """Have snapshots written often, and segments be short."""
    disk.LOG_BYTES = LOG_BYTES
    defaults = ObjectFiles.__init__.__kwdefaults__
    assert defaults is not None
    defaults["segment_bytes"] = SEGMENT_BYTES


async def in_virtual_time(protocol: str, rounds: int, seed: int, seconds: float = 1e9) -> dict[str, Any]:
    """Rounds in this process."""
    group = Virtual(protocol, seed)
    found = await Campaign(group, protocol, seed).run(rounds, seconds)
    await group.stop()
    return found


async def in_processes(
    directory: Path, protocol: str, rounds: int, seed: int, seconds: float = 1e9
) -> dict[str, Any]:
    """Rounds with real processes and files."""
    group = Real(protocol, directory)
    try:
        return await Campaign(group, protocol, seed).run(rounds, seconds)
    finally:
        await group.stop()


def main(words: Sequence[str] | None = None) -> int:
    """Run it, and print what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--protocol", choices=("totem", "total"), default="totem")
    parser.add_argument("--real", type=Path, metavar="DIR", help="with processes, and their files in DIR")
    parser.add_argument("--seconds", type=float, default=1e9, help="no round begins after so long")
    given = parser.parse_args(words)
    if given.real is not None:
        found = asyncio.run(in_processes(given.real, given.protocol, given.rounds, given.seed, given.seconds))
    else:
        small_files()
        found = run(in_virtual_time(given.protocol, given.rounds, given.seed, given.seconds))
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

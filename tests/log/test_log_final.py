"""What a machine calls final is so, whatever fails: simulated groups, with faults, all protocols.

A node may be lost right after it has handed out what is final. So wherever it called something final, every
member of that configuration must have it at the same place, unless that member fails, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from hunts import rounds
from ordercast.catalogue import lab_protocol
from ordercast.core.contract import Effect, Event, Machine, Start
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.sim.fuzz import plan, run
from ordercast.sim.host import Host

Place = tuple[int, int]
Life = tuple[NodeId, int]


class Told(NamedTuple):
    """What the lives of a run did: by configuration, what was delivered in it; and what was called final."""

    members: dict[ConfigurationId, tuple[NodeId, ...]]
    delivered: dict[Life, dict[ConfigurationId, list[tuple[Place, Any]]]]
    ended: set[Life]
    final: dict[Life, dict[ConfigurationId, int]]
    set_back: set[Life]
    """Lives that found no disk, or not the newest state on it."""


class Watched:
    """A machine whose word on what is final is kept, as it is between two events."""

    def __init__(self, machine: Machine, node: NodeId, final: dict[Life, dict[ConfigurationId, int]]) -> None:
        self._machine = machine
        self._node = node
        self._final = final
        self._life = (node, -1)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        if isinstance(event, Start):
            self._life = (self._node, event.incarnation)
        else:
            self._note()
        return self._machine.handle(now_us, event)

    def _note(self) -> None:
        final = self._machine.final
        if final is not None:
            said = self._final[self._life]
            said[final[0]] = max(final[1], said.get(final[0], 0))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)


@contextmanager
def watched_disks() -> Iterator[set[Life]]:
    """Lives of simulated computers that do not find on the disk what was written last."""
    set_back: set[Life] = set()
    find_disk = Host.find_disk

    def watched(host: Host, kept: bool, writes_ago: int) -> None:
        newest = host.disk
        find_disk(host, kept, writes_ago)
        if host.disk != newest:
            set_back.add((host.node, host.incarnation + 1))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Host, "find_disk", watched)
        yield set_back


def lived(name: str, seed: int) -> Told:
    """A fuzzed run."""
    chosen = lab_protocol(name)
    final: dict[Life, dict[ConfigurationId, int]] = defaultdict(dict)

    def make(settings: Mapping[str, object]) -> Any:
        build = chosen.make(settings)

        def one(node: NodeId) -> Any:
            return Watched(build(node), node, final)

        return one

    watched = chosen._replace(make=make)
    with watched_disks() as set_back:
        result, world = run(watched, plan(watched, seed, (3, 5)))
    assert result.failed is None, result
    told = Told({}, defaultdict(lambda: defaultdict(list)), set(), final, set_back)
    for row in world.rows:
        life, event = (row[0], row[1]), row[4]
        here = None if row[5] is None or row[6] is None else ConfigurationId(row[5], row[6])
        if event == "install" and here is not None:
            told.members[here] = row[8] or ()
            told.delivered[life][here] = []
        elif event == "deliver" and here is not None:
            place: Any = (row[14], row[15])
            told.delivered[life][here].append((place, (row[9], row[10], row[11])))
        elif event in ("crash", "halt"):
            told.ended.add(life)
    return told


def check(told: Told) -> int:
    """Whether what was final stayed so; how many entries that was said of."""
    count = 0
    for life, said in told.final.items():
        for configuration, upto in said.items():
            mine = [entry for entry in told.delivered[life][configuration] if entry[0][0] <= upto]
            count += len(mine)
            for member in told.members[configuration]:
                others = [other for other in told.delivered if other[0] == member]
                there = [other for other in others if configuration in told.delivered[other]]
                if not there:
                    assert told.ended & set(others), f"{member} lives and never was in {configuration}"
                for other in there:
                    theirs = [e for e in told.delivered[other][configuration] if e[0][0] <= upto]
                    last = configuration == list(told.delivered[other])[-1]
                    failed = last and other in told.ended
                    expected = mine[: len(theirs)] if failed else mine
                    assert theirs == expected, f"{life} called {configuration}/{upto} final, {other} differs"
    return count


def positions_rise(told: Told) -> int:
    """Whether positions rise over all lives that found the disk of the one before; how many did.

    The number of a life that finds no disk, or an old state on it, may be lower: its log is refused then.
    """
    count = 0
    for node in {life[0] for life in told.delivered}:
        seen: list[tuple[ConfigurationId, Place]] = []
        for life in sorted(life for life in told.delivered if life[0] == node):
            if life in told.set_back:
                seen = []
            count += bool(seen)
            for configuration, entries in told.delivered[life].items():
                seen += [(configuration, (0, 0)), *((configuration, place) for place, _ in entries)]
            assert seen == sorted(set(seen)), f"positions of {node} do not rise"
    return count


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["totem", "total", "cm", "rbp", "irbp", "pinwheel", "dtp", "primary-backup"])
def test_what_is_final_is_with_every_member_that_does_not_fail(name: str) -> None:
    seeds = range(rounds(4, 40) if name == "totem" else rounds(2, 20))
    runs = [lived(name, seed) for seed in seeds]
    assert sum(map(check, runs)) > 200
    assert sum(map(positions_rise, runs)) > 1

"""Garbage at the ports, foreign and replayed datagrams: counted by reason, and nothing else happens.

With root they come from the members' own addresses, as an attacker on the network would send them; else from
a port of the test's own.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest
from garbage import datagrams, some, waits
from group import Cluster, Member, wait_until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire import MAY_SPOOF, Datagram, Ear, Forger, load

from ordercast.runtime import keys
from ordercast.runtime.links import GREETING_MAGIC

DATAGRAMS = int(os.environ.get("ORDERCAST_DATAGRAMS", "3000"))
"""Sent at each kind of group. The bar is 100,000 in all."""
BURST = 200
needs_root = pytest.mark.skipif(not MAY_SPOOF, reason="overhearing the wire and forging addresses needs root")
RECORDED = load("plain") + load("sealed")


def port(member: Member) -> int:
    return int(member.address.rpartition(":")[2])


class Siege:
    """A group under load, and somebody who sends at it."""

    def __init__(self, group: Cluster, sealed: bool) -> None:
        self.group = group
        self.members = group.start_all(3)
        self.sealed = sealed
        self.forger = Forger()
        self.sent = 0

    def ports(self) -> list[int]:
        return [port(member) + offset for member in self.members for offset in (0, 1)]

    def burst(self, target: Member, what: Sequence[Datagram], own: bool) -> None:
        """Send some at one member, and wait until it has counted those that have to be counted."""
        before = sum(target.drops.values())
        for datagram in what:
            self.forger.send(datagram, own)
        self.sent += len(what)
        if self.sealed or own or not MAY_SPOOF:
            surely = sum(1 for datagram in what if not waits(datagram.data) and not self.is_heard(datagram))
            wait_until(
                lambda: sum(target.drops.values()) >= before + surely,
                lambda: f"node {target.node} has counted {surely} more than {before}: {target.drops}",
            )
        else:
            target.report()  # it still answers

    def is_heard(self, datagram: Datagram) -> bool:
        """Whether it may be a greeting that a group without a key has to answer."""
        return not self.sealed and datagram.to % 2 == 0 and datagram.data.startswith(GREETING_MAGIC)

    def aim(self, chance: random.Random, data: bytes, target: Member) -> Datagram:
        other = chance.choice([member for member in self.members if member is not target])
        return Datagram(port(other) + chance.randrange(2), port(target) + chance.randrange(2), data)


@pytest.fixture(params=["sealed", "plain"])
def siege(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Siege]:
    sealed = request.param == "sealed"
    if sealed:
        keys.create(tmp_path / "key")
    with Cluster(tmp_path, rate=40.0, safe=0.2, key=str(tmp_path / "key") if sealed else None) as group:
        siege = Siege(group, sealed)
        yield siege
        print(f"sent {siege.sent}; drops at node 1: {group.members[1].drops}")
        group.conclude()
        siege.forger.close()


def test_garbage_is_counted(siege: Siege) -> None:
    chance = random.Random(1)
    for own in (False, True):
        for _ in range(max(1, DATAGRAMS // 2 // BURST)):
            target = chance.choice(siege.members)
            siege.burst(
                target, [siege.aim(chance, some(chance, RECORDED), target) for _ in range(BURST)], own
            )
    siege.group.await_progress()


def test_garbage_that_hypothesis_thinks_of_is_counted(siege: Siege) -> None:
    chance = random.Random(2)

    @settings(
        max_examples=150,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(st.lists(datagrams(RECORDED), min_size=1, max_size=20), st.booleans())
    def bombard(some: list[bytes], own: bool) -> None:
        target = chance.choice(siege.members)
        siege.burst(target, [siege.aim(chance, data, target) for data in some], own)

    bombard()
    siege.group.await_progress()


@needs_root
def test_replayed_datagrams_are_counted(siege: Siege) -> None:
    ear = Ear()
    heard = list(islice(ear.listen(siege.ports(), 3.0), 1000))
    ear.close()
    assert heard
    chance = random.Random(3)
    by_port = {port(member) + offset: member for member in siege.members for offset in (0, 1)}
    for _ in range(max(2, DATAGRAMS // BURST)):
        once = chance.choice(heard)
        target = by_port[once.to]
        mine = [datagram for datagram in heard if by_port[datagram.to] is target]
        again = chance.choices(mine, k=BURST // 2)
        moved = [
            Datagram(datagram.source, port(target) + datagram.to % 2, datagram.data)
            for datagram in chance.choices(heard, k=BURST // 2)
            if by_port.get(datagram.source) is not target and not datagram.data.startswith(GREETING_MAGIC)
        ]
        siege.burst(target, [*again, *moved], own=False)
        siege.burst(target, chance.sample(again, 10), own=True)
    drops = {reason for member in siege.members for reason in member.drops}
    if siege.sealed:
        assert {"replayed", "greeting: replayed"} <= drops
    siege.group.await_progress()

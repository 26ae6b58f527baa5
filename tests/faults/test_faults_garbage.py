"""Garbage at the ports, foreign and replayed datagrams: counted by reason, and nothing else happens.

With root they come from the members' own addresses, as an attacker on the network would send them; else from
a port of the test's own.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from garbage import Segment, datagrams, segment, segment_is, some
from group import Cluster, Member, wait_until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire import MAY_SPOOF, Datagram, Ear, Forger, load

from hunts import rounds
from ordercast import keys
from ordercast.totem.packets import decode
from ordercast.transport.greetings import GREETING_MAGIC
from ordercast.transport.paths import PATH_MAGIC
from ordercast.transport.segments import HEADER, HEADER_SIZE, MAGIC, MOST_PARTIAL

DATAGRAMS = rounds(1_500, 100_000, "ORDERCAST_DATAGRAMS")
"""Sent at each kind of group."""
BURST = 100
"""Sent before somebody looks: so many fit every socket's buffer."""
REFUSED = "refused by the seal"
"""Stands for all the reasons why a packet is not opened."""
KEPT_OUT = "of a stranger"
"""Stands for the reasons why what a stranger sends is not read: the kernel drops some, the driver others."""
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
        own = own or not MAY_SPOOF
        due = Counter(reason for datagram in what if (reason := self.reason(datagram, own)))
        before = Counter(target.drops)
        for datagram in what:
            self.forger.send(datagram, own)
        self.sent += len(what)

        def counted() -> bool:
            more = Counter(target.drops) - before
            return more.total() >= due.total() and all(
                more[reason] >= number for reason, number in due.items() if reason not in (REFUSED, KEPT_OUT)
            )

        wait_until(
            counted,
            lambda: f"node {target.node} has counted {due}, but {Counter(target.drops) - before}",
        )

    def reason(self, datagram: Datagram, own: bool) -> str | None:
        """What a datagram has to be counted as; None if it may be of use, or may be kept for a while."""
        data, is_token = datagram.data, datagram.to % 2 == 0
        if own and not (is_token and data.startswith(GREETING_MAGIC)):
            return KEPT_OUT
        if not data:
            return "empty"
        if is_token and data.startswith(GREETING_MAGIC) and len(data) >= HEADER_SIZE:
            return None  # whoever greets is challenged
        if is_token and (not data.startswith(MAGIC) or len(data) < HEADER_SIZE):
            return "malformed segment"
        match segment_is(data, checked=not self.sealed):
            case Segment.BAD:
                return "malformed segment"
            case Segment.WHOLE if self.sealed:
                return REFUSED
        return None

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
        try:
            yield siege
            print(f"sent {siege.sent}; drops at node 1: {group.members[1].drops}")
            group.conclude()
        finally:
            siege.forger.close()


def test_the_corpus_is_of_today() -> None:
    """Or record it anew: see record_corpus.py. What nobody reads beyond its first bytes tests little."""
    packets = [data for data in load("plain") if segment_is(data, checked=True) is Segment.WHOLE]
    for data in packets:
        _, _, _, length, _, _ = HEADER.unpack_from(data)
        packet = data[HEADER_SIZE : HEADER_SIZE + length]
        if not packet.startswith(PATH_MAGIC):
            decode(packet)
    assert len(packets) > len(load("plain")) // 2
    assert all(
        data.startswith(GREETING_MAGIC) or segment_is(data, checked=False) is not Segment.BAD
        for data in RECORDED
    )


@pytest.mark.campaign
def test_garbage_is_counted(siege: Siege) -> None:
    chance = random.Random(1)
    for own in (False, True):
        for _ in range(max(1, DATAGRAMS // 2 // BURST)):
            target = chance.choice(siege.members)
            siege.burst(
                target, [siege.aim(chance, some(chance, RECORDED), target) for _ in range(BURST)], own
            )
    siege.group.await_progress()


@pytest.mark.campaign
def test_garbage_that_hypothesis_thinks_of_is_counted(siege: Siege) -> None:
    chance = random.Random(2)

    @settings(
        max_examples=rounds(30, 1_000),
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
def test_parts_of_packets_that_never_become_whole_are_given_up(siege: Siege) -> None:
    target, other = siege.members[:2]

    def gave_up(number: int) -> bool:
        return target.drops.get("incomplete packet", 0) >= number

    for offset in (0, 1):
        before = target.drops.get("incomplete packet", 0)
        for number in range(MOST_PARTIAL + 40):
            part = segment(0, 2, 150, 2**31 + number, bytes(100))
            siege.forger.send(Datagram(port(other) + offset, port(target) + offset, part))
            siege.sent += 1
        wait_until(partial(gave_up, before + 40), lambda: f"40 more are given up: {target.drops}")
    siege.group.await_progress()


@needs_root
def test_replayed_datagrams_are_counted(siege: Siege) -> None:
    chance = random.Random(3)
    ear = Ear()
    everything = list(ear.listen(siege.ports(), 3.0))
    ear.close()
    greetings = [datagram for datagram in everything if datagram.data.startswith(GREETING_MAGIC)]
    others = [datagram for datagram in everything if not datagram.data.startswith(GREETING_MAGIC)]
    assert greetings
    assert others
    heard = greetings + chance.sample(others, min(1000, len(others)))
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

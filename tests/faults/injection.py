"""Mutated datagrams from the members' own addresses at a live group without a key; needs root.

What the members send to each other is overheard, and real packets with fields or bytes changed are sent under
the addresses of their senders, with the checksum that makes them whole. Then they stop, and the group has to
work again, as a whole, with all its processes alive.

As a program: ``python injection.py --protocol cm --count 300000``, for one protocol or ``all``.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from garbage import flipped, segment
from group import Cluster, Member
from wire import DATAGRAM, Datagram, Ear, Forger

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.core.contract import Packet
from ordercast.sim.mutation import Mutator
from ordercast.transport.greetings import GREETING_MAGIC
from ordercast.transport.segments import HEADER, HEADER_SIZE

BURST = 50
"""Sent before the members get a moment to read."""
GREETINGS = 0.02
"""This share of the datagrams is made of greetings."""
PAUSE_S = 0.004
FORGED = 2**31
"""Numbers of wrong packets begin here, so that nothing is made of what was sent from here."""


class Outcome(NamedTuple):
    """What came of it."""

    sent: int
    whole_s: float
    """From the last datagram until all members shared a configuration in which they delivered messages."""
    configurations: int
    """How many were installed at node 1 meanwhile."""
    drops: dict[str, int]


class Tap:
    """Overhears a group, and makes wrong datagrams of what it hears."""

    def __init__(self, members: list[Member], protocol: str, seed: int) -> None:
        self._chance = random.Random(seed)
        self._ports = {_port(member): member.node for member in members}
        nodes = [member.node for member in members]
        self._mutator = Mutator(self._chance, LAB_PROTOCOLS[protocol].rewrite, nodes)
        self._base = {node: port for port, node in self._ports.items()}
        self._greetings: list[Datagram] = []
        self._ear = Ear()
        self._over = False
        self._lock = threading.Lock()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        ports = {port + offset for port in self._ports for offset in (0, 1)}
        while not self._over:
            for source, to, data in self._ear.listen(ports, 0.2):
                self._hear(Datagram(source, to, data))

    def _hear(self, datagram: Datagram) -> None:
        data = datagram.data
        node = self._ports.get(datagram.source - datagram.source % 2)
        if node is None or len(data) < HEADER_SIZE:
            return
        with self._lock:
            if data.startswith(GREETING_MAGIC):
                self._greetings = [*self._greetings[-20:], datagram]
                return
            _, _, count, length, number, _ = HEADER.unpack_from(data)
            if count == 1 and HEADER_SIZE + length <= len(data) and number < FORGED:
                self._mutator.saw(Packet(data[HEADER_SIZE : HEADER_SIZE + length], node))

    def made(self) -> list[Datagram]:
        """The datagrams of one wrong packet."""
        chance = self._chance
        with self._lock:
            if self._greetings and chance.random() < GREETINGS:
                real = chance.choice(self._greetings)
                data = flipped(real.data, [chance.randrange(32, 8 * len(real.data)) for _ in range(2)])
                return [real._replace(data=data)]
            if not self._mutator.ready:
                return []
            packet, sender, _, _ = self._mutator.packet()
        if sender not in self._base:
            sender = chance.choice(list(self._base))
        to = chance.choice([node for node in self._base if node != sender])
        lane = chance.randrange(2)
        source, target = self._base[sender] + lane, self._base[to] + lane
        return [Datagram(source, target, part) for part in _segments(packet, FORGED + chance.getrandbits(31))]

    def close(self) -> None:
        self._over = True
        self._listener.join()
        self._ear.close()


def _port(member: Member) -> int:
    return int(member.address.rpartition(":")[2])


def _segments(packet: bytes, number: int) -> list[bytes]:
    """A packet as its sender would cut it."""
    room = DATAGRAM - HEADER_SIZE
    parts = [packet[at : at + room] for at in range(0, len(packet), room)] or [b""]
    return [segment(at, len(parts), len(packet), number, part) for at, part in enumerate(parts)]


def attack(directory: Path, protocol: str, count: int, seed: int = 1, nodes: int = 3) -> Outcome:
    """Send so many wrong datagrams at a group; every member is alive, and the group whole, afterwards."""
    with Cluster(directory, rate=30.0, safe=0.2, options={"protocol": protocol}) as group:
        members = group.start_all(nodes)
        group.await_progress(20)
        tap, forger = Tap(members, protocol, seed), Forger()
        try:
            time.sleep(0.5)
            sent = 0
            while sent < count:
                for _ in range(BURST):
                    for datagram in tap.made():
                        forger.send(datagram)
                        sent += 1
                time.sleep(PAUSE_S)
                _all_live(members)
        finally:
            tap.close()
            forger.close()
        began = time.monotonic()
        regular = len(members[0].regular)
        work_again(group, members)
        whole_s = time.monotonic() - began
        _all_live(members)
        drops = members[0].drops
        for member in members:
            member.kill()
        group.check_logs()
        return Outcome(sent, whole_s, regular, drops)


def work_again(group: Cluster, members: list[Member]) -> None:
    """Wait until all share a configuration, and each of them delivers what each sends in it."""
    while True:
        try:
            group.await_whole(members)
        except AssertionError as error:
            told = [_standing(member) for member in members]
            raise AssertionError(f"{error}\n" + "\n".join(told)) from error
        before = [member.configuration["id"] for member in members]
        group.await_progress(20, members)
        if [member.configuration["id"] for member in members] == before and len(set(before)) == 1:
            return


def _standing(member: Member) -> str:
    status = member.report()["status"]
    return str({name: status[name] for name in ("node", "incarnation", "state", "because", "peers", "drops")})


def _all_live(members: list[Member]) -> None:
    for member in members:
        assert not member.gone, f"node {member.node} ended: {member.events[-1:]}, see {member.log}"
        assert member.said("ended", "left") is None, member.said("ended", "left")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--protocol", default="all")
    asked.add_argument("--count", type=int, default=300_000)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--keep", type=Path, help="directory for the members' logs")
    given = asked.parse_args()
    for protocol in LAB_PROTOCOLS if given.protocol == "all" else [given.protocol]:
        directory = given.keep or Path(tempfile.mkdtemp(prefix="ordercast-injection-"))
        (directory / protocol).mkdir(parents=True)
        outcome = attack(directory / protocol, protocol, given.count, given.seed)
        print(f"{protocol}: {outcome}", flush=True)


if __name__ == "__main__":
    main()

"""Forged ring numbers at a live Totem group without a key: once they stop, it works again, and is whole.

The packets come from a member's own address and name it as their sender, with ring numbers at the end of the
number space; from then on the group must still find numbers for its rings (docs/decisions/lost-disk.md).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from garbage import segment
from group import Cluster, Member
from injection import FORGED, work_again
from wire import MAY_SPOOF, Datagram, Forger

from ordercast.core.identity import ConfigurationId
from ordercast.core.wire import MAX_COUNT
from ordercast.totem.config import TotemConfig
from ordercast.totem.packets import Announce, Commit, Entry, Join

NODES = (1, 2, 3)
NUMBERS = (MAX_COUNT, MAX_COUNT - 1, MAX_COUNT - 4, MAX_COUNT // 2, 2**61, 2**41)
ROUNDS, PAUSE_S = 20, 0.02
"""So often all of them are sent, and the pause between two."""


def forgeries(number: int) -> Iterator[bytes]:
    """Packets of node 3, and a Commit token that goes round, with that ring number."""
    ring, limits = ConfigurationId(number, 1), TotemConfig().limits
    entries = tuple(Entry(node, ConfigurationId(4, node), 0, 0, False, limits) for node in NODES)
    yield Join(3, number, NODES, (), life=7).encode()
    yield Join(3, number, NODES, (1,), life=7).encode()
    yield Join(3, number, (2, 3), (), merge=True, life=7).encode()
    yield Announce(3, ring, (1, 3), NODES).encode()
    yield Announce(3, ring, (3,), ()).encode()
    for filled in range(len(NODES) + 1):
        yield Commit(ring, NODES, filled, entries[:filled], (7, 7, 7)).encode()


def port(member: Member) -> int:
    return int(member.address.rpartition(":")[2])


@pytest.mark.skipif(not MAY_SPOOF, reason="forging addresses needs root")
def test_a_live_group_is_whole_again_after_ring_numbers_that_somebody_forged(tmp_path: Path) -> None:
    with Cluster(tmp_path, rate=30.0, safe=0.2) as group:
        members = group.start_all(len(NODES))
        group.await_progress(20)
        liar, victims, forger = members[2], members[:2], Forger()
        numbers = itertools.count(FORGED)
        for _ in range(ROUNDS):
            for packet in itertools.chain.from_iterable(map(forgeries, NUMBERS)):
                data = segment(0, 1, len(packet), next(numbers), packet)
                for victim, lane in itertools.product(victims, (0, 1)):
                    forger.send(Datagram(port(liar) + lane, port(victim) + lane, data))
            time.sleep(PAUSE_S)
        forger.close()
        began = time.monotonic()
        work_again(group, members)
        print(f"whole after {time.monotonic() - began:.2f} s")
        assert sum(members[0].drops.values()) > ROUNDS, "they came"
        group.conclude()

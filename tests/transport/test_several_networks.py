"""Several networks as one transport, with those in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ordercast.core.contract import Lane
from ordercast.errors import DuplicateNode, OrdercastError
from ordercast.runtime.ending import EndingOnError
from ordercast.transport.interface import Drops, Setup
from ordercast.transport.known_lives import KnownLives
from ordercast.transport.memory import MemoryNetwork, MemoryTransport
from ordercast.transport.networks import Networks
from ordercast.transport.virtual_time import run


class Ear:
    """A receiver that remembers what it heard, and on which network."""

    def __init__(self) -> None:
        self.guard = EndingOnError(self._end)
        self.delivered = 7
        self.heard: list[tuple[int, int, bytes]] = []
        self.gone: list[tuple[int, int]] = []

    def _end(self, error: BaseException) -> None:
        raise error

    def on_data(self, sender: int, packets: Sequence[bytes], network: int = 0) -> None:
        self.heard += [(network, sender, packet) for packet in packets]

    def on_unicast(self, sender: int, packet: bytes, waited_us: int, network: int = 0) -> None:
        self.heard.append((network, sender, packet))

    def on_turn_over(self) -> None:
        """Nothing waits."""

    def on_gone(self, node: int, network: int = 0) -> None:
        self.gone.append((network, node))

    def on_distance(self) -> None:
        raise AssertionError("it does not change")

    def on_outlived(self, life: int) -> None:
        raise AssertionError("nobody says so")


def now_us() -> int:
    return round(asyncio.get_running_loop().time() * 1_000_000)


def opened(network: MemoryNetwork, node: int) -> MemoryTransport:
    return network.open(Setup(node, 0, "toy", None, Drops(), now_us, KnownLives()))


def test_packets_come_and_go_on_their_own_network() -> None:
    async def main() -> None:
        one, two = MemoryNetwork((1, 2, 3), 1), MemoryNetwork((3, 4), 2, delay_us=(50, 900))
        gateway = Networks({1: opened(one, 3), 2: opened(two, 3)})
        others = {1: opened(one, 1), 4: opened(two, 4)}
        ears = {node: Ear() for node in (1, 3, 4)}
        gateway.start(ears[3])
        for node, transport in others.items():
            transport.start(ears[node])
        await gateway.find_peers()
        assert gateway.reachable == [1, 4]
        assert gateway.round_trip_us == 1800

        others[1].multicast([b"a", b"b"])
        others[4].unicast(3, b"c", Lane.TOKEN, behind=[b"d"])
        gateway.networks[1].multicast([b"left"])
        gateway.networks[2].unicast(4, b"right", Lane.CONTROL, behind=())
        await asyncio.sleep(0.01)
        assert [heard for heard in ears[3].heard if heard[0] == 1] == [(1, 1, b"a"), (1, 1, b"b")]
        assert [heard for heard in ears[3].heard if heard[0] == 2] == [(2, 4, b"d"), (2, 4, b"c")]
        assert (ears[1].heard, ears[4].heard) == ([(0, 3, b"left")], [(0, 3, b"right")])

        status = gateway.status()
        assert [(peer["network"], peer["node"]) for peer in status["peers"]] == [(1, 1), (2, 4)]
        assert [each["linked"] for each in status["networks"]] == [[1], [4]]
        others[4].close()
        await asyncio.sleep(0.01)
        assert ears[3].gone == [(2, 4)]
        two.loss, one.loss = 0.5, 0.5
        for _ in range(50):
            others[1].multicast([b"x"])
        await asyncio.sleep(0.01)
        assert gateway.lost() == {"lost on the way": others_lost(gateway)}
        gateway.close()
        assert one.others(1) == []

    run(main())


def others_lost(gateway: Networks) -> int:
    """Packets that were lost, summed over the networks."""
    lost = sum(sum(each.lost().values()) for each in gateway._all)
    assert lost > 0
    return lost


class Refused(MemoryTransport):
    """A network on which others do not want this node."""

    def take_refusal(self) -> OrdercastError | None:
        return DuplicateNode("node id 3 is in use")

    async def find_peers(self) -> None:
        raise DuplicateNode("node id 3 is in use")


def test_who_is_refused_on_one_network_is_refused() -> None:
    async def main() -> None:
        one, two = MemoryNetwork((1, 3), 1), MemoryNetwork((3, 4), 2)
        setup = Setup(3, 0, "toy", None, Drops(), now_us, KnownLives())
        gateway = Networks({1: opened(one, 3), 2: Refused(two, setup)})
        with pytest.raises(DuplicateNode):
            await gateway.find_peers()
        assert isinstance(gateway.take_refusal(), DuplicateNode)

    run(main())

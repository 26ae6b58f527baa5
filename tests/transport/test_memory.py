"""The network in memory: order, loss, cuts, and who is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ordercast.core.contract import Lane
from ordercast.errors import ConfigProblem, DuplicateNode
from ordercast.keys import Keyring, generate
from ordercast.runtime.ending import EndingOnError
from ordercast.transport.interface import Drops, Setup
from ordercast.transport.known_lives import KnownLives
from ordercast.transport.memory import CAPACITY, MemoryNetwork, MemoryTransport
from ordercast.transport.virtual_time import run


class Ear:
    """A receiver that remembers what it heard, and when, in microseconds."""

    def __init__(self) -> None:
        self.guard = EndingOnError(self._end)
        self.delivered = 0
        self.heard: list[tuple[int, object, bytes]] = []
        self.gone: list[int] = []
        self.turns = 0

    def _end(self, error: BaseException) -> None:
        raise error

    def on_data(self, sender: int, packets: Sequence[bytes], network: int = 0) -> None:
        self.heard += [(now_us(), sender, packet) for packet in packets]

    def on_unicast(self, sender: int, packet: bytes, waited_us: int, network: int = 0) -> None:
        self.heard.append((now_us(), sender, packet))

    def on_turn_over(self) -> None:
        self.turns += 1

    def on_gone(self, node: int, network: int = 0) -> None:
        self.gone.append(node)

    def on_distance(self) -> None:
        raise AssertionError("it does not change")

    def on_outlived(self, life: int) -> None:
        raise AssertionError("nobody says so")

    @property
    def packets(self) -> list[bytes]:
        return [packet for _, _, packet in self.heard]


def now_us() -> int:
    return round(asyncio.get_running_loop().time() * 1_000_000)


def setup(node: int, keyring: Keyring | None = None) -> Setup:
    return Setup(node, 0, "toy", keyring, Drops(), now_us, KnownLives())


def opened(network: MemoryNetwork, *nodes: int) -> tuple[list[MemoryTransport], list[Ear]]:
    transports, ears = [network.open(setup(node)) for node in nodes], [Ear() for _ in nodes]
    for transport, ear in zip(transports, ears, strict=True):
        transport.start(ear)
    return transports, ears


def test_a_token_follows_data_and_control_need_not() -> None:
    async def main() -> None:
        network = MemoryNetwork([1, 2, 3], seed=1, delay_us=(10, 1000))
        transports, ears = opened(network, 1, 2, 3)
        orders = set()
        for _ in range(50):
            transports[0].unicast(2, b"token", Lane.TOKEN, behind=[b"a", b"b"])
            transports[0].unicast(2, b"control", Lane.CONTROL, behind=[])
            await asyncio.sleep(0.01)
            orders.add(tuple(ears[1].packets))
            assert ears[2].packets == [b"a", b"b"], "the token is not for it"
            for ear in ears:
                ear.heard.clear()
        assert orders == {
            (b"control", b"a", b"b", b"token"),
            (b"a", b"b", b"control", b"token"),
            (b"a", b"b", b"token", b"control"),
        }
        assert ears[0].turns == 0

    run(main())


def test_delays_are_within_their_bounds() -> None:
    async def main() -> None:
        network = MemoryNetwork([1, 2], seed=1, delay_us=(100, 200))
        transports, ears = opened(network, 1, 2)
        assert transports[0].round_trip_us == 400
        took = []
        for _ in range(200):
            sent = now_us()
            transports[0].multicast([b"x"])
            await asyncio.sleep(0.001)
            took.append(ears[1].heard[-1][0] - sent)
        assert min(took) >= 100
        assert max(took) <= 200
        assert len(set(took)) > 50

    run(main())


def test_packets_are_lost_at_each_receiver_by_itself() -> None:
    async def main() -> None:
        network = MemoryNetwork([1, 2, 3], seed=1, loss=0.25)
        transports, ears = opened(network, 1, 2, 3)
        packets = [b"%d" % number for number in range(1000)]
        transports[0].multicast(packets)
        await asyncio.sleep(0.01)
        for transport, ear in zip(transports[1:], ears[1:], strict=True):
            assert 650 < len(ear.packets) < 850
            assert transport.lost() == {"lost on the way": 1000 - len(ear.packets)}
            assert ear.packets == sorted(ear.packets, key=int)
        assert ears[1].packets != ears[2].packets

    run(main())


def test_a_cut_stops_what_is_on_the_way_too() -> None:
    async def main() -> None:
        network = MemoryNetwork([1, 2, 3], seed=1)
        transports, ears = opened(network, 1, 2, 3)
        transports[0].multicast([b"before"])
        network.partition({1, 2})
        transports[0].multicast([b"apart"])
        await asyncio.sleep(0.01)
        assert ears[1].packets == [b"before", b"apart"]
        assert ears[2].packets == []
        assert (transports[0].reachable, transports[2].reachable) == ([2], [])
        network.heal()
        transports[0].multicast([b"again"])
        await asyncio.sleep(0.01)
        assert ears[2].packets == [b"again"]

    run(main())


def test_who_closes_is_gone_for_those_who_could_reach_it() -> None:
    async def main() -> None:
        network = MemoryNetwork([1, 2, 3], seed=1)
        transports, ears = opened(network, 1, 2, 3)
        network.partition({1, 2})
        transports[0].close()
        transports[0].close()
        transports[0].multicast([b"late"])
        await asyncio.sleep(0.01)
        assert [ear.gone for ear in ears] == [[], [1], []]
        transports[1].unicast(1, b"x", Lane.CONTROL, behind=[])
        assert transports[1]._drops == {"no address to send to": 1}
        assert ears[1].packets == []

    run(main())


def test_what_waits_for_a_node_is_bounded() -> None:
    async def main() -> None:
        network = MemoryNetwork([1, 2], seed=1)
        transports, ears = opened(network, 1, 2)
        for _ in range(20):
            transports[0].multicast([bytes(CAPACITY.buffer // 10)])
        await asyncio.sleep(0.01)
        assert len(ears[1].packets) == 10
        assert transports[1].lost() == {"no room": 10}

    run(main())


def test_a_starting_node_waits_for_another_and_not_for_ever() -> None:
    async def main() -> None:
        network = MemoryNetwork([1, 2], seed=1)
        ((one,), _) = opened(network, 1)
        await one.find_peers()
        alone = now_us()
        assert alone == 500_000
        waits = asyncio.create_task(one.find_peers())
        await asyncio.sleep(0.1)
        opened(network, 2)
        await waits
        assert now_us() == alone + 100_000

    run(main())


def test_mistakes_are_told() -> None:
    async def main() -> None:
        network = MemoryNetwork([1, 2])
        opened(network, 1)
        with pytest.raises(DuplicateNode, match="on this network already"):
            network.open(setup(1))
        with pytest.raises(ConfigProblem, match="none of this network's"):
            network.open(setup(7))
        with pytest.raises(ConfigProblem, match="leave it out"):
            network.open(setup(2, Keyring((generate(),))))
        with pytest.raises(ValueError, match="once at most"):
            network.partition({1}, {1, 2})
        with pytest.raises(ValueError, match="once at most"):
            network.partition({9})

    run(main())
    with pytest.raises(ValueError, match="probability"):
        MemoryNetwork([1], loss=1)
    with pytest.raises(ValueError, match="least delay"):
        MemoryNetwork([1], delay_us=(5, 4))

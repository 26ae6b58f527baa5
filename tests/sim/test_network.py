from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop
from itertools import pairwise
from typing import Any

import pytest

from ordercast.core.contract import Packet
from ordercast.core.identity import NodeId
from ordercast.sim.clock import Clock
from ordercast.sim.links import LOCAL_US, Wiring
from ordercast.sim.network import PRESETS, Ethernet, Lan, Measured, NetworkConfig, preset
from ordercast.sim.running_networks import EXPONENTIAL

NODES = (1, 2, 3)


class Air:
    """A network without a world: collects what arrives."""

    def __init__(self, config: NetworkConfig, nodes: Sequence[NodeId] = NODES, seed: str = "s") -> None:
        self.clock = Clock(seed)
        self.heap = self.clock.heap
        self.lost: list[tuple[NodeId, str]] = []
        self.heard: list[tuple[int, NodeId, bytes]] = []
        self.unicasts = 0
        self.net = config.open(
            Wiring(
                self.clock,
                {node: node for node in nodes},
                self._hear,
                self._hear_all,
                self._hear_unicast,
                lambda host, packet, reason: self.lost.append((host, reason)),
            ),
            seed,
        )

    def _hear(self, host: Any, packet: Packet) -> None:
        self.heard.append((self.clock.now, host, packet.data))

    def _hear_all(self, hosts: Sequence[Any], packet: Packet) -> None:
        for host in hosts:
            self._hear(host, packet)

    def _hear_unicast(self, host: Any, packet: Packet) -> None:
        self.unicasts += 1
        self._hear(host, packet)

    def run(self) -> list[tuple[int, NodeId, bytes]]:
        while self.heap:
            self.clock.now, _, act, a, b = heappop(self.heap)
            assert act is not None
            act(a, b)
        return self.heard


def test_a_multicast_reaches_everybody_but_its_sender() -> None:
    for config in PRESETS.values():
        if not config.loss:
            air = Air(config)
            air.net.multicast(0, 2, b"x")
            assert sorted(node for _, node, _ in air.run()) == [1, 3]


def test_a_unicast_reaches_one_and_oneself_without_the_network() -> None:
    for config in (Lan(loss=1.0), Ethernet(loss=1.0)):
        air = Air(config)
        air.net.unicast(0, 1, 1, b"me")
        air.net.unicast(0, 1, 2, b"lost")
        assert air.run() == [(LOCAL_US, 1, b"me")]
        assert air.lost == [(2, "lost")]
    air = Air(Lan())
    air.net.unicast(0, 1, 3, b"x")
    assert [node for _, node, _ in air.run()] == [3]
    assert air.unicasts == 1


def test_the_exponential_table_has_mean_1() -> None:
    assert sum(EXPONENTIAL) / len(EXPONENTIAL) == pytest.approx(1.0, rel=1e-9)
    assert list(EXPONENTIAL) == sorted(EXPONENTIAL)


def test_lan_delays_have_the_stated_least_and_mean() -> None:
    air = Air(Lan(base_us=50, tail_us=100))
    for i in range(4000):
        air.net.multicast(i * 10_000, 1, b"%d" % i)
    delays = [when - int(data) * 10_000 for when, _, data in air.run()]
    assert min(delays) >= 50
    assert sum(delays) / len(delays) == pytest.approx(150, rel=0.05)


def test_lan_keeps_order_between_two_nodes() -> None:
    air = Air(Lan(tail_us=1000))
    for i in range(200):
        (air.net.multicast if i % 3 else lambda t, s, d: air.net.unicast(t, s, 2, d))(i, 1, b"%d" % i)
    at_2 = [int(data) for _, node, data in air.run() if node == 2]
    assert at_2 == list(range(200))


def test_reordering_is_what_was_asked_for() -> None:
    air = Air(Lan(tail_us=0, reorder=0.1, reorder_us=5000), nodes=(1, 2))
    for i in range(5000):
        air.net.multicast(i * 100, 1, b"%d" % i)
    numbers = [int(data) for _, _, data in air.run()]
    late = sum(number < max(numbers[:at]) for at, number in enumerate(numbers) if at)
    assert sorted(numbers) == list(range(5000))
    assert 0.08 < late / 5000 < 0.11


@pytest.mark.parametrize("config", [Lan(loss=0.1), Ethernet(loss=0.1, bits_per_s=10**9)])
def test_the_loss_rate_is_what_was_asked_for(config: NetworkConfig) -> None:
    air = Air(config)
    for i in range(5000):
        air.net.multicast(i * 1000, 1, b"x")
    heard = len(air.run())
    assert heard + len(air.lost) == 10_000
    assert len(air.lost) / 10_000 == pytest.approx(0.1, rel=0.1)
    assert {reason for _, reason in air.lost} == {"lost"}


@pytest.mark.parametrize(("loss", "unicast_loss"), [(0.1, 0.0), (0.0, 0.1)])
def test_on_an_ethernet_tokens_may_be_lost_at_a_rate_of_their_own(loss: float, unicast_loss: float) -> None:
    air = Air(Ethernet(loss=loss, unicast_loss=unicast_loss, bits_per_s=10**9), nodes=(1, 2))
    for i in range(2000):
        air.net.multicast(i * 1000, 1, b"x")
        air.net.unicast(i * 1000 + 500, 1, 2, b"x")
    heard = len(air.run())
    assert len(air.lost) / 2000 == pytest.approx(0.1, rel=0.2)
    assert air.unicasts / 2000 == pytest.approx(1 - unicast_loss, rel=0.02)
    assert heard - air.unicasts == pytest.approx(2000 * (1 - loss), rel=0.02)


def test_duplicates_come_as_often_as_asked_for() -> None:
    air = Air(Lan(duplicate=0.1), nodes=(1, 2))
    for i in range(5000):
        air.net.multicast(i * 1000, 1, b"x")
    assert len(air.run()) / 5000 == pytest.approx(1.1, rel=0.02)


def test_another_fault_kind_does_not_reshuffle_the_delays() -> None:
    def arrivals(config: Lan) -> set[tuple[int, NodeId, bytes]]:
        air = Air(config)
        for i in range(300):
            air.net.multicast(i * 10_000, 1, b"%d" % i)
        return set(air.run())

    plain, lossy = arrivals(Lan()), arrivals(Lan(loss=0.3))
    assert lossy < plain
    assert plain < arrivals(Lan(duplicate=0.3))


# --- ethernet ----------------------------------------------------------------------------------------


def test_a_frame_takes_its_bits_and_its_overhead() -> None:
    """100 bytes of UDP: 8 + 20 + 100 in a frame of 18 more, behind preamble 8 and before a gap of 12."""
    air = Air(Ethernet(bits_per_s=8_000_000, propagation_us=3))  # a byte is a microsecond
    air.net.multicast(0, 1, bytes(100))
    assert [when for when, _, _ in air.run()] == [166 + 3, 166 + 3]
    assert air.net.busy_us == 166


@pytest.mark.parametrize(
    ("size", "octets"),
    [
        (1, 38 + 46),
        (1472, 38 + 1500),
        (1473, 2 * 38 + 1500 + 46),
        (2952, 2 * (38 + 1500)),
        (3000, 3 * 38 + 2 * 1500 + 48 + 20),
    ],
)
def test_large_and_small_datagrams_cost_whole_frames(size: int, octets: int) -> None:
    air = Air(Ethernet(bits_per_s=8_000_000, propagation_us=0))
    air.net.multicast(0, 1, bytes(size))
    assert {when for when, _, _ in air.run()} == {octets}


def test_the_medium_carries_one_packet_at_a_time() -> None:
    air = Air(Ethernet(bits_per_s=8_000_000, propagation_us=0))
    air.net.multicast(0, 1, bytes(62))
    air.net.unicast(0, 2, 3, bytes(62))
    air.net.multicast(500, 3, bytes(62))
    assert sorted({when for when, _, _ in air.run()}) == [128, 256, 628]
    assert air.net.busy_us == 3 * 128


def test_a_medium_is_in_use_for_what_has_passed_of_what_is_booked() -> None:
    air = Air(Ethernet(bits_per_s=8_000_000, propagation_us=0))
    for _ in range(3):
        air.net.multicast(100, 1, bytes(62))
    used = []
    for now in (0, 100, 200, 484, 1000):
        air.clock.now = now
        used.append(air.net.busy_us)
    assert used == [0, 0, 100, 384, 384]
    air.net.multicast(1000, 1, bytes(62))
    assert air.net.busy_us == 384


def test_all_receivers_of_a_multicast_share_one_heap_entry() -> None:
    air = Air(Ethernet(), nodes=range(1, 41))
    air.net.multicast(0, 1, b"x")
    assert len(air.heap) == 1
    assert len(air.run()) == 39


def test_a_datagram_of_many_frames_is_lost_more_often() -> None:
    air = Air(Ethernet(loss=0.1, bits_per_s=10**9), nodes=(1, 2))
    for i in range(4000):
        air.net.multicast(i * 1000, 1, bytes(5000))
    assert len(air.lost) / 4000 == pytest.approx(1 - 0.9**4, rel=0.1)


def test_a_medium_booked_too_far_ahead_drops() -> None:
    air = Air(Ethernet(bits_per_s=8_000_000, backlog_us=1000))
    for _ in range(20):
        air.net.multicast(0, 1, bytes(62))
    air.net.unicast(0, 1, 2, bytes(62))
    assert len(air.run()) == 2 * 8
    assert air.lost == [(2, "medium full"), (3, "medium full")] * 12 + [(2, "medium full")]


# --- links -------------------------------------------------------------------------------------------

CALM = [Lan(tail_us=0), Ethernet()]


@pytest.mark.parametrize("config", CALM)
def test_a_partition_separates_its_groups_until_it_heals(config: NetworkConfig) -> None:
    air = Air(config, nodes=(1, 2, 3, 4))
    air.net.links.partition([(1, 2)])
    for source in (1, 3):
        air.net.multicast(0, source, b"%d" % source)
    air.net.unicast(0, 1, 4, b"token")
    assert sorted((node, data) for _, node, data in air.run()) == [(2, b"1"), (4, b"3")]
    assert {reason for _, reason in air.lost} == {"partition"}
    assert not air.net.links.reach(1, 3)
    assert air.net.links.reach(3, 4)
    air.net.links.heal()
    assert air.net.links.calm
    air.net.multicast(10_000, 1, b"again")
    assert sum(data == b"again" for _, _, data in air.run()) == 3


def test_a_partition_names_nodes_once() -> None:
    links = Air(Lan()).net.links
    with pytest.raises(ValueError, match="node 9 is unknown"):
        links.partition([(1, 9)])
    with pytest.raises(ValueError, match="in two groups"):
        links.partition([(1,), (1, 2)])


@pytest.mark.parametrize("config", CALM)
def test_a_cut_works_one_way(config: NetworkConfig) -> None:
    air = Air(config)
    air.net.links.cut(1, 2)
    air.net.multicast(0, 1, b"a")
    air.net.unicast(0, 1, 2, b"b")
    air.net.unicast(0, 2, 1, b"c")
    assert sorted((node, data) for _, node, data in air.run()) == [(1, b"c"), (3, b"a")]
    assert air.lost == [(2, "cut"), (2, "cut")]
    air.net.links.uncut(1, 2)
    assert air.net.links.calm


@pytest.mark.parametrize("config", CALM)
def test_a_clog_holds_packets_and_lets_them_go_in_order(config: NetworkConfig) -> None:
    air = Air(config, nodes=(1, 2))
    air.net.links.clog(1, 2)
    air.net.multicast(0, 1, b"a")
    air.net.unicast(5, 1, 2, b"b")
    assert air.run() == []
    air.clock.now = 9_000
    air.net.links.unclog(1, 2)
    assert [(node, data) for _, node, data in air.run()] == [(2, b"a"), (2, b"b")]
    assert air.unicasts == 1
    assert air.clock.now >= 9_000
    assert air.net.links.calm


@pytest.mark.parametrize("config", CALM)
def test_a_clog_may_only_delay(config: NetworkConfig) -> None:
    air = Air(config)
    air.net.links.clog(1, 2, 7_000)
    air.net.multicast(0, 1, b"a")
    air.net.unicast(0, 1, 2, b"b")
    when = {(node, data): at for at, node, data in air.run()}
    assert when[2, b"a"] - when[3, b"a"] == 7_000
    assert when[2, b"b"] >= 7_000


def test_a_clogged_link_holds_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.sim.links.MOST_HELD", 3)
    air = Air(Lan(), nodes=(1, 2))
    air.net.links.clog(1, 2)
    for _ in range(5):
        air.net.multicast(0, 1, b"a")
    assert air.lost == [(2, "clog full")] * 2
    air.clock.now = 1
    air.net.links.unclog(1, 2)
    assert len(air.run()) == 3


@pytest.mark.parametrize("config", CALM)
def test_a_burst_loses_while_it_lasts(config: NetworkConfig) -> None:
    air = Air(config)
    air.net.links.begin_burst(1.0)
    air.net.multicast(0, 1, b"a")
    air.net.links.end_burst(1.0)
    air.net.multicast(0, 1, b"b")
    assert {data for _, _, data in air.run()} == {b"b"}
    assert air.lost == [(2, "burst"), (3, "burst")]


@pytest.mark.parametrize(
    "config", [Lan(tail_us=0, loss=0.9, duplicate=0.9, reorder=0.9), Ethernet(loss=0.9, bits_per_s=10**9)]
)
def test_a_network_that_recovers_does_no_more_harm(config: NetworkConfig) -> None:
    air = Air(config)
    air.net.multicast(0, 1, b"0")
    air.net.recover()
    for i in range(100):
        air.net.multicast(i * 10_000, 1, b"x")
    assert sum(data == b"x" for _, _, data in air.run()) == 200


# --- presets -----------------------------------------------------------------------------------------


def test_presets_are_tweaked_by_field_from_numbers_or_text() -> None:
    assert preset("lan", {"loss": 0.05}) == preset("lan", {"loss": "0.05"}) == Lan(loss=0.05)
    assert preset("ethernet10").receive_us > 0


@pytest.mark.parametrize("name", PRESETS)
def test_what_a_network_does_is_a_function_of_its_seed(name: str) -> None:
    def arrivals(seed: str) -> list[tuple[int, NodeId, bytes]]:
        air = Air(preset(name, {"loss": 0.1}), seed=seed)
        for i in range(100):
            air.net.multicast(i * 5_000, 1 + i % 3, b"%d" % i)
        return air.run()

    assert arrivals("x") == arrivals("x")
    assert arrivals("x") != arrivals("y")


def test_measured_delays_are_drawn_from_their_tables() -> None:
    config = Measured(
        unicast_delays_us=(10, 20), behind_delays_us=(1_000,), multicast_delays_us=((100,), (200, 300))
    )
    air = Air(config, nodes=(1, 2, 3))
    for i in range(200):
        air.net.unicast(i * 10_000, 1, 2, b"%d" % i)
    assert {when - int(data) * 10_000 for when, _, data in air.run()} == {10, 20}
    air = Air(config, nodes=(1, 2, 3))
    for i in range(200):
        air.net.multicast(i * 10_000, 2, b"%d a" % i)
        air.net.multicast(i * 10_000, 2, b"%d b" % i)
        air.net.unicast(i * 10_000, 2, 3, b"%d c" % i)
    took: dict[tuple[int, str], list[int]] = {}
    for when, node, data in air.run():
        number, name = data.decode().split()
        took.setdefault((node, name), []).append(when - int(number) * 10_000)
    assert set(took[3, "a"]) == {100}  # the next in the order of identifiers
    assert set(took[1, "a"]) == {200, 300}
    assert took[1, "a"] == took[1, "b"]  # what leaves together travels together
    assert set(took[3, "c"]) == {1_000}


def test_measured_delays_follow_each_other_as_they_were_measured() -> None:
    table = tuple(range(100, 1_100))
    air = Air(Measured(unicast_delays_us=table, multicast_delays_us=(table,), run=10), nodes=(1, 2, 3))
    for i in range(100):
        air.net.unicast(i * 10_000, 1, 2, b"%d" % i)
    took = [when - int(data) * 10_000 for when, _, data in air.run()]
    runs = [took[first : first + 10] for first in range(0, 100, 10)]
    assert all((after - before) % 1_000 == 1 for run in runs for before, after in pairwise(run))
    assert len({run[0] for run in runs}) > 5


@pytest.mark.parametrize(
    "wrong",
    [{"unicast_delays_us": ()}, {"behind_delays_us": (-1,)}, {"multicast_delays_us": ()}, {"run": 0}],
)
def test_what_is_no_table_of_delays(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Measured(**wrong)

"""What the path to a peer is like: how far it is, and how large a datagram gets there."""

from __future__ import annotations

from collections.abc import Callable

from ordercast.transport.paths import AGAIN_S, MISSES, NARROW, SAMPLES, STEADY_S, Measured, Paths
from ordercast.transport.peers import Peer

FULL = 1_452
OVERHEAD = 14


class Network:
    """Two nodes with a path between them, on which time passes and large datagrams may vanish."""

    def __init__(self, round_trip_us: int = 300) -> None:
        self.now_us = 0
        self.round_trip_us = round_trip_us
        self.mtu = 65_535
        self.down = False
        self.sent: list[int] = []
        self.measured: list[Measured] = []
        self.warnings: list[str] = []
        self.peer = Peer(2, ("10.0.0.2", 4801), ("10.0.0.2", 4802))
        self.paths = self.node(self._to_other)
        self.other = self.node(self._back)

    def node(self, send: Callable[[Peer, bytes], None]) -> Paths:
        return Paths(FULL, OVERHEAD, lambda: self.now_us, send, self.measured.append, self.warnings.append)

    def _carries(self, packet: bytes) -> bool:
        self.sent.append(len(packet) + OVERHEAD)
        return not self.down and len(packet) + OVERHEAD <= self.mtu

    def _to_other(self, peer: Peer, packet: bytes) -> None:
        if self._carries(packet):
            self.now_us += self.round_trip_us // 2
            assert self.other.on_packet(peer, packet) is None

    def _back(self, peer: Peer, packet: bytes) -> None:
        if self._carries(packet):
            self.now_us += self.round_trip_us // 2
            assert self.paths.on_packet(peer, packet) is None

    def passes(self, seconds: float) -> None:
        until_us = self.now_us + int(seconds * 1e6)
        while self.now_us < until_us:
            self.paths.look([self.peer])
            self.now_us += 20_000


def test_full_datagrams_are_used_as_soon_as_one_came_through() -> None:
    network = Network()
    assert network.paths.measured.datagram == FULL, "nobody is there yet"
    network.passes(0.01)
    assert network.paths.measured.datagram == FULL
    assert network.warnings == []


def test_before_a_full_one_came_through_smaller_ones_are_sent() -> None:
    network = Network()
    network.mtu = 1_300
    network.passes(0.01)
    assert network.paths.measured.datagram == NARROW[0]


def test_a_path_that_swallows_large_datagrams_is_noticed_and_told() -> None:
    network = Network()
    network.mtu = 1_000
    network.passes(0.1 * (2 * MISSES + 3))
    assert network.paths.measured.datagram == 984
    assert "node 2 at 10.0.0.2:4801 does not carry datagrams of 1,452 bytes" in network.warnings[0]
    assert "write mtu = 1032 at every node" in network.warnings[-1]


def test_a_path_that_becomes_wide_again_is_used_in_full_after_a_while() -> None:
    network = Network()
    network.mtu = 1_300
    network.passes(2)
    network.mtu = 1_500
    network.passes(AGAIN_S + 2 * STEADY_S)
    assert network.paths.measured.datagram == FULL


def test_a_path_that_becomes_narrow_is_noticed_too() -> None:
    network = Network()
    network.passes(3)
    network.mtu = 1_300
    network.passes((MISSES + 2) * STEADY_S)
    assert network.paths.measured.datagram == NARROW[0]


def test_who_does_not_answer_at_all_says_nothing_about_sizes() -> None:
    network = Network()
    network.passes(1)
    network.down = True
    network.passes(120)
    assert network.paths.measured.datagram == FULL
    assert network.warnings == []


def test_the_shortest_of_some_round_trips_counts() -> None:
    network = Network(round_trip_us=300_000)
    network.passes(3)
    assert network.paths.measured.round_trip_us == 300_000
    network.round_trip_us = 900_000
    network.passes(1)
    assert network.paths.round_trip_us(2) == 300_000, "the peer may just have been busy"
    network.passes(10 * SAMPLES)
    assert network.paths.round_trip_us(2) == 900_000


def test_an_answer_counts_once_and_only_if_it_was_asked_for() -> None:
    """Answers that somebody repeats later tell of a round trip that took long."""
    network = Network()
    kept: list[bytes] = []
    other, network.other = network.other, network.node(lambda peer, packet: kept.append(packet))
    network.paths.look([network.peer])
    network.other = other
    assert [network.paths.on_packet(network.peer, answer) for answer in kept] == [None, None]
    network.passes(3)
    for _ in range(SAMPLES):
        network.now_us += 100_000
        for answer in kept:
            assert network.paths.on_packet(network.peer, answer) == "path probe that nobody asked for"
    assert network.paths.measured.round_trip_us == network.round_trip_us


def test_a_path_that_is_known_is_hardly_asked() -> None:
    network = Network()
    network.passes(3)
    network.sent.clear()
    network.passes(60)
    assert len(network.sent) <= 4 * (60 / STEADY_S + 1)


def test_another_life_of_the_peer_is_measured_anew_and_one_that_is_gone_forgotten() -> None:
    network = Network()
    network.passes(3)
    network.peer.session = b"another"
    network.paths.look([network.peer])
    assert network.paths.measured.datagram in (FULL, NARROW[0])
    network.paths.look([])
    assert network.paths.round_trip_us(2) is None


def test_what_is_no_probe_is_dropped_with_a_reason() -> None:
    network = Network()
    for wrong in (b"OP\x01", b"OP\x01" + bytes(11), b"OP\x01\x02" + bytes(10), b"OP\x01\x02" + b"\xff" * 10):
        assert network.paths.on_packet(network.peer, wrong) == "malformed path probe"

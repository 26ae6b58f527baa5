"""How far peers are, and how large a datagram gets there: asked and answered among tokens.

Every linked peer is asked, again and again, with a small datagram and with one of full size. The answers tell
the round trip, from which timeouts follow; and what the path carries. Where small ones come through and full
ones never do, since the path has a smaller MTU than configured and says nothing, smaller datagrams are used.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ordercast.core.identity import NodeId
from ordercast.transport.address import address_text
from ordercast.transport.peers import Peer

PATH_MAGIC = b"OP\x01"
ASK, ANSWER = 1, 2
_HEAD = struct.Struct(">3sBQH")
HEAD_SIZE = _HEAD.size

NARROW = (1_232, 984, 528)
"""Datagrams, in bytes, that are tried where the configured ones do not arrive: those of an MTU of 1280 (every
IPv6 network), 1032 and 576 (every IPv4 network)."""
HASTY_S, STEADY_S = 0.1, 2.0
"""How often a path is asked while it is new, and later."""
MISSES = 8
"""Questions of one size in a row without an answer, while smaller ones were answered: too large."""
AGAIN_S = 60.0
"""How often a size that was too large is tried once more."""
SAMPLES = 8
"""How many round trips are measured; the shortest counts, since others include how busy the peer was."""
LEAST_SAMPLES = 2
OLDEST_US = 10_000_000
"""An answer that took longer tells of a process that was stopped."""
MOST_ASKED = 256
"""Questions to a peer that may be unanswered at a time; those of ten seconds."""


class _Path:
    """What is known of the path to one life of a peer."""

    def __init__(self, session: bytes, sizes: Sequence[int]) -> None:
        self.session = session
        self.missed = dict.fromkeys(sizes, 0)
        """By size, the largest first: questions in a row without an answer, while small ones had one."""
        self.arrived: set[int] = set()
        """Sizes that have come through."""
        self.round_trips: deque[int] = deque(maxlen=SAMPLES)
        self._asked: dict[tuple[int, int], None] = {}
        """When, and with which size, it was asked; the oldest first."""
        self.next_us = 0
        self.retry_us = 0

    @property
    def carries(self) -> int:
        """The largest datagram that is not known to be too large."""
        return next((size for size, missed in self.missed.items() if missed < MISSES), min(self.missed))

    @property
    def usable(self) -> int:
        """The largest that came through; before any did, one that nearly every network carries."""
        known = [size for size in self.arrived if self.missed[size] < MISSES]
        return max(known) if known else min(self.carries, NARROW[0])

    @property
    def settled(self) -> bool:
        """Whether enough is known for now."""
        return self.carries in self.arrived and len(self.round_trips) == SAMPLES

    def ask(self, now_us: int, size: int) -> None:
        """A question of that size is sent."""
        self._asked[now_us, size] = None
        if len(self._asked) > MOST_ASKED:
            del self._asked[next(iter(self._asked))]

    def answered(self, asked_us: int, size: int) -> bool:
        """Whether this is the first answer to a question: one that is repeated tells no time."""
        if (asked_us, size) not in self._asked:
            return False
        del self._asked[asked_us, size]
        return True

    def try_larger(self) -> None:
        """Give sizes that were too large another chance: the path may have become wider."""
        self.missed = {size: min(missed, MISSES - 1) for size, missed in self.missed.items()}


class Measured(NamedTuple):
    """What the paths to all linked peers have in common."""

    round_trip_us: int
    """The longest; 0 while none is known."""
    datagram: int
    """The largest that all paths carry."""


class Paths:
    """Asks the linked peers, and takes their answers."""

    def __init__(
        self,
        datagram: int,
        overhead: int,
        now_us: Callable[[], int],
        send: Callable[[Peer, bytes], None],
        changed: Callable[[Measured], None],
        warn: Callable[[str], None],
    ) -> None:
        """`overhead` is what a datagram of one packet has beyond it: headers, and its seal."""
        self._sizes = (datagram, *(size for size in NARROW if size < datagram))
        self._overhead = overhead
        self._now_us = now_us
        self._send = send
        self._changed = changed
        self._warn = warn
        self._paths: dict[NodeId, _Path] = {}
        self.measured = Measured(0, datagram)

    def round_trip_us(self, node: NodeId) -> int | None:
        """To a peer and back, if it is known."""
        path = self._paths.get(node)
        return min(path.round_trips) if path is not None and path.round_trips else None

    def look(self, peers: Sequence[Peer]) -> None:
        """Ask those whose turn it is."""
        now = self._now_us()
        for peer in peers:
            path = self._paths.get(peer.node)
            if path is None or path.session != peer.session:
                path = self._paths[peer.node] = _Path(peer.session, self._sizes)
            if now < path.next_us:
                continue
            path.next_us = now + int((STEADY_S if path.settled else HASTY_S) * 1e6)
            if now >= path.retry_us:
                path.retry_us = now + int(AGAIN_S * 1e6)
                path.try_larger()
            size = path.carries
            path.ask(now, 0)
            path.ask(now, size)
            self._send(peer, _HEAD.pack(PATH_MAGIC, ASK, now, 0))
            self._send(peer, _HEAD.pack(PATH_MAGIC, ASK, now, size).ljust(size - self._overhead, b"\0"))
        if len(self._paths) > len(peers):
            linked = {peer.node for peer in peers}
            self._paths = {node: path for node, path in self._paths.items() if node in linked}
        self._sum_up()

    def on_packet(self, peer: Peer, packet: bytes) -> str | None:
        """A question or an answer; why it is not used, if it is not."""
        if len(packet) < HEAD_SIZE:
            return "malformed path probe"
        _, kind, stamp, size = _HEAD.unpack_from(packet)
        if kind == ASK:
            self._send(peer, _HEAD.pack(PATH_MAGIC, ANSWER, stamp, size))
            return None
        path = self._paths.get(peer.node)
        took_us = self._now_us() - stamp
        if kind != ANSWER or path is None or not 0 <= took_us < OLDEST_US:
            return "malformed path probe"
        if not path.answered(stamp, size):
            return "path probe that nobody asked for"
        before = path.carries
        if size in path.missed:
            path.missed[size] = 0
            path.arrived.add(size)
        elif size == 0:
            path.round_trips.append(took_us)
            path.missed[before] += 1  # until the answer to what was sent along with it comes
        if path.carries < before:
            self._warn(
                f"the path to node {peer.node} at {address_text(peer.token)} does not carry datagrams of "
                f"{before:,} bytes: this node sends {path.carries:,} at most; write mtu = "
                f"{path.carries + 48} at every node, or have the network carry more"
            )
        self._sum_up()
        return None

    def _sum_up(self) -> None:
        paths = self._paths.values()
        known = [min(path.round_trips) for path in paths if len(path.round_trips) >= LEAST_SAMPLES]
        measured = Measured(
            max(known, default=0), min((path.usable for path in paths), default=self._sizes[0])
        )
        if measured != self.measured:
            self.measured = measured
            self._changed(measured)

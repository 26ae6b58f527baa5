"""One of the rings that a node is on, and what the layer above the rings remembers of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ordercast.core.identity import NodeId
from ordercast.core.lamport import LamportClock
from ordercast.rings.config import RingsConfig
from ordercast.rings.messages import Control, Done, Message, Pause, Recovered, Ring, Vector
from ordercast.rings.outbox import RingOutbox
from ordercast.totem.machine import TotemMachine
from ordercast.totem.packets import Data


class Traffic(NamedTuple):
    """Traffic of a configuration that this node has not installed yet."""

    sender: NodeId
    incarnation: int
    timestamp: int
    slot: int
    message: Message
    last: bool


class Mark(NamedTuple):
    """At this place of the ring's order its members had everything up to this timestamp."""

    seq: int
    complete: int


class AttachedRing:
    """A ring that the node is on: its machine, what is to be broadcast on it, and what was heard there."""

    def __init__(
        self,
        network: int,
        me: NodeId,
        config: RingsConfig,
        clock: LamportClock,
        decode_data: Callable[[bytes], Data],
    ) -> None:
        self.network = network
        self._me = me
        totem = config.of_a_ring
        self.outbox = RingOutbox(totem)
        self.machine = TotemMachine(me, totem, decode_data, self.outbox, clock)
        self.stored: bytes | None = None
        """What its machine wants to find again in the node's next life."""
        self.ring: Ring | None = None
        """The ring that is installed; None before the first, and between two."""
        self._control: dict[object, bytes] = {}
        """Control messages that are to be broadcast on it: of each kind and node the last one."""
        self._at_once = totem.max_messages * totem.packet_size
        """Bytes of these that a visit of the token may take along: the others wait here, to be replaced."""
        self.traffic = False
        """Traffic was put into the outbox, of which its machine was not told yet."""
        self.timestamp = 0
        """The highest timestamp of what was received on it."""
        self.reported: dict[NodeId, int] = {}
        """The version of each member's last `Report` that the member itself sent here: since then, nothing
        more of what it sent in the configuration before will come."""
        self.agreed: dict[NodeId, bytes] = {}
        """The digest of each member's last `Done` here, if it has sent no `Report` since: the configuration
        that its traffic belongs to."""
        self.early: list[Traffic] = []
        """Traffic of the configuration that this node is about to install."""
        self.leave()

    def leave(self) -> None:
        """Note that the ring belongs to no configuration that this node has installed."""
        self.index = -1
        """The ring's index among those of the configuration; -1 outside any."""
        self.horizon: list[int] = []
        """By ring of the configuration: what it originated up to this timestamp was received on this ring."""
        self.acknowledged: list[int] = []
        """By ring: all its members have everything up to this timestamp, as is known on this ring."""
        self.entered: set[NodeId] = set()
        """Members that have installed the configuration."""
        self.marks: deque[Mark] = deque()
        self.safe_seq = 0
        """All members of the ring have what was broadcast on it up to here."""
        self.edges: list[Route] = []
        """Where this node forwards to what it receives here."""
        self.told: dict[int, tuple[int, int]] = {}
        """By ring: the horizon and what is acknowledged that this node told last on this ring."""
        self._opening = False
        """A configuration was installed, and its traffic is not let out yet."""

    def begin(self, ring: Ring) -> None:
        """The ring's machine has installed another ring."""
        self.ring = ring
        self.timestamp = 0
        self.reported.clear()
        self.agreed.clear()
        self.early.clear()
        self.leave()

    def enter(self, index: int, rings: int) -> None:
        """A configuration was installed that this ring is part of."""
        self.leave()
        self.index = index
        self.horizon = [0] * rings
        self.horizon[index] = self.timestamp
        self.acknowledged = [0] * rings
        self._opening = True

    def give_up(self) -> None:
        """The configuration is not in force any more: broadcast and forward nothing more in it."""
        self._opening = False
        self.outbox.close()
        self.edges = []

    def tell(self, message: Control | Pause, payload: bytes) -> None:
        """Broadcast a control message, instead of an earlier one of its kind and node that waits still."""
        key = payload if isinstance(message, Recovered) else (type(message), message.node)
        self._control.pop(key, None)
        self._control[key] = payload

    def due(self) -> list[bytes] | None:
        """The control messages that are broadcast now; None if there is nothing to be broadcast at all.

        Traffic waits until this node's `Done` was among them: from that on, others take it for traffic of
        the configuration.
        """
        room = self._at_once - self.outbox.control_bytes
        payloads: list[bytes] = []
        while self._control and room > 0:
            payload = self._control.pop(next(iter(self._control)))
            room -= len(payload)
            payloads.append(payload)
        if self._opening and (Done, self._me) not in self._control:
            self._opening, self.outbox.open = False, True
        elif not payloads and not self.traffic:
            return None
        self.traffic = False
        return payloads

    def put(self, payload: bytes, apart: bool = False) -> None:
        """Broadcast traffic of the configuration that is in force."""
        self.outbox.put(payload, apart)
        self.traffic = True

    def mark(self, seq: int) -> None:
        """Remember how much was complete on the ring at a place of its order."""
        complete = min(self.horizon)
        if not self.marks or complete > self.marks[-1].complete:
            self.marks.append(Mark(seq, complete))

    def acknowledge(self) -> None:
        """What was complete on the ring where all have everything by now: the ring acknowledges that.

        Only once all of its members have installed the configuration: one that has not may give it up.
        """
        if self.ring is None or len(self.entered) < len(self.ring.members):
            return
        while self.marks and self.marks[0].seq <= self.safe_seq:
            self.acknowledged[self.index] = self.marks.popleft().complete

    def take(self, vector: Vector) -> None:
        """A gateway tells about rings behind it."""
        for index, horizon, acknowledged in vector.entries:
            if index < len(self.horizon):
                self.horizon[index] = max(self.horizon[index], horizon)
                self.acknowledged[index] = max(self.acknowledged[index], acknowledged)


class Route(NamedTuple):
    """A gateway forwards bundles to another of its rings."""

    target: AttachedRing
    sources: frozenset[int]
    """The rings on which the forwarded bundles were sent first."""
    nodes: frozenset[NodeId]
    """The nodes that the bundles reach that way."""

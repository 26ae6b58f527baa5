"""What a node broadcasts on one of its rings: control messages always, ordered traffic only while it may."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ordercast.core.contract import Effect
from ordercast.core.identity import Guarantee
from ordercast.core.packing import NEARLY, SendQueue
from ordercast.rings.bundles import BUNDLE_SIZE
from ordercast.rings.messages import SHARED_SIZE, write_several
from ordercast.totem.circulation import Outbox
from ordercast.totem.config import TotemConfig
from ordercast.totem.limits import Limits
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import Data

LARGEST_QUEUE = 2**40
"""The layer above bounds what it puts into the queues; they themselves refuse nothing."""


_APART = Guarantee.K1
"""Packets are made of messages of one guarantee. On the ring, all of these are agreed."""


class RingOutbox:
    """Two queues for one ring.

    Control messages, which agree on the topology, go out first, and always. Traffic of a component
    configuration (messages, forwarded messages, vectors) goes out only while that configuration is in force
    here: the layer above opens the way when it installs one, and closes it when it gives it up; a new ring
    closes it by itself, before anything is broadcast on it.
    """

    def __init__(self, config: TotemConfig) -> None:
        self._config = config
        self._control = Outbox(config, timed=True)
        self._traffic = Outbox(config, timed=True)
        self._control.queue = SendQueue(LARGEST_QUEUE)
        self._nearly = 1 if config.packet_size > BUNDLE_SIZE else NEARLY
        """A bundle that a packet could take whole is not cut into fragments, where packets are large."""
        self._traffic.queue = SendQueue(LARGEST_QUEUE, self._nearly)
        self._both = (self._control, self._traffic)
        self.open = False
        self.vector: Callable[[], bytes] | None = None
        """Writes the Guarantee Vector that is due, when it can be broadcast."""
        self._places: list[bytes] = []
        """Forwarded bundles without contents, which wait for what goes out behind them."""
        self._places_bytes = 0
        self._halfway = False
        """A message of the traffic is partly broadcast: nothing may come between its fragments."""

    # --- for the layer above --------------------------------------------------------------------

    def put(self, payload: bytes, apart: bool = False) -> None:
        """Broadcast traffic of the configuration in force; what is `apart` shares no packet with the rest."""
        self._traffic.accept((payload,), _APART if apart else Guarantee.AGREED)

    def put_place(self, payload: bytes) -> None:
        """Broadcast a forwarded bundle without contents: with the next one that has them, or the vector."""
        self._places.append(payload)
        self._places_bytes += len(payload)

    def put_behind(self, payload: bytes) -> None:
        """Broadcast what may not come before the places that wait."""
        for together in write_several((*self._places, payload)):
            self.put(together)
        self._places.clear()
        self._places_bytes = 0

    def close(self) -> None:
        """Give up all traffic that is not broadcast yet."""
        self.open = self._halfway = False
        self.vector = None
        self._places.clear()
        self._places_bytes = 0
        self._traffic.queue = SendQueue(LARGEST_QUEUE, self._nearly)

    @property
    def control_bytes(self) -> int:
        """Bytes of control messages that wait."""
        return LARGEST_QUEUE - self._control.room

    @property
    def traffic_bytes(self) -> int:
        """Bytes of traffic that wait."""
        return LARGEST_QUEUE - self._traffic.room + self._places_bytes

    # --- for the ring ---------------------------------------------------------------------------

    @property
    def incarnation(self) -> int:
        """The life of the node that broadcasts."""
        return self._control.incarnation

    @incarnation.setter
    def incarnation(self, incarnation: int) -> None:
        for box in self._both:
            box.incarnation = incarnation

    @property
    def closed(self) -> bool:
        """Somebody brakes on the ring itself."""
        return self._control.closed

    @closed.setter
    def closed(self, closed: bool) -> None:
        for box in self._both:
            box.closed = closed

    @property
    def waiting(self) -> bool:
        """Whether there is something that could be broadcast."""
        return self._control.waiting or (self.open and (self._traffic.waiting or self.vector is not None))

    @property
    def room(self) -> int:
        """Bytes of control messages that may be submitted now."""
        return self._control.room

    def accept(self, payloads: Sequence[bytes], guarantee: Guarantee) -> int:
        """Take control messages in order; the number of the first."""
        return self._control.accept(payloads, guarantee)

    def fit(self, limits: Limits) -> None:
        """From now on, make packets that all members of a ring can take."""
        for box in self._both:
            box.fit(limits)

    def adapt(self, lossy: bool) -> None:
        """Fill packets less while some are being lost, and more again when none are."""
        for box in self._both:
            box.adapt(lossy)

    def rewind(self) -> None:
        """A new ring: the configuration that was in force is not any more."""
        self._control.rewind()
        self.close()

    @property
    def backlog(self) -> int:
        """About how many datagrams wait."""
        traffic = 0
        if self.open:
            traffic = self._traffic.backlog
            if self.vector is not None:
                traffic += 1 + self._places_bytes // SHARED_SIZE
        return self._control.backlog + traffic

    def next_packet(self, ring: Ring, seq: int, most: int, effects: list[Effect]) -> Data | None:
        """The next packet, made of control messages if there are any."""
        if self.open and self.vector is not None:
            write, self.vector = self.vector, None
            self.put_behind(write())
        packet = None
        if not self._halfway:
            packet = self._control.next_packet(ring, seq, most, effects)
        if packet is None and self.open:
            packet = self._traffic.next_packet(ring, seq, most, effects)
            self._halfway = packet is not None and packet.unfinished
        return packet

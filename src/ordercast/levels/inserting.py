"""Putting messages into the order: those of a primary's own application, and of sources below it, in turn.

What a primary broadcasts are *bundles*, each of one source. It broadcasts few at a time, and chooses the next
one from its own application and from each source below it in turn: who sends much keeps nobody waiting.

A secondary source has each message put into the order of the view that it is in, by any primary, or by
several if it is in doubt. Each bundle of its names that view; in another one it is dropped, by all alike.
Within the view the numbers of its messages have to follow on: what was put in twice is dropped, by all alike.
When the view ends the source knows all that was in it, and has the rest put into the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from ordercast.core.identity import Batch, ConfigurationId, Guarantee, NodeId
from ordercast.core.wire import UNREADABLE
from ordercast.levels.packets import Count, Insert, Life, Node, View

BUNDLE_SIZE = 16 * 1024
"""Bytes of messages in one bundle; a larger message has one of its own."""
MOST_IN_BUNDLE = 1_024
IN_FLIGHT = 8
"""Bundles that a primary has on the way: more would only wait, and nobody could have a turn before them."""
MOST_WAITING = 256
"""Messages of one source below that wait for their turn: more than a source has on the way at a time."""
SLOT_BITS = 16
"""A bundle's messages have places of their own behind that of the bundle in its packet."""

Source = tuple[NodeId, int]
"""A node and its life."""


class Bundle(msgspec.Struct, array_like=True, frozen=True):
    """Messages of one source, with consecutive numbers."""

    origin: Node
    incarnation: Life
    view: View | None
    """The view in whose order they may be; None for those of the primary that broadcasts them."""
    base: Count
    """The number of the first message of this source that may be in the view's order."""
    number: Count
    payloads: Annotated[tuple[bytes, ...], Meta(min_length=1)]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Bundle)


def read_bundle(payload: bytes) -> Bundle | None:
    """A bundle, or None if it is none."""
    try:
        bundle: Bundle = _decoder.decode(payload)
    except UNREADABLE:
        return None
    return bundle


class _Queue:
    """Messages of one source that wait for their turn."""

    def __init__(self, view: ConfigurationId | None, base: int) -> None:
        self.view = view
        self.base = base
        self.messages: deque[tuple[int, Guarantee, bytes]] = deque()
        self.size = 0

    def add(self, number: int, guarantee: Guarantee, payloads: Sequence[bytes]) -> None:
        """Messages with consecutive numbers."""
        for at, payload in enumerate(payloads, number):
            self.messages.append((at, guarantee, payload))
            self.size += len(payload)

    def take(self, origin: NodeId, incarnation: int) -> tuple[Bundle, Guarantee]:
        """The next bundle: messages with one guarantee."""
        number, guarantee, _ = self.messages[0]
        taken: list[bytes] = []
        room = BUNDLE_SIZE
        while self.messages and len(taken) < MOST_IN_BUNDLE:
            _, asked, payload = self.messages[0]
            room -= len(payload)
            if asked is not guarantee or (taken and room < 0):
                break
            taken.append(payload)
            self.messages.popleft()
            self.size -= len(payload)
        view = None if self.view is None else (self.view.seq, self.view.rep)
        return Bundle(origin, incarnation, view, self.base, number, tuple(taken)), guarantee


class Inserting:
    """The queues of a primary, and whose turn it is."""

    def __init__(self, me: NodeId, limit: int) -> None:
        """`limit` bounds the bytes of its own application's messages that wait."""
        self._me = me
        self._limit = limit
        self.incarnation = 0
        self.own = _Queue(None, 0)
        self._queues: dict[Source, _Queue] = {}
        self._turns: deque[Source | None] = deque([None])
        """Whose turn is next; None is its own application."""
        self._next: dict[Source, int] = {}
        """By source below, the number of the message that this primary puts into the view's order next."""
        self._numbers = 1
        self.in_flight = 0
        """Bundles of this primary that it has not delivered yet."""

    @property
    def room(self) -> int:
        """Bytes of own messages that may be added."""
        return self._limit - self.own.size

    def begin_view(self) -> None:
        """Another view: what waits of sources below was for the last one."""
        self._queues.clear()
        self._next.clear()
        self._turns = deque([None])

    def accept(self, payloads: Sequence[bytes], guarantee: Guarantee) -> int:
        """Own messages: the number of the first."""
        first = self._numbers
        self._numbers += len(payloads)
        self.own.add(first, guarantee, payloads)
        return first

    def insert(self, packet: Insert, view: ConfigurationId, delivered: int) -> int:
        """Messages of a source below, for this view: how many of them are new here.

        Those before `delivered` are in the order already; another primary may have put them there.
        """
        source = (packet.origin, packet.incarnation)
        expected = max(self._next.get(source, packet.base), delivered)
        known = expected - packet.number
        if not 0 <= known < len(packet.payloads):
            return 0  # there is a gap before them, which is sent again; or they were here before
        if source not in self._queues:
            self._queues[source] = _Queue(view, packet.base)
            self._turns.append(source)
        queue = self._queues[source]
        new = packet.payloads[known : known + MOST_WAITING - len(queue.messages)]
        queue.add(expected, Guarantee(packet.guarantee), new)
        self._next[source] = expected + len(new)
        return len(new)

    def take(self) -> tuple[bytes, Guarantee] | None:
        """The next bundle, of who has waited longest among those who have something to send."""
        if self.in_flight >= IN_FLIGHT:
            return None
        for _ in range(len(self._turns)):
            source = self._turns[0]
            self._turns.rotate(-1)
            queue = self.own if source is None else self._queues[source]
            if queue.messages:
                bundle, guarantee = queue.take(*(source or (self._me, self.incarnation)))
                self.in_flight += 1
                return _encoder.encode(bundle), guarantee
        return None


class Unbundling:
    """What the bundles of a view's order hold, at one primary: the same at all."""

    def __init__(self) -> None:
        self._expected: dict[Source, int] = {}
        """By source below, the number of its next message in this view."""

    def begin_view(self) -> None:
        """Another view begins."""
        self._expected.clear()

    def expected(self, source: Source) -> int:
        """The number of a source's next message, as far as is known here; 0 if none was in this view."""
        return self._expected.get(source, 0)

    def messages(self, batch: Batch, bundle: Bundle, place: int) -> Batch | None:
        """The messages of a bundle, at their place; None if they are not to be delivered."""
        source = (bundle.origin, bundle.incarnation)
        number, payloads = bundle.number, bundle.payloads
        if bundle.view is None:
            if source != (batch.origin, batch.incarnation):
                return None
        else:
            expected = self._expected.get(source, bundle.base)
            known = expected - number
            if bundle.view != batch.configuration or not 0 <= known < len(payloads):
                return None
            number, payloads = expected, payloads[known:]
            self._expected[source] = number + len(payloads)
        slot = (batch.slot + place) << SLOT_BITS
        return batch._replace(
            slot=slot,
            origin=bundle.origin,
            incarnation=bundle.incarnation,
            number=number,
            payloads=payloads,
        )


def bundles_in(batch: Batch) -> Iterator[tuple[int, Bundle | None]]:
    """The bundles of a packet, each with its place in it."""
    for place, payload in enumerate(batch.payloads):
        yield place, read_bundle(payload)

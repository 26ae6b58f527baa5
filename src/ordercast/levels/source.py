"""The messages of a node below the primary ring, until they come back in the order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from ordercast.core.contract import Accept
from ordercast.core.identity import Batch, ConfigurationId, Guarantee, NodeId
from ordercast.levels.config import LevelsConfig
from ordercast.levels.packets import Insert

LARGEST = 32 * 1024
"""Bytes of the largest message of a secondary source: it goes up in one packet."""
WINDOW, WINDOW_BYTES = 64, 48 * 1024
"""Messages, and bytes, that a source has on the way up at a time; one message in any case."""


class Source:
    """The messages that one node sends by way of a primary, until they come back in the order."""

    def __init__(self, me: NodeId, config: LevelsConfig, allowed: bool) -> None:
        self.me = me
        self.incarnation = 0
        self.allowed = allowed
        """Whether the node may send."""
        self._limit = config.send_queue
        self._resilience = config.resilience
        self._messages: deque[tuple[int, Guarantee, bytes]] = deque()
        """Messages that have not come back yet, by number."""
        self._size = 0
        self._numbers = 1
        self._base = 1
        """The number of the first that had not come back when the view began."""
        self._sent = 0
        """How many of them are on the way."""
        self._originated = 0
        """The highest number that was ever sent."""
        self._oldest = 0
        """The first that was on the way when it was last looked whether any had come back."""

    @property
    def room(self) -> int:
        """Size of the largest message that may be accepted now."""
        return max(0, min(LARGEST, self._limit - self._size)) if self.allowed else 0

    @property
    def idle(self) -> bool:
        """Whether everything that was accepted has come back."""
        return not self._messages

    def accept(self, payloads: Sequence[bytes], guarantee: Guarantee) -> Accept:
        """Take messages, in order."""
        if not self.allowed:
            raise ValueError(
                f"node {self.me} only receives: name it among the sources, at all nodes, if it is to send"
            )
        largest = max(map(len, payloads), default=0)
        if largest > LARGEST:
            raise ValueError(
                f"a message of {largest} bytes is larger than the {LARGEST} of a secondary source; "
                "split it, or send it at a primary"
            )
        if guarantee is Guarantee.AGREED and self._resilience:
            guarantee = Guarantee.of(self._resilience)
        first = self._numbers
        for number, payload in enumerate(payloads, first):
            self._messages.append((number, guarantee, payload))
            self._size += len(payload)
        self._numbers += len(payloads)
        return Accept(first)

    def begin_view(self) -> None:
        """Another view: what of the last one did not come back was not in its order."""
        self._base = self._messages[0][0] if self._messages else self._numbers
        self._sent = 0

    def delivered(self, batch: Batch) -> None:
        """Messages are in the order; perhaps some of these."""
        if (batch.origin, batch.incarnation) != (self.me, self.incarnation):
            return
        last = batch.number + len(batch.payloads) - 1
        while self._messages and self._messages[0][0] <= last:
            self._size -= len(self._messages.popleft()[2])
            self._sent = max(0, self._sent - 1)

    def again(self) -> None:
        """It is time to send again, if the first that is on the way was so the last time, too."""
        oldest = self._messages[0][0] if self._messages else 0
        if oldest == self._oldest:
            self._sent = 0
        self._oldest = oldest

    def due(self, view: ConfigurationId) -> Iterator[tuple[Insert, Batch | None]]:
        """What is to be sent now, each with the messages that were never sent before."""
        while self._sent < min(WINDOW, len(self._messages)):
            number, guarantee, _ = self._messages[self._sent]
            taken: list[bytes] = []
            room = WINDOW_BYTES if self._sent else LARGEST
            for index in range(self._sent, min(WINDOW, len(self._messages))):
                _, asked, payload = self._messages[index]
                room -= len(payload)
                if asked is not guarantee or (taken and room < 0):
                    break
                taken.append(payload)
            self._sent += len(taken)
            payloads = tuple(taken)
            insert = Insert(self.me, self.incarnation, self._base, number, guarantee.value, payloads)
            yield insert, self._first_sent(view, insert, guarantee)

    def _first_sent(self, view: ConfigurationId, insert: Insert, guarantee: Guarantee) -> Batch | None:
        known = max(0, self._originated + 1 - insert.number)
        new = insert.payloads[known:]
        if not new:
            return None
        self._originated = insert.number + len(insert.payloads) - 1
        return Batch(view, 0, 0, self.me, self.incarnation, insert.number + known, guarantee, new)

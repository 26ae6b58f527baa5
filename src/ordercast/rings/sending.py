"""What the application of a node sends: accepted, bundled, handed to the node's first ring."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from ordercast.core.contract import QueueFull
from ordercast.core.identity import Guarantee
from ordercast.core.packing import MESSAGE_OVERHEAD
from ordercast.rings.config import RingsConfig
from ordercast.rings.messages import BUNDLE, read_bundle, write_bundles

FEED = 4 * 1024 * 1024
"""Bytes of bundles that wait in the outbox of the ring; the others wait here."""
_BUNDLE = bytes((BUNDLE,))


def is_bundle(payload: bytes) -> bool:
    """Whether a ring's payload carries messages of a member of that ring."""
    return payload[:1] == _BUNDLE


class Sending:
    """Messages that were accepted, and that not everybody has yet."""

    def __init__(self, config: RingsConfig) -> None:
        self._config = config
        self._waiting: deque[bytes] = deque()
        """Bundles that wait here."""
        self._fed: deque[bytes] = deque()
        """Bundles in the outbox of the ring."""
        self._fed_bytes = 0
        self._used = 0
        """Bytes of messages that were accepted and are not broadcast, with `MESSAGE_OVERHEAD` for each."""
        self._accepted = 0
        self.unsafe = 0
        """Bundles that were broadcast, and that not all members are known to have."""

    @property
    def idle(self) -> bool:
        """Whether everything that was accepted is broadcast, and everybody has it."""
        return not (self._waiting or self._fed or self.unsafe)

    @property
    def room(self) -> int:
        """Size of the largest message that may be accepted now."""
        return max(0, min(self._config.send_queue - self._used, self._config.max_message_size))

    def accept(self, payloads: Sequence[bytes], guarantee: Guarantee) -> int:
        """Take messages in order, all or none; the number of the first."""
        if guarantee is not Guarantee.AGREED and guarantee is not Guarantee.SAFE:
            raise ValueError(f"rings have no level of resilience {guarantee}: send agreed, or safe")
        most = self._config.max_message_size
        largest = max(map(len, payloads), default=0)
        if largest > most:
            raise ValueError(
                f"a message of {largest} bytes is larger than max_message_size ({most}); "
                "split it, or raise the limit at every node"
            )
        size = sum(map(len, payloads))
        if not 0 < self._config.send_queue - self._used >= size:
            raise QueueFull(
                f"{len(payloads)} messages of {size} bytes do not fit; "
                "wait until the queue drains and submit again"
            )
        first = self._accepted + 1
        self._waiting += write_bundles(payloads, first, guarantee)
        self._accepted += len(payloads)
        self._used += size + MESSAGE_OVERHEAD * len(payloads)
        return first

    def feed(self, most: int) -> Iterator[bytes]:
        """The bundles that go to the ring's outbox now, where no more than so many bytes may wait."""
        while self._waiting and self._fed_bytes < min(most, FEED):
            bundle = self._waiting.popleft()
            self._fed.append(bundle)
            self._fed_bytes += len(bundle)
            yield bundle

    def originated(self, payload: bytes) -> None:
        """The next bundle of the outbox is broadcast."""
        assert payload == self._fed.popleft(), "bundles are broadcast in order"
        self._fed_bytes -= len(payload)
        self.unsafe += 1
        bundle = read_bundle(payload)
        assert bundle is not None, "this node wrote it"
        self._used -= sum(map(len, bundle.payloads)) + MESSAGE_OVERHEAD * len(bundle.payloads)

    def take_back(self) -> None:
        """The ring's outbox was emptied: what is not broadcast waits here again."""
        self._waiting.extendleft(reversed(self._fed))
        self._fed.clear()
        self._fed_bytes = 0

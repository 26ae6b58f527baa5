"""What the application of a node sends: accepted, bundled, handed to the node's first ring."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby

from ordercast.core.addresses import groups_part, runs_of
from ordercast.core.contract import QueueFull
from ordercast.core.fronted import bytes_of, longest_of
from ordercast.core.identity import Guarantee
from ordercast.core.packing import MESSAGE_OVERHEAD
from ordercast.rings.bundles import (
    BUNDLE,
    Bundle,
    Interest,
    is_interest,
    write_bundles,
    write_interest,
)
from ordercast.rings.config import RingsConfig
from ordercast.rings.interests import covers

FEED = 4 * 1024 * 1024
"""Bytes of bundles that wait in the outbox of the ring; the others wait here."""
_BUNDLE = bytes((BUNDLE,))
_TELL = b""
"""Stands among the bundles that wait where the others have to know first what this node needs."""


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
        self._interest: Interest | None = None
        """What this node needs; None if it was never said."""
        self._told: Interest | None = None
        """What the others were told of that in this configuration."""
        self._telling = False
        """Not all are known to have heard what they were told last,"""
        self._told_at = 0
        """which has this timestamp, if it is broadcast."""
        self._holding = False
        """What waits is held until they are."""

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
        largest = longest_of(payloads)
        if largest > most:
            raise ValueError(
                f"a message of {largest} bytes is larger than max_message_size ({most}); "
                "split it, or raise the limit at every node"
            )
        size = bytes_of(payloads)
        if not 0 < self._config.send_queue - self._used >= size:
            raise QueueFull(
                f"{len(payloads)} messages of {size} bytes do not fit; "
                "wait until the queue drains and submit again"
            )
        first = self._accepted + 1
        for groups, run in self._runs(payloads):
            number = self._accepted + 1
            self._waiting += write_bundles(run, number, guarantee, bool(groups), self._config.bundle_size)
            self._accepted += len(run)
        self._used += size + MESSAGE_OVERHEAD * len(payloads)
        return first

    def _runs(self, payloads: Sequence[bytes]) -> Iterator[tuple[bytes, Sequence[bytes]]]:
        """Messages to the same groups, as long as they follow each other: in a bundle of their own."""
        begin = 0
        for groups, runs in groupby(runs_of(payloads), lambda run: groups_part(payloads[run.start])):
            *_, last = runs
            yield groups, payloads if len(payloads) == last.stop - begin else payloads[begin : last.stop]
            begin = last.stop

    def attend(self, interest: Interest) -> None:
        """This node needs something else from here on: of what is accepted next, others may hear once all
        know."""
        self._interest = interest
        if self._told is not None and not covers(self._told, interest) and _TELL not in self._waiting:
            self._waiting.append(_TELL)

    def feed(self, most: int) -> Iterator[bytes]:
        """The bundles that go to the ring's outbox now, where no more than so many bytes may wait."""
        if self._interest is not None and (self._told is None or self._needs_less()):
            yield self._tell(self._interest)
        while self._waiting and not self._holding and self._fed_bytes < min(most, FEED):
            bundle = self._waiting[0]
            if bundle is _TELL:
                if self._telling:
                    return
                assert self._interest is not None, "there is something to tell"
                bundle = self._tell(self._interest)
                self._holding = True
            self._waiting.popleft()
            if not self._holding:
                self._fed.append(bundle)
                self._fed_bytes += len(bundle)
            yield bundle

    def _needs_less(self) -> bool:
        """Whether the others may be told that this node needs less; if it needs more, that has its place."""
        return self._told != self._interest and not self._telling and _TELL not in self._waiting

    def _tell(self, interest: Interest) -> bytes:
        self._told, self._telling, self._told_at = interest, True, 0
        bundle = write_interest(interest)
        self._fed.append(bundle)
        self._fed_bytes += len(bundle)
        return bundle

    def acknowledged(self, stable: int) -> None:
        """All members have everything up to this timestamp."""
        if self._telling and 0 < self._told_at <= stable:
            self._telling = self._holding = False

    def originated(self, bundle: Bundle, timestamp: int) -> None:
        """The next bundle of the outbox is broadcast, with this timestamp."""
        assert bundle.raw == self._fed.popleft(), "bundles are broadcast in order"
        self._fed_bytes -= len(bundle.raw)
        if bundle.interest is not None:
            self._told_at = timestamp
            return
        self.unsafe += 1
        self._used -= bytes_of(bundle.payloads) + MESSAGE_OVERHEAD * len(bundle.payloads)

    def take_back(self) -> None:
        """The ring's outbox was emptied: what is not broadcast waits here again.

        In the next configuration the others are told first what this node needs, and until they are, they
        take it that it needs everything.
        """
        fed = [bundle for bundle in self._fed if not is_interest(bundle)]
        self._waiting = deque(bundle for bundle in (*fed, *self._waiting) if bundle is not _TELL)
        self._fed.clear()
        self._fed_bytes = 0
        self._told, self._telling, self._holding = None, False, False

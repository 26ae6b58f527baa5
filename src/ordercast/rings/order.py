"""The total order of one component configuration, as one of its nodes sees it (001, "Message Ordering")."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from ordercast.core.contract import Deliver, Effect, Stable
from ordercast.core.identity import Batch, ConfigurationId, NodeId
from ordercast.rings.bundles import is_safe, is_withheld
from ordercast.rings.messages import Entry, Place, Ring

SOURCE_BITS = 10
"""Bits of the index of the source ring in a message's place in the order (`Batch.seq`)."""


def seq_of(place: Place) -> int:
    """A bundle's place as one number: by timestamp, and by source ring where these are equal (001)."""
    return place.timestamp << SOURCE_BITS | place.source


class Order:
    """What was received of a configuration, how far it is complete, and what may be delivered.

    Timestamps of one source ring rise, so its *horizon* says how much of it is here: everything up to that
    timestamp. With an entry of each ring, the paper's `recv_msgs` lists that are not empty say the same.
    """

    def __init__(
        self, configuration: ConfigurationId, members: Sequence[NodeId], rings: tuple[Ring, ...]
    ) -> None:
        self.id = configuration
        self.members = tuple(members)
        self.rings = rings
        self.horizon = [0] * len(rings)
        """By ring: everything that it originated up to this timestamp is here."""
        self.acknowledged = [0] * len(rings)
        """By ring: all its members have everything of all rings up to this timestamp."""
        self.latest = 0
        """The highest timestamp of a bundle that is here."""
        self.entries: dict[Place, Entry] = {}
        """Bundles that not everybody is known to have, delivered ones too."""
        self.loose: dict[Place, Entry] = {}
        """Bundles that came when something before them may be missing."""
        self.obligations: frozenset[NodeId] = frozenset()
        """Whose loose bundles are delivered: those with whom this node has said `Done`."""
        self.last_seq = 0
        """Place of the last message delivered."""
        self._last = Place(0, 0, 0)
        """Place of the last bundle handed over; it may have no messages."""
        self.waiting_bytes = 0
        """Bytes of bundles that are not delivered yet."""
        self._waiting: list[Place] = []
        self._unstable: deque[tuple[Place, Batch]] = deque()

    @property
    def complete(self) -> int:
        """Everything up to this timestamp is here."""
        return min(self.horizon, default=0)

    @property
    def stable(self) -> int:
        """Every member of the configuration has everything up to this timestamp."""
        return min(self.acknowledged, default=0)

    def add(self, entry: Entry) -> bool:
        """Keep a bundle; whether it is news."""
        place = entry.place
        known = self.entries.get(place)
        if known is not None:
            if fuller(entry, known):
                self.entries[place] = entry
                self.waiting_bytes += (len(entry.raw) - len(known.raw)) * (place > self._last)
            return False
        if place.timestamp <= self.stable or place.source >= len(self.rings):
            return False
        self.entries[place] = entry
        heappush(self._waiting, place)
        self.waiting_bytes += len(entry.raw)
        if place.timestamp > self.latest:
            self.latest = place.timestamp
        return True

    def add_loose(self, entry: Entry) -> None:
        """Keep a bundle before which something may be missing, unless it is here already or was delivered."""
        place = entry.place
        if place in self.entries or place.timestamp <= self.horizon[place.source]:
            return
        known = self.loose.get(place)
        if known is None or fuller(entry, known):
            self.loose[place] = entry

    def scattered(self) -> list[Place]:
        """Bundles that are here although something before them from their ring may not be."""
        beyond = [place for place in self._waiting if place.timestamp > self.horizon[place.source]]
        return sorted({*self.loose, *beyond})

    def withheld(self) -> list[Place]:
        """The bundles here that not everybody is known to have, and that are without their contents."""
        kept = {**self.entries, **self.loose}
        return sorted(place for place, entry in kept.items() if is_withheld(entry.raw))

    def __contains__(self, place: Place) -> bool:
        return place in self.loose or place in self.entries

    def at(self, place: Place) -> Entry:
        """The bundle at a place."""
        return self.loose[place] if place in self.loose else self.entries[place]

    def waiting_for(self) -> list[tuple[int, int]]:
        """By ring: how many bundles wait for a word from it, and how many safe ones for its members to have
        them."""
        agreed = sorted(place.timestamp for place in self._waiting)
        safe = sorted(place.timestamp for place in self._waiting if is_safe(self.entries[place].raw))
        return [
            (len(agreed) - bisect_right(agreed, here), len(safe) - bisect_right(safe, acknowledged))
            for here, acknowledged in zip(self.horizon, self.acknowledged, strict=True)
        ]

    def deliver(self, effects: list[Effect]) -> None:
        """Deliver what is next: agreed when everything before is here, safe when all have it (001)."""
        waiting, complete, stable = self._waiting, self.complete, self.stable
        while waiting and waiting[0].timestamp <= complete:
            entry = self.entries[waiting[0]]
            if waiting[0].timestamp > stable and is_safe(entry.raw):
                break
            heappop(waiting)
            self._hand_over(entry, effects)
        self._forget(stable, effects)

    def settle(self, complete: int, stable: int, effects: list[Effect]) -> list[Entry]:
        """Deliver what is due in a configuration that ends, by what its remaining members know together.

        What is left, in order: to be delivered in the transitional configuration, if at all.
        """
        rest = sorted({**self.loose, **{place: self.entries[place] for place in self._waiting}}.values())
        for i, entry in enumerate(rest):
            timestamp = entry.place.timestamp
            if timestamp > complete or (timestamp > stable and is_safe(entry.raw)):
                return rest[i:]
            self._hand_over(entry, effects)
        return []

    def deliver_rest(self, rest: Iterable[Entry], complete: int, effects: list[Effect]) -> None:
        """Deliver what is left, in the transitional configuration (000 §7.2).

        Behind a gap, only what those sent who come along: none of them has seen what is missing, so nothing
        of theirs depends on it.
        """
        for entry in rest:
            if entry.place.timestamp <= complete or entry.origin in self.obligations:
                self._hand_over(entry, effects)

    def _hand_over(self, entry: Entry, effects: list[Effect]) -> None:
        batch = self.batch(entry)
        if batch.payloads:  # else the bundle tells what its sender needs
            effects.append(Deliver(batch))
            self.last_seq = batch.seq
        self._last = entry.place
        self._unstable.append((entry.place, batch))
        self.waiting_bytes -= len(entry.raw)

    def batch(self, entry: Entry) -> Batch:
        """The messages of a bundle at their places."""
        place, origin, incarnation, bundle = entry
        return Batch(
            self.id,
            seq_of(place),
            place.slot,
            origin,
            incarnation,
            bundle.number,
            bundle.guarantee,
            bundle.payloads,
            place.timestamp,
            self.rings[place.source].network,
        )

    def _forget(self, stable: int, effects: list[Effect]) -> None:
        """Give up what everybody has."""
        unstable = self._unstable
        gone: list[Batch] = []
        while unstable and unstable[0][0].timestamp <= stable:
            place, batch = unstable.popleft()
            if batch.payloads:
                gone.append(batch)
            del self.entries[place]
        if gone:
            effects.append(Stable(gone))


def fuller(entry: Entry, known: Entry) -> bool:
    """Whether a bundle has the contents of its messages, and the same one that is known has not."""
    return is_withheld(known.raw) and not is_withheld(entry.raw)

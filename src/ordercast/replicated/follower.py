"""An object that follows a replicated one, from what its replicas tell (`telling.py`), and is no replica.

It begins with the first state that is told, and carries out what is told behind that, in the order of the
history; each piece says by its checksum of which history it is. Where it misses something it waits for the
next state. All that it is can be kept between two calls (`saved`).
"""

from __future__ import annotations

import logging
from typing import Generic, TypeVar
from zlib import crc32

import msgspec

from ordercast.replicated.durable.heads import START, Head
from ordercast.replicated.effects import Failed
from ordercast.replicated.execution import Execution
from ordercast.replicated.history_notes import Piece, Slice, read
from ordercast.replicated.notes import read_entry
from ordercast.replicated.replicated import Replicated, Subject
from ordercast.replicated.snapshot import Restored, Unsound

LOG = logging.getLogger("ordercast")

T = TypeVar("T", bound=Replicated)
MOST_TELLERS = 4
"""States of so many replicas may be on their way at a time."""


class _Saved(msgspec.Struct, array_like=True):
    """A follower, as it is kept."""

    state: list[bytes]
    """The slices of its state; none: it has none."""
    coming: list[Slice]
    """Parts of states that have not come whole."""
    waits: bool


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Saved).decode


class Follower(Generic[T]):
    """An object of the class whose history is told, made like those of the replicas."""

    def __init__(self, target: T, saved: bytes | None = None) -> None:
        """`saved`: go on with that."""
        self.target = target
        self.head: Head | None = None
        """Up to where the history was carried out; None: no state has come yet."""
        self.waits = False
        """Whether something is missing: it waits for the next state."""
        self._subject = Subject(target)
        self._initial = self._subject.initial
        self._execution = Execution(self._subject, 0, START)
        self._coming: dict[int, list[Slice]] = {}
        if saved is not None:
            kept = _decode(saved)
            self.waits = kept.waits
            for each in kept.coming:
                self._coming.setdefault(each.teller, []).append(each)
            if kept.state:
                self._take(kept.state)

    def deliver(self, payload: bytes) -> list[str]:
        """Carry out what was told next; the fingerprints that were taken meanwhile.

        Raises `ConfigProblem` if the class lacks something that the replicas' has."""
        note = read(payload)
        if isinstance(note, Piece):
            return self._go_on(note)
        if isinstance(note, Slice):
            self._collect(note)
        return []

    @property
    def position(self) -> int:
        """The number of what was carried out last, as commands know it (`Replicated.position`)."""
        return self._execution.common.position

    def saved(self) -> bytes:
        """All that it is."""
        state: list[bytes] = []
        if self.head is not None:
            snapshot = self._execution.snapshot()
            while not snapshot.complete:
                snapshot.step()
            state = list(snapshot.slices())
        return _encode(_Saved(state, [part for parts in self._coming.values() for part in parts], self.waits))

    # --- the history ----------------------------------------------------------------------------

    def _go_on(self, piece: Piece) -> list[str]:
        head = self.head
        if head is None or _place(piece.head) <= _place(head):
            return []
        known = head.position - piece.base.position
        if not 0 <= known <= len(piece.entries) or not self._leads_on(head, piece, known):
            if not self.waits:
                LOG.warning("what follows %s of the history was not told: the next state is awaited", head)
            self.waits = True
            return []
        self.waits = False
        self.target._fingerprints = None
        for sender, payload in piece.entries[known:]:
            head = Head(piece.head.epoch, head.position + 1, crc32(payload, head.checksum))
            done = self._execution.carry_out(head, sender, read_entry(payload))
            if isinstance(done, Failed):
                raise done.problem
        self.head = head
        return list(self.target._fingerprints or ())

    @staticmethod
    def _leads_on(head: Head, piece: Piece, known: int) -> bool:
        """Whether what is new of a piece leads from here to its end."""
        checksum = head.checksum
        for _, payload in piece.entries[known:]:
            checksum = crc32(payload, checksum)
        return checksum == piece.head.checksum

    # --- states ---------------------------------------------------------------------------------

    def _collect(self, part: Slice) -> None:
        parts = self._coming.pop(part.teller, [])
        if part.number != len(parts):
            return  # the beginning did not come by here
        parts.append(part)
        if not part.last:
            self._coming[part.teller] = parts
            if len(self._coming) > MOST_TELLERS:
                del self._coming[next(iter(self._coming))]
        elif self.head is None or _place(part.head) > _place(self.head):
            self._take([each.data for each in parts])
            self.waits = False

    def _take(self, slices: list[bytes]) -> None:
        state = Restored(self.target)
        for data in slices:
            state.add(data)
        if not state.whole:
            raise Unsound("a state was told of which the end is missing")
        self._execution.take(state, self._initial)
        self.head = state.head


def _place(head: Head) -> tuple[int, int]:
    return head.epoch, head.position

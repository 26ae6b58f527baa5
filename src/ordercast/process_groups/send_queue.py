"""What a node's processes want to have ordered, until the ordering machine takes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ordercast.core.contract import QueueFull, Submit
from ordercast.core.identity import Guarantee

ENTRY_OVERHEAD = 64
"""Bytes that a payload counts for beyond its own, so that empty ones are bounded too."""


class SendQueue:
    """Two queues: this node's `State`, which goes first, and all else, which is bounded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._states: deque[bytes] = deque()
        self.waiting: deque[tuple[bytes, Guarantee]] = deque()
        """All else, in order, and what was asked for."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._states) + len(self.waiting)

    @property
    def room(self) -> int:
        """Bytes of payload that may be put in now; 0 when it is full."""
        return max(0, self._limit - self._bytes)

    def tell(self, states: Iterable[bytes]) -> None:
        """This node's state, in parts, for the configuration that begins; replaces one that still waits."""
        self._states = deque(states)

    def put(self, payload: bytes, guarantee: Guarantee, *, urgent: bool = False) -> None:
        """A payload is to be ordered. Raises `QueueFull` if there is no room, but for an `urgent` one."""
        if not urgent and len(payload) > self.room:
            raise QueueFull(
                f"{len(payload)} bytes do not fit: {self.room} bytes of room; wait until the queue drains"
            )
        self.waiting.append((payload, guarantee))
        self._bytes += len(payload) + ENTRY_OVERHEAD

    def take(self, room: int, *, states_only: bool) -> Submit | None:
        """The next payloads that fit into `room` bytes and ask for one guarantee; None if there are none."""
        if self._states:
            return self._take_states(room)
        if states_only or not self.waiting:
            return None
        guarantee = self.waiting[0][1]
        taken: list[bytes] = []
        while self.waiting and self.waiting[0][1] is guarantee and len(self.waiting[0][0]) <= room:
            payload, _ = self.waiting.popleft()
            room -= len(payload)
            self._bytes -= len(payload) + ENTRY_OVERHEAD
            taken.append(payload)
        return Submit(taken, guarantee) if taken else None

    def _take_states(self, room: int) -> Submit | None:
        taken: list[bytes] = []
        while self._states and len(self._states[0]) <= room:
            room -= len(self._states[0])
            taken.append(self._states.popleft())
        return Submit(taken, Guarantee.AGREED) if taken else None

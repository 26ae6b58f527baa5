"""Messages on their way from the application to the machine: those of one turn are handed over together."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate

from ordercast.core.identity import Guarantee


class Outgoing:
    """Submitted messages that the machine was not given yet, in runs of one guarantee."""

    def __init__(self) -> None:
        self._runs: deque[tuple[list[bytes], Guarantee]] = deque()

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, payloads: Sequence[bytes], guarantee: Guarantee) -> None:
        """Messages behind those that are here."""
        if self._runs and self._runs[-1][1] is guarantee:
            self._runs[-1][0].extend(payloads)
        else:
            self._runs.append((list(payloads), guarantee))

    def take(self, room: int) -> tuple[list[bytes], Guarantee] | None:
        """The first run, or as much of it as fits into ``room`` bytes; None if nothing does."""
        if not self._runs or room <= 0:
            return None
        payloads, guarantee = self._runs[0]
        if sum(map(len, payloads)) <= room:
            self._runs.popleft()
            return payloads, guarantee
        fits = bisect_right(list(accumulate(map(len, payloads))), room)
        if not fits:
            return None
        self._runs[0] = payloads[fits:], guarantee
        return payloads[:fits], guarantee

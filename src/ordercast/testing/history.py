"""What clients asked of a system under test, and what they were answered: the history that a model judges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec


class Call(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An operation that a client called. It took effect at one moment between `began` and `ended`, if the
    system is linearizable; one that has not ended may take effect at any later moment, or never."""

    client: Any
    """Who called; for people."""
    name: str
    args: tuple[Any, ...] = ()
    began: float
    """When it was called, in seconds. An operation is before another one if it ended earlier than that began;
    at the same time they may be in either order."""
    ended: float | None = None
    """When it returned; None if that is not known to have happened."""
    result: Any = None

    def __str__(self) -> str:
        called = f"{self.name}({', '.join(map(repr, self.args))})"
        return f"{called}, no answer" if self.ended is None else f"{called} -> {self.result!r}"


class History:
    """Records calls as they begin and end; iterate over it to get them in the order in which they began."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: the time in seconds."""
        self._now = now
        self._last = -math.inf
        self._calls: list[Call] = []

    def _moment(self) -> float:
        """Now; later than any moment before, for what happens one after the other at the same time has an
        order."""
        self._last = max(self._now(), math.nextafter(self._last, math.inf))
        return self._last

    def begin(self, client: Any, name: str, *args: Any) -> int:
        """A client calls an operation; the number that `end` wants."""
        self._calls.append(Call(client=client, name=name, args=args, began=self._moment()))
        return len(self._calls) - 1

    def end(self, number: int, result: Any) -> None:
        """An operation has returned."""
        call = self._calls[number]
        self._calls[number] = msgspec.structs.replace(call, ended=self._moment(), result=result)

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

"""What is to be done in a world when: at a time, or when a node comes to a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from ordercast.core.identity import NodeId


class Timetable:
    """What waits to be done."""

    def __init__(
        self, context: Context, is_up: Callable[[NodeId], bool], failed: Callable[[BaseException], None]
    ) -> None:
        """All of it is done in the `context`; `failed` is told what it raises."""
        self._context = context
        self._is_up = is_up
        self._failed = failed
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._count = 0
        self._waiting: list[tuple[str, NodeId | None, Callable[[NodeId], Any]]] = []
        """What is to be done at moments, at which node."""

    def at(self, when: float, do: Callable[..., Any], *args: Any) -> None:
        """Do it at that time of the event loop."""
        self._count += 1
        self._timers[self._count] = asyncio.get_running_loop().call_at(
            when, self._due, self._count, do, args, context=self._context.copy()
        )

    def when(self, moment: str, do: Callable[[NodeId], Any], node: NodeId | None) -> None:
        """Do it, once, when a node comes to this moment, with that node; with `node`: when that one does."""
        self._waiting.append((moment, node, do))

    def come(self, id: NodeId, moment: str) -> None:
        """A node has come to a moment: do what waits for it."""
        if not self._is_up(id):
            return
        for each in [each for each in self._waiting if each[0] == moment and each[1] in (None, id)]:
            if self._is_up(id):
                self._waiting.remove(each)
                self._do(self._context.copy().run, each[2], id)

    def clear(self) -> None:
        """Nothing waits any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()

    def _due(self, number: int, do: Callable[..., Any], args: tuple[Any, ...]) -> None:
        del self._timers[number]
        self._do(do, *args)

    def _do(self, do: Callable[..., Any], *args: Any) -> None:
        try:
            do(*args)
        except Exception as error:  # noqa: BLE001 - the test is told
            self._failed(error)

"""Tickets: what a task asks a replicated object for carries one, so that asking again asks for the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from ordercast.replicated.session import outside


class Tickets:
    """Tickets of one replica, which no other one has."""

    def __init__(self, enter: Callable[[], Awaitable[int]]) -> None:
        """`enter`: a command whose result no other call of it has, like a position."""
        self._enter = enter
        self._replica: int | None = None
        self._numbers = count(1)

    async def draw(self) -> str:
        """A ticket that nobody has had."""
        number = next(self._numbers)
        if self._replica is None:
            self._replica = await asyncio.create_task(self._begin(), context=outside())
        return f"{self._replica}.{number}"

    async def _begin(self) -> int:
        return await self._enter()

"""Waiting for what a replicated object tells."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from ordercast.errors import OrdercastError
from ordercast.replicated.watching import Missed, Watch

LOOK_S = 2.0
"""Seconds after which who waits asks anew though nothing was told: so a node in a minority notices that it
waits in vain."""


async def told(events: Watch, concerns: Callable[[Any], bool]) -> None:
    """Wait for an event that concerns the caller, or may have been missed; for `LOOK_S` at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOOK_S):
            async for event in events:
                if isinstance(event, Missed) or concerns(event):
                    return


_withdrawing: set[asyncio.Task[None]] = set()


def withdraw(command: Awaitable[Any]) -> None:
    """Have a command carried out, without waiting for it. Where it cannot be, the others do as if it had been
    when they see that this node has left."""
    task = asyncio.create_task(_try(command))
    _withdrawing.add(task)
    task.add_done_callback(_withdrawing.discard)


async def _try(command: Awaitable[Any]) -> None:
    with contextlib.suppress(OrdercastError):
        await command

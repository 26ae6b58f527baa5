"""Waiting for what a replicated object tells."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from ordercast.errors import NoMajority, OrdercastError, Unanswered
from ordercast.replicated.session import outside
from ordercast.replicated.watching import Missed, Watch

LOOK_S = 2.0
"""Seconds after which who waits asks anew though nothing was told: so a node in a minority notices that it
waits in vain."""
AGAIN_S = 0.2
"""Seconds after which something is tried again."""


async def told(events: Watch, concerns: Callable[[Any], bool]) -> None:
    """Wait for an event that concerns the caller, or may have been missed; for `LOOK_S` at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOOK_S):
            async for event in events:
                if isinstance(event, Missed) or concerns(event):
                    return


_later: set[asyncio.Task[None]] = set()


def do_later(command: Callable[[], Awaitable[Any]]) -> None:
    """Have a command carried out that may be carried out more than once, without waiting for it; while this
    node is outside the primary partition it is tried again."""
    task = asyncio.create_task(_try(command), context=outside())
    _later.add(task)
    task.add_done_callback(_later.discard)


async def _try(command: Callable[[], Awaitable[Any]]) -> None:
    while True:
        try:
            await command()
        except (NoMajority, Unanswered):
            await asyncio.sleep(AGAIN_S)
        except OrdercastError:
            return  # the node has ended, and the others see that
        else:
            return

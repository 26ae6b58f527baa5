"""How tests show that something does not happen: by what would have happened after it, never by a pause.

An event loop runs what is ready in turns, and its timers in the order of their deadlines; loopback has handed
a datagram over when `sendto` returns. So a fixed number of turns, or a timer with a later deadline,
is enough, however slow the machine is.
"""

from __future__ import annotations

import asyncio

TURNS = 50


async def turns(count: int = TURNS) -> None:
    """So many turns of the event loop: callbacks that were ready have run, sockets with data were read."""
    for _ in range(count):
        await asyncio.sleep(0)


async def past(deadline_us: int) -> None:
    """Until every timer of this event loop has run that is due within so many microseconds from now."""
    reached = asyncio.Event()
    asyncio.get_running_loop().call_later(deadline_us / 1_000_000, reached.set)
    await reached.wait()
    await turns()

"""Those who watch an object: what its commands tell, at one replica."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, Self

from ordercast.errors import Evicted

MOST_EVENTS = 10_000
"""Events that wait for one who watches."""


class Missed(NamedTuple):
    """The node was away, and the object has got the state of another replica: what was told meanwhile did
    not come by here. Look at the object."""


class Watch:
    """Iterate over what an object's commands tell from now on, and `Missed`; each who watches gets copies of
    its own."""

    def __init__(self, name: str, closed: Callable[[Watch], None]) -> None:
        self._name = name
        self._closed = closed
        self._events: deque[Any] = deque()
        self._more = asyncio.Event()
        self._error: BaseException | None = None
        self._ended = False

    def put(self, event: Any) -> None:
        """Give an event to who watches, which nobody else has."""
        if len(self._events) >= MOST_EVENTS:
            self.end(
                Evicted(
                    f"who watches {self._name} has {MOST_EVENTS:,} events unread and was dropped: read "
                    "faster, or "
                    "watch again and look at the state",
                    self._name,
                    MOST_EVENTS,
                )
            )
            return
        self._events.append(event)
        self._more.set()

    def end(self, error: BaseException | None) -> None:
        """Nothing more happens; the error, if there is one, is raised behind what waits."""
        self._ended, self._error = True, error
        self._closed(self)
        self._more.set()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while not self._events:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._ended:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        return self._events.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(None)

"""How far a node's lifetime has come: it runs, it is leaving, or it is over."""

from __future__ import annotations

import asyncio

from ordercast.errors import NodeClosed

_LEAVING = "the node is leaving: it takes no more messages; make a new Node for another life"


class Lifetime:
    """Whether a node still takes messages, and what ended it if it does not."""

    def __init__(self) -> None:
        self.leaving = False
        """The node was told to leave, and finishes what it has accepted."""
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def over(self) -> bool:
        """Whether the node has ended."""
        return self._over.done()

    def leave(self) -> NodeClosed:
        """The node leaves from now on; answers with what whoever wants to send is told."""
        self.leaving = True
        return NodeClosed(_LEAVING)

    def end(self, error: BaseException | None) -> None:
        """The node has ended; None if it left of its own accord. Only the first end counts."""
        if self._over.done():
            return
        if error is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(error)
            self._over.exception()  # nobody may be waiting: that is no mistake

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, `timeout` seconds at most; whether it came."""
        done, _ = await asyncio.wait((self._over,), timeout=timeout)
        return bool(done)

    async def closed(self) -> None:
        """Wait for the end; raises the error that brought it."""
        await asyncio.shield(self._over)

    def check_open(self) -> None:
        """Raise what ended the node, if it has ended, or is about to."""
        if self._over.done():
            error = self._over.exception()
            if error is not None:
                raise error.with_traceback(None)
            raise NodeClosed("the node has left: make a new Node for another life")
        if self.leaving:
            raise NodeClosed(_LEAVING)

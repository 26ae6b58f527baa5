"""Another life of a node in the same process, where its machine ended the last one or failed.

Same sockets and links, a new incarnation and a new machine. What the application had sent and the old life
had not delivered is uncertain, as after a crash: receipts fail with `Excluded`, and the first configuration
of the new life is shown as `Rejoined`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from ordercast.core.contract import Machine
from ordercast.errors import Excluded
from ordercast.runtime.driver import Driver
from ordercast.runtime.ending import EndingOnError
from ordercast.runtime.storage import DataDirectory, Storage
from ordercast.transport.known_lives import within_reach

LOG = logging.getLogger("ordercast")

REVIVE_S, MOST_REVIVE_S = 0.1, 1.0
"""How long after a life has ended a node begins another; twice as long from one such life to the next, where
they are short, up to a bound."""
LASTING_S = 30.0
"""A life that lasted so long was not short."""


class PerLife(Protocol):
    """What a node has for one life at a time, beside its machine."""

    def life_over(self, lost: Excluded) -> None:
        """A life has ended; receipts that are still open get `lost`."""

    def begin_life(self, incarnation: int) -> None:
        """Another life begins, before its machine does."""

    def life_begun(self) -> None:
        """The machine of that life has begun."""


class NextLife:
    """Begins a node's next life, in time."""

    def __init__(
        self,
        storage: Storage,
        driver: Driver,
        build: Callable[[], Machine],
        parts: PerLife,
        sealed: bool,
    ) -> None:
        """`build` makes the machine of a life; `sealed`: others are believed what they say of lives."""
        self.incarnation = storage.incarnation
        """Which life this is."""
        self._storage = storage
        self._driver = driver
        self._build = build
        self._parts = parts
        self._sealed = sealed
        self._reviving: asyncio.Task[None] | None = None
        self._revive_s = REVIVE_S
        self._born = 0.0
        self.outlived_by: int | None = None
        """A life of this node that others know, and that the next one has to be later than."""

    def born(self) -> None:
        """Note the time: a life begins now."""
        self._born = asyncio.get_running_loop().time()

    async def wait(self) -> None:
        """Until no life is about to begin."""
        if self._reviving is not None:
            await self._reviving

    def halted(self, reason: str) -> None:
        """The machine ended its life, and nobody had told it to: the group goes on without it."""
        LOG.warning("the group went on without this node (%s): it comes back as another life", reason)
        self._begin_after(f"the group went on without this node ({reason})")

    def failed(self, told: str, error: Exception) -> None:
        """The machine raised, as `told`: what it knows cannot be trusted any more, but the node can."""
        LOG.critical("a defect in ordercast: %s; the node comes back as another life", told, exc_info=error)
        self._begin_after("this node failed, and came back as another life,")

    def outlived(self, life: int) -> None:
        """Others know a life of this node that is not earlier than the one it is in, or is about to begin."""
        known = self.incarnation
        if life < known or not within_reach(life, known):
            self._driver.drops.drop("greeting: life out of reach")
            return
        if self.outlived_by is not None:
            self.outlived_by = max(self.outlived_by, life)
            return
        self.outlived_by = life
        if isinstance(self._storage, DataDirectory) and self._storage.stored is not None:
            cause = f"{self._storage.path} was put back as it once was" + (
                ", and its state is not used"
                if self._sealed
                else ", or somebody forges greetings; without a key its state is kept"
            )
        else:
            cause = "the clock was set back, or the data directory put back as it once was"
        LOG.warning(
            "the others know life %d of this node, and it was to be life %d: %s; it goes on as a later one",
            *(life, known, cause),
        )
        if self._driver.live:
            self._driver.crash("others know a later life")
            self._begin_after("this node took a later life, since others knew one,")

    def begin(self, incarnation: int) -> None:
        """From now on it is that life, whose machine is about to begin."""
        self.incarnation = incarnation
        self._parts.begin_life(incarnation)

    async def number(self) -> int:
        """The incarnation of the next life, durable."""
        storage, outlived_by = self._storage, self.outlived_by
        self.outlived_by = None
        if outlived_by is None:
            return await asyncio.to_thread(storage.begin_next_life)
        # Without a key anybody can say so, and a group whose members all forgot their state would be over.
        return await asyncio.to_thread(storage.begin_life_after, outlived_by, self._sealed)

    def _begin_after(self, why: str) -> None:
        lost = Excluded(
            f"{why} before this was delivered here; others may have delivered it: send it again, if twice "
            "does no harm"
        )
        self._parts.life_over(lost.with_traceback(None))
        short = asyncio.get_running_loop().time() - self._born < LASTING_S
        self._revive_s = min(2 * self._revive_s, MOST_REVIVE_S) if short else REVIVE_S
        self._reviving = asyncio.create_task(self._revive(), name="ordercast-revive")

    async def _revive(self) -> None:
        driver = self._driver
        with EndingOnError(driver.end):
            await asyncio.sleep(self._revive_s)
            incarnation = None if driver.ended else await self.number()
            if incarnation is None or driver.ended:
                return
            self.born()
            self.begin(incarnation)
            LOG.info("node %d begins life %d", self._storage.id, incarnation)
            driver.start_again(self._build(), incarnation, self._storage.stored)
            self._parts.life_begun()

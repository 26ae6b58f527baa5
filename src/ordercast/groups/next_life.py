"""Another life of a node in the same process, where its machine ended the last one or failed.

Same sockets and links, a new incarnation and a new machine. What the application had sent and the old life
had not delivered is uncertain, as after a crash: receipts fail with `Excluded`, and the first configuration
of the new life is shown as `Rejoined`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ordercast.core.contract import Event, Machine
from ordercast.errors import Excluded
from ordercast.groups.defects import keep_defect
from ordercast.runtime.ending import EndingOnError
from ordercast.runtime.storage import DataDirectory
from ordercast.transport.known_lives import within_reach

if TYPE_CHECKING:
    from ordercast.groups.member import Member

LOG = logging.getLogger("ordercast")

REVIVE_S, MOST_REVIVE_S = 0.1, 2.0
"""How long after a life has ended a node begins another; twice as long from one such life to the next, where
they are short, up to a bound."""
LASTING_S = 30.0
"""A life that lasted so long was not short."""


class NextLife:
    """Begins a node's next life, in time."""

    def __init__(self, member: Member, build: Callable[[], Machine]) -> None:
        """`build` makes the machine of a life."""
        self._member = member
        self._build = build
        self._reviving: asyncio.Task[None] | None = None
        self._revive_s = REVIVE_S
        self._born = 0.0
        self.outlived_by: int | None = None
        """A life of this node that others know, and that the next one has to be later than."""

    def born(self) -> None:
        """A life begins now."""
        self._born = asyncio.get_running_loop().time()

    async def wait(self) -> None:
        """Until no life is about to begin."""
        if self._reviving is not None:
            await self._reviving

    def halted(self, reason: str) -> None:
        """The machine ended its life, and nobody had told it to: the group goes on without it."""
        LOG.warning("the group went on without this node (%s): it comes back as another life", reason)
        self._begin_after(f"the group went on without this node ({reason})")

    def failed(self, event: Event, error: Exception) -> None:
        """The machine raised on an event: what it knows cannot be trusted any more, but the node can."""
        told = keep_defect(self._member, event, error)
        LOG.critical("a defect in ordercast: %s; the node comes back as another life", told, exc_info=error)
        self._begin_after("this node failed, and came back as another life,")

    def outlived(self, life: int) -> None:
        """Others know a life of this node that is not earlier than the one it is in, or is about to begin."""
        member = self._member
        known = member.incarnation
        if life < known or not within_reach(life, known):
            member.driver.drops.drop("greeting: life out of reach")
            return
        if self.outlived_by is not None:
            self.outlived_by = max(self.outlived_by, life)
            return
        self.outlived_by = life
        if isinstance(member.storage, DataDirectory) and member.storage.stored is not None:
            cause = f"{member.config.data} was put back as it once was" + (
                ", and its state is not used"
                if member.sealed
                else ", or somebody forges greetings; without a key its state is kept"
            )
        else:
            cause = "the clock was set back, or the data directory put back as it once was"
        LOG.warning(
            "the others know life %d of this node, and it was to be life %d: %s; it goes on as a later one",
            *(life, known, cause),
        )
        if member.driver.live:
            member.driver.crash("others know a later life")
            self._begin_after("this node took a later life, since others knew one,")

    async def number(self) -> int:
        """The incarnation of the next life, durable."""
        storage, outlived_by = self._member.storage, self.outlived_by
        self.outlived_by = None
        if outlived_by is None:
            return await asyncio.to_thread(storage.begin_next_life)
        # Without a key anybody can say so, and a group whose members all forgot their state would be over.
        return await asyncio.to_thread(storage.begin_life_after, outlived_by, self._member.sealed)

    def _begin_after(self, why: str) -> None:
        member = self._member
        lost = Excluded(
            f"{why} before this was delivered here; others may have delivered it: send it again, if twice "
            "does no harm"
        )
        member.session.life_over(lost.with_traceback(None))
        member.log.life_over()
        short = asyncio.get_running_loop().time() - self._born < LASTING_S
        self._revive_s = min(2 * self._revive_s, MOST_REVIVE_S) if short else REVIVE_S
        self._reviving = asyncio.create_task(self._revive(), name="ordercast-revive")

    async def _revive(self) -> None:
        member = self._member
        driver = member.driver
        with EndingOnError(driver.end):
            await asyncio.sleep(self._revive_s)
            if driver.ended:
                return
            incarnation = await self.number()
            if driver.ended:
                return
            self.born()
            member.begin_life(incarnation)
            LOG.info("node %d begins life %d", member.id, incarnation)
            driver.start_again(self._build(), incarnation, member.storage.stored)
            member.apply_brake()
            member.gate.open_one()

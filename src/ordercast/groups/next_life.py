"""Another life of a node in the same process, where its machine ended the last one or failed.

Same sockets and links, a new incarnation and a new machine. What the application had sent and the old life
had not delivered is uncertain, as after a crash: receipts fail with `Excluded`, and the first configuration
of the new life is shown as `Rejoined`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from ordercast.core.contract import Event
from ordercast.errors import Excluded
from ordercast.groups.defects import keep_defect
from ordercast.groups.equipment import machine_of
from ordercast.runtime.ending import EndingOnError

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

    def __init__(self, member: Member) -> None:
        self._member = member
        self._reviving: asyncio.Task[None] | None = None
        self._revive_s = REVIVE_S
        self._born = 0.0

    def born(self) -> None:
        """A life begins now."""
        self._born = time.monotonic()

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

    def _begin_after(self, why: str) -> None:
        member = self._member
        lost = Excluded(
            f"{why} before this was delivered here; others may have delivered it: send it again, if twice "
            "does no harm"
        )
        member.session.life_over(lost.with_traceback(None))
        member.log.life_over()
        short = time.monotonic() - self._born < LASTING_S
        self._revive_s = min(2 * self._revive_s, MOST_REVIVE_S) if short else REVIVE_S
        self._reviving = asyncio.create_task(self._revive(), name="ordercast-revive")

    async def _revive(self) -> None:
        member = self._member
        driver = member.driver
        with EndingOnError(driver.end):
            await asyncio.sleep(self._revive_s)
            if driver.ended:
                return
            incarnation = await asyncio.to_thread(member.storage.begin_next_life)
            if driver.ended:
                return
            self.born()
            member.begin_life(incarnation)
            LOG.info("node %d begins life %d", member.id, incarnation)
            driver.start_again(
                machine_of(member.config, member.id, member.buffer), incarnation, member.storage.stored
            )
            member.apply_brake()
            member.gate.open_one()

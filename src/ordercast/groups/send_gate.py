"""What a message waits for before the machine gets it: slow readers of its group, and room in the queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ordercast.core.identity import Guarantee
from ordercast.errors import SendTimeout
from ordercast.groups.inbox import READING
from ordercast.groups.notes import MOST_GROUPS, Slow, written
from ordercast.groups.producers import GUARANTEE
from ordercast.groups.session import ENTRY_OVERHEAD
from ordercast.groups.slow_groups import SlowGroups
from ordercast.groups.waiting_senders import WaitingSenders

if TYPE_CHECKING:
    from ordercast.groups.member import Member

LOG = logging.getLogger("ordercast")


class SendGate:
    """The messages that a node has accepted and not broadcast yet, and the senders that wait."""

    def __init__(self, member: Member) -> None:
        self.queued = 0
        """Bytes that were accepted and not broadcast yet."""
        self.numbers = 0
        """Messages that were accepted in this life."""
        self.slow_groups = SlowGroups()
        self.slow = self.slow_groups.holders
        """Groups that are slowed down, by their tags: a send to one of them has to wait."""
        self._member = member
        self._senders = WaitingSenders()
        self._told: tuple[str, ...] = ()
        """What the others know of slow readers here."""
        self._telling = False

    # --- a message ------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether a message can be taken now, by somebody who has not waited."""
        return self._may_send() and not (self._senders or self._member.leaving)

    def _may_send(self) -> bool:
        """There is room, and somebody to have it: between two lives there is not."""
        return self._member.driver.live and self.queued < self._member.config.send_buffer

    async def wait(self, front: bytes, size: int, timeout: float | None) -> None:
        """Wait until so many bytes may be sent to the group with this tag: for slow readers of the group, and
        for one's turn."""
        self._member.check_open()
        try:
            async with asyncio.timeout(timeout):
                while True:
                    passes = await self.slow_groups.wait(front, size)
                    if self.has_room:
                        return
                    await self._wait_in_line()
                    if passes or front not in self.slow:
                        return
                    self._senders.next()  # the group became slow meanwhile: it is the next one's turn
        except TimeoutError:
            raise self._why_not(front, timeout or 0.0) from None

    async def _wait_in_line(self) -> None:
        """Wait for one's turn; whoever does is no slow reader meanwhile."""
        reads = READING.get()
        for inbox in reads:
            inbox.sending += 1
        try:
            await self._senders.wait(self._may_send)
        finally:
            for inbox in reads:
                inbox.sending -= 1

    def submit(self, payloads: Sequence[bytes], size: int, guarantee: Guarantee) -> int:
        """Hand over messages, with their tags; the number of the first."""
        driver = self._member.driver
        if driver.ended or self._member.leaving:
            self._member.check_open()
        count = len(payloads)
        self.queued += size + ENTRY_OVERHEAD * count
        number = self.numbers + 1
        self.numbers += count
        driver.submit(payloads, guarantee)
        if self._senders.waiting and self._may_send():
            self._senders.next(floor=True)
        return number

    def originated(self, payloads: Sequence[bytes]) -> None:
        """Messages left the queue: there is room for others."""
        self.queued -= sum(map(len, payloads)) + ENTRY_OVERHEAD * len(payloads)
        if self._senders.waiting and self._may_send():
            self._senders.next()

    def _why_not(self, front: bytes, timeout: float) -> SendTimeout:
        member = self._member
        slow, group = self.slow.get(front), front[2:].decode()
        holder = slow[0] if slow else member.driver.machine.laggard
        if not member.settled:
            why = f"the group is changing ({member.driver.state}: {member.driver.because})"
        elif slow and holder == member.id:
            unread = member.session.unread_by_group().get(group, 0)
            why = (
                f"the application of this node itself does not read the group {group} ({unread:,} bytes wait)"
            )
        elif slow:
            why = f"node {holder} does not keep up: its application does not read the group {group}"
        elif holder is not None:
            why = f"node {holder} does not keep up"
        else:
            why = "the group is saturated"
        return SendTimeout(
            f"nothing could be sent for {timeout:g} s: {why}; send less, wait longer, or see "
            "`ordercast status`",
            holder,
        )

    # --- lives and configurations ---------------------------------------------------------------

    def begin_life(self) -> None:
        """Another life begins, with nothing in its queue."""
        self.numbers = self.queued = 0

    def open_one(self) -> None:
        """It can send: whoever waits longest is first."""
        self._senders.next()

    def install(self) -> None:
        """A regular configuration begins: its members hear of slow readers anew."""
        self.slow_groups.install()
        self._told = ()
        self.on_slow_changed()

    def end(self, error: BaseException) -> None:
        """Nothing can be sent any more."""
        self._senders.end(error)
        self.slow_groups.end(error)

    # --- slow readers of this node --------------------------------------------------------------

    def on_slow_changed(self) -> None:
        """The groups with slow readers here may have changed."""
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        """Tell all members which groups have readers here that do not keep up, if that has changed."""
        self._telling = False
        member, told = self._member, self._told
        groups = member.session.slow_groups[:MOST_GROUPS]
        if groups == told or member.leaving or not (member.driver.live and member.session.placed):
            return
        self._told = groups
        unread = member.session.unread_by_group()
        for group in sorted(set(groups) - set(told)):
            LOG.warning(
                "the application does not read group %s: %d bytes wait, and who sends to it is slowed down",
                group,
                unread.get(group, 0),
            )
        while len(note := written(Slow(groups))) > member.largest:
            groups = groups[: len(groups) // 2]  # tiny messages: better some than none
        self.submit((note,), len(note), GUARANTEE)

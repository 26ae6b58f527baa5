"""What a message waits for before the machine gets it: slow readers of its groups, room in the queue, and
members of the configuration that have not told yet which groups their processes are in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ordercast.core.addresses import NO_STAMP, stamp
from ordercast.core.contract import Attend
from ordercast.core.fronted import bytes_of
from ordercast.core.identity import Guarantee, NodeId
from ordercast.errors import NoMajority, SendTimeout
from ordercast.groups.lifetime import Lifetime
from ordercast.groups.reader import ENTRY_OVERHEAD, READING
from ordercast.groups.readers import Readers
from ordercast.groups.slow_groups import SlowGroups
from ordercast.groups.waiting_senders import WaitingSenders
from ordercast.runtime.driver import Driver


class SendGate:
    """The messages that a node has accepted and not broadcast yet, and the senders that wait."""

    def __init__(
        self,
        node: NodeId,
        driver: Driver,
        readers: Readers,
        lifetime: Lifetime,
        send_buffer: int,
        settled: Callable[[], bool],
    ) -> None:
        """`driver` gets what is sent; beyond `send_buffer` bytes that it has not broadcast, senders wait.

        Who waits in vain is told why: from `readers`, whether the readers of this node itself are slow, and
        `settled`, whether messages are ordered now.
        """
        self.largest = 0
        """Bytes of the largest payload, with its address; 0 before the machine has begun."""
        self.queued = 0
        """Bytes that were accepted and not broadcast yet."""
        self.numbers = 0
        """Messages that were accepted in this life."""
        self.slow_groups = SlowGroups()
        self.slow = self.slow_groups.holders
        """Groups that are slowed down, by name: a send to one of them has to wait."""
        self._node = node
        self._driver = driver
        self._readers = readers
        self._lifetime = lifetime
        self._send_buffer = send_buffer
        self._settled = settled
        self._refusal: NoMajority | None = None
        """What who sends is told outside the primary partition."""
        self._held = True
        """Members of the configuration have not told yet which groups their processes are in."""
        self._senders = WaitingSenders()
        self._stamp = NO_STAMP

    # --- a message ------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether a message can be taken now, by somebody who has not waited."""
        return self._may_send() and not (self._senders or self._lifetime.leaving)

    def _may_send(self) -> bool:
        """There is room, and somebody to have it: between two lives there is not."""
        return (
            self.queued < self._send_buffer and self._driver.live and not self._held and self._refusal is None
        )

    @property
    def live(self) -> bool:
        """Whether there is a machine that takes messages: between two lives there is none."""
        return self._driver.live

    def must_wait(self, groups: Sequence[str]) -> bool:
        """Whether who sends to these groups has to wait."""
        return not self.has_room or self.slow_groups.slow(groups) is not None

    async def wait(self, groups: Sequence[str], size: int, timeout: float | None) -> None:
        """Wait until so many bytes may be sent to these groups: for slow readers, and for one's turn."""
        self._lifetime.check_open()
        self.check_majority()
        try:
            async with asyncio.timeout(timeout):
                while True:
                    passes = await self.slow_groups.wait(groups, size)
                    if self.has_room:
                        return
                    await self._wait_in_line()
                    if passes or self.slow_groups.slow(groups) is None:
                        return
                    self._senders.next()  # a group became slow meanwhile: it is the next one's turn
        except TimeoutError:
            why, holder = self.why_not(self.slow_groups.slow(groups) or groups[0])
            raise SendTimeout(
                f"nothing could be sent for {timeout or 0:g} s: {why}; send less, wait longer, or see "
                "`ordercast status`",
                holder,
            ) from None

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

    def stamp(self) -> bytes:
        """The time for the addresses of what is sent now: the same for all that is sent in one turn."""
        driver = self._driver
        if not driver.submitting:
            self._stamp = stamp(driver.now_us())
        return self._stamp

    def submit(self, payloads: Sequence[bytes], size: int, guarantee: Guarantee) -> int:
        """Hand over messages, with their addresses, or notes; the number of the first."""
        if self._driver.ended or self._lifetime.leaving:
            self._lifetime.check_open()
        count = len(payloads)
        self.queued += size + ENTRY_OVERHEAD * count
        number = self.numbers + 1
        self.numbers += count
        self._driver.submit(payloads, guarantee)
        if self._senders.waiting and self._may_send():
            self._senders.next(floor=True)
        return number

    def attend(self, attend: Attend) -> None:
        """Have the others told what this node needs, before what is handed over next."""
        self._driver.attend(attend)

    def originated(self, payloads: Sequence[bytes]) -> None:
        """Messages left the queue: there is room for others."""
        self.queued -= bytes_of(payloads) + ENTRY_OVERHEAD * len(payloads)
        if self._senders.waiting and self._may_send():
            self._senders.next()

    def why_not(self, group: str) -> tuple[str, NodeId | None]:
        """Why nothing can be sent to a group now, and the node that holds it up, where it is known."""
        driver, slow = self._driver, self.slow.get(group)
        holder = slow[0] if slow else driver.machine.laggard
        if not self._settled():
            why = f"the group is changing ({driver.state}: {driver.because})"
        elif self._held:
            why = "not all members have told yet which groups their processes are in"
        elif slow and holder == self._node:
            unread = self._readers.unread_by_group().get(group, 0)
            why = (
                f"the application of this node itself does not read the group {group} ({unread:,} bytes wait)"
            )
        elif slow:
            why = f"node {holder} does not keep up: its application does not read the group {group}"
        elif holder is not None:
            why = f"node {holder} does not keep up"
        else:
            why = "the group is saturated"
        return why, holder

    # --- lives and configurations ---------------------------------------------------------------

    def begin_life(self) -> None:
        """Another life begins, with nothing in its queue."""
        self.numbers = self.queued = 0

    def hold(self) -> None:
        """A configuration begins: nothing is taken until its members know of each other's processes."""
        self._held = True

    def refuse(self, why: NoMajority) -> None:
        """The primary partition is lost: whoever sends is told, and whoever waits to."""
        self._refusal = why
        self._senders.refuse(why.with_traceback(None))
        self.slow_groups.refuse(why.with_traceback(None))

    def accept(self) -> None:
        """The primary partition is regained."""
        self._refusal = None
        self._senders.next()

    def check_majority(self) -> None:
        """Raise `NoMajority` outside the primary partition."""
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    def release(self) -> None:
        """The members know of each other's processes: messages are taken, of who waits longest first."""
        self._held = False
        self._senders.next()

    def end(self, error: BaseException) -> None:
        """Nothing can be sent any more."""
        self._senders.end(error)
        self.slow_groups.end(error)

"""The applications of simulated nodes: what they submit, and whether what is delivered is what was submitted.

An application keeps messages waiting, up to a bound, while its machine has no room; a saturating one always
has more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from ordercast.core.contract import Accept, Attend, Event, Submit
from ordercast.core.identity import Batch, Configuration, Guarantee, MessageId, NodeId
from ordercast.sim.clock import Clock
from ordercast.sim.host import Host, Offer, Refill, take
from ordercast.sim.payloads import AcceptedPayloads, Corruption, payload

MOST_AHEAD = 512
"""Messages that a saturating sender has accepted and not yet delivered to itself: more would only wait."""
_MOST_CORRUPT = 100


class Above(Protocol):
    """A layer between the machines of all nodes and their applications, such as process groups."""

    def begin(self, host: Host) -> None:
        """A life begins; its machine is not started yet."""

    def end(self, host: Host) -> None:
        """A life ends."""

    def deliver(self, host: Host, batch: Batch) -> None:
        """A machine delivers messages."""

    def install(self, host: Host, configuration: Configuration) -> None:
        """A machine installs a configuration."""

    def submit(self, host: Host, size: int, guarantee: Guarantee) -> bool:
        """The application of a node has a message; False if it is refused."""

    def attends(self, host: Host) -> Attend | None:
        """What a machine is to be told before it is given more."""

    def offers(self, host: Host, room: int) -> Sequence[Offer]:
        """What a machine is to be given next, if it has room for so many bytes."""

    def has_more(self, host: Host) -> bool:
        """Whether something waits to be given to a machine."""

    @property
    def waiting(self) -> int:
        """How much is not done yet at nodes that are up; 0 once nothing is to be waited for."""

    @property
    def counts(self) -> Mapping[str, int]:
        """What a fuzzer made happen in it."""


class Applications:
    """The applications of all nodes."""

    def __init__(
        self,
        clock: Clock,
        hosts: Mapping[NodeId, Host],
        queue: int,
        carry_out: Callable[[Host, Event], None],
    ) -> None:
        """`queue` bounds the messages that wait at a node; `carry_out` gives a machine an event."""
        self.corrupt: list[Corruption] = []
        """Deliveries that are not what was submitted (the first hundred)."""
        self.names: dict[MessageId, str] = {}
        """What a scenario calls a message, once it is accepted."""
        self.refused: Counter[str] = Counter()
        """Messages that never reached a machine, by reason."""
        self.submissions = 0
        """`Submit`s that machines have handled."""
        self.accepted = 0
        """Messages that machines have accepted."""
        self.waited_us = 0
        """How long accepted messages had waited for room, in all."""
        self._clock = clock
        self._hosts = hosts
        self._queue = queue
        self._carry_out = carry_out
        self._ledger = AcceptedPayloads()
        self.closed = False
        """Whether the load is over: no application has anything more to send."""
        self.above: Above | None = None
        """The layer between the applications and the machines, if there is one."""

    @property
    def mean_wait_us(self) -> float:
        """How long a message waited for room until it was accepted."""
        return self.waited_us / self.accepted if self.accepted else 0.0

    def submit(
        self,
        node: NodeId,
        size: int,
        guarantee: Guarantee = Guarantee.AGREED,
        label: str | None = None,
    ) -> bool:
        """The application of a node has a message of `size` bytes; False if it is refused.

        The message is submitted as soon as the machine has room, after those that wait already.
        """
        host = self._hosts[node]
        if self.closed:
            return False
        if not host.up:
            self.refused["down"] += 1
            return False
        if self.above is not None:
            return self.above.submit(host, size, guarantee)
        if len(host.waiting) >= self._queue:
            self.refused["queue full"] += 1
            return False
        offer = self._offer(host, size, guarantee, label)
        if not (host.waiting or host.paused) and host.room() >= size:
            self._hand_over(host, [offer])
        else:
            host.waiting.append(offer)
            host.has_more = True
        return True

    def close(self) -> None:
        """The applications have nothing more to send; what they have handed over stays."""
        self.closed = True
        for host in self._hosts.values():
            host.refill = None

    def saturate(self, node: NodeId, refill: Refill | None) -> None:
        """Keep a node's send queue full, over all its lives, with what `refill` answers; None ends it."""
        host = self._hosts[node]
        host.refill = refill
        host.has_more = refill is not None or bool(host.waiting)
        if host.has_more and host.up and not host.paused:
            self.feed(host)

    def _offer(self, host: Host, size: int, guarantee: Guarantee, label: str | None) -> Offer:
        data = payload(host.node, host.incarnation, host.made, size)
        host.made += 1
        return Offer(data, guarantee, label, self._clock.now)

    def feed(self, host: Host) -> None:
        """Submit what waits, as far as the machine has room; of a saturating sender's, one refill."""
        waiting, refill = host.waiting, host.refill
        while host.up:
            room = host.room()
            if refill is not None and not waiting and host.ahead < MOST_AHEAD:
                messages = islice(refill(host.node, room), MOST_AHEAD - host.ahead)
                waiting.extend(self._offer(host, *message, None) for message in messages)
                refill = None
            if self.above is not None and not waiting:
                attend = self.above.attends(host)
                if attend is not None:
                    self._carry_out(host, attend)
                    continue
                waiting.extend(self.above.offers(host, room))
            offers = take(waiting, room)
            if not offers:
                break
            self._hand_over(host, offers)
            if not waiting and refill is None and self.above is None:
                break
        host.has_more = host.refill is not None or bool(waiting)
        if self.above is not None and host.up and self.above.has_more(host):
            host.has_more = True

    def _hand_over(self, host: Host, offers: Sequence[Offer]) -> None:
        host.offered = offers
        self.submissions += 1
        self._carry_out(host, Submit([offer[0] for offer in offers], offers[0].guarantee))
        if host.offered and host.up:
            raise AssertionError(f"the machine of node {host.node} did not accept what it had room for")

    def accept(self, host: Host, effect: Accept) -> None:
        """A machine accepted what was handed over."""
        offers, host.offered = host.offered, ()
        node, life, number, now = host.node, host.incarnation, effect.number, self._clock.now
        payloads = [offer[0] for offer in offers]
        host.record.submit(now, payloads, offers[0].guarantee, number)
        problem = self._ledger.accept(node, life, number, payloads)
        if problem:
            self._note_corrupt(host, MessageId(node, life, number), problem)
        for at, (_, _, label, since_us) in enumerate(offers, number):
            self.waited_us += now - since_us
            if label is not None:
                self.names[MessageId(node, life, at)] = label
        self.accepted += len(offers)
        host.ahead += len(offers)

    def deliver(self, host: Host, batch: Batch) -> None:
        """A machine delivers messages: they have to be what was submitted."""
        if batch.origin == host.node and batch.incarnation == host.incarnation:
            host.ahead -= len(batch.payloads)
        wrong = self._ledger.check(batch)
        if wrong is not None:
            number, what = wrong
            self._note_corrupt(host, MessageId(batch.origin, batch.incarnation, number), what)

    def _note_corrupt(self, host: Host, message: MessageId, what: str) -> None:
        if len(self.corrupt) < _MOST_CORRUPT:
            self.corrupt.append(Corruption(self._clock.now, host.node, message, what))

    def end_life(self, host: Host) -> None:
        """A life ends, and what waited to be submitted with it."""
        self.refused["lost in a crash"] += len(host.waiting)
        if self.above is not None:
            self.above.end(host)

"""Where what is delivered goes: messages to the processes that get them, notes to who keeps the memberships.

A message is for the members of its groups, for those who subscribe to patterns, and for one of each queue.
While members of a configuration have not told of their processes yet, messages and notes are held.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, MutableMapping, Sequence
from itertools import repeat
from typing import NamedTuple, Protocol, TypeAlias

from ordercast.core.addresses import (
    HEADED,
    STAMP_SIZE,
    WITHHELD,
    address,
    address_of,
    is_address,
    read_address,
    runs_of,
    sent_us,
    stamp,
)
from ordercast.core.fronted import Fronted, bytes_of
from ordercast.core.identity import Batch, ConfigurationId, Guarantee, MessageId, NodeId
from ordercast.core.subjects import read_subscription
from ordercast.process_groups.notes import (
    Again,
    End,
    Join,
    Leave,
    Served,
    State,
    head,
    parts,
    read,
    read_head,
    written,
)
from ordercast.process_groups.queues import Share, Shares, chosen, wants_no_echo
from ordercast.process_groups.send_queue import ENTRY_OVERHEAD, SendQueue
from ordercast.process_groups.table import Table
from ordercast.process_groups.views import Life, Numbered, Output, Process, Received, Unheard

ROUTES = 4096
"""Addresses of messages of which it is remembered who gets them here."""


Told: TypeAlias = bytes | Join | Leave | End | Served | Again
"""What is delivered beside states: messages, by their address, and notes."""


class NoteHandler(Protocol):
    """Keeps who is in which group, and is told what is delivered beside messages."""

    def on_state(self, life: Life, state: State, size: int, out: list[Output]) -> None:
        """A member tells of its processes, or a part of it does, in `size` bytes."""

    def on_note(self, note: Join | Leave | End | Served, batch: Batch, out: list[Output]) -> None:
        """A note of a process that joins or leaves, or of messages that a queue's members got."""

    def on_held(self, size: int, out: list[Output]) -> None:
        """So many bytes more are held; to go on with all of them at once, call `Routing.handle_held`."""


class Route(NamedTuple):
    """Who gets the messages of one address."""

    sender: int
    groups: tuple[str, ...]
    to: tuple[int, ...]
    """Processes of this node, by number."""
    queues: tuple[tuple[str, tuple[Process, ...]], ...]
    """Queues, and their members at all nodes, of which one gets it."""
    plain: bool
    """Whether anybody gets it but for queues, at any node."""
    without_echo: frozenset[Process]
    """Members of these queues that are to get nothing over them that they have sent themselves."""


class Routing:
    """Hands what is delivered to the processes of one node's life, and notes to a `NoteHandler`."""

    def __init__(
        self,
        me: Life,
        ended: Container[int],
        queue: SendQueue,
        stats: MutableMapping[str, int | float],
        notes: NoteHandler,
        counted: int = 0,
        *,
        numbers: bool = False,
    ) -> None:
        """`ended` are processes of this node that get nothing more though they are in the table still."""
        self.counted = counted
        """Messages of the order so far."""
        self.numbers = numbers
        self.table = Table()
        self.shares = Shares()
        self.settled_in: ConfigurationId | None = None
        """The regular configuration, once the memberships of its members are put together."""
        self._me = me
        self._ended = ended
        self._queue = queue
        self._stats = stats
        self._notes = notes
        self._routes: dict[bytes, Route] = {}
        """Routes that were found, by address without its stamp."""
        self._recent: dict[NodeId, bytes] = {}
        """How the nodes last addressed a message, the stamp apart: mostly they do so again."""
        self._held: list[tuple[Told, Batch]] | None = None
        """What was delivered while states are awaited; None while none are."""
        self._held_messages = 0

    # --- what is delivered ------------------------------------------------------------------------

    def deliver(self, batch: Batch) -> list[Output]:
        """Messages and notes, in order. Never raises because of what is in them.

        An address tells where it ends: what begins with one has that address, and no other.
        """
        out: list[Output] = []
        common = self._common(batch)
        if common is not None:
            if self._held is None:
                self.on_message(common, batch, out)
            else:
                self._take(common, batch, out)
            return out
        for places in runs_of(batch.payloads):
            run = batch.part(places.start, batch.payloads[places.start : places.stop])
            payload = run.payloads[0]
            found = address_of(payload)
            if found is not None:
                if len(self._recent) >= ROUTES:
                    self._recent.clear()
                self._recent[batch.origin] = found[:-STAMP_SIZE]
                self._take(found, run, out)
                continue
            note = read(payload)
            if note is None:
                self._stats["malformed"] += 1
            elif isinstance(note, State):
                self._notes.on_state(Life(batch.origin, batch.incarnation), note, len(payload), out)
            else:
                self._take(note, run, out)
        return out

    def _common(self, batch: Batch) -> bytes | None:
        """The address that all payloads of a batch have; None if they have none, or that is not known yet."""
        payloads = batch.payloads
        if type(payloads) is Fronted:
            front = payloads.front
            return front if front[:-STAMP_SIZE] in self._routes or is_address(front) else None
        recent = self._recent.get(batch.origin)
        if recent is None or not payloads or not payloads[0].startswith(recent):
            return None
        size = len(recent) + STAMP_SIZE
        found = payloads[0][:size]
        same = len(found) == size and all(map(bytes.startswith, payloads, repeat(found)))
        return found if same else None

    def _take(self, what: Told, batch: Batch, out: list[Output]) -> None:
        """A message, by its address, or a note: handle it, now or after what it has to wait for."""
        if self._held is None:
            self._handle(what, batch, out)
            return
        self._held.append((what, batch))
        if isinstance(what, bytes):
            self._held_messages += len(batch.payloads)
        size = bytes_of(batch.payloads) + ENTRY_OVERHEAD * (len(batch.payloads) - 1)
        self._notes.on_held(size, out)

    def _handle(self, what: Told, batch: Batch, out: list[Output]) -> None:
        if isinstance(what, bytes):
            self.on_message(what, batch, out)
        elif isinstance(what, Again):
            self.on_again(what, batch, out)
        else:
            self._notes.on_note(what, batch, out)

    # --- what is held -----------------------------------------------------------------------------

    @property
    def holding(self) -> bool:
        """Whether messages and notes are held, until the members' states have come."""
        return self._held is not None

    @property
    def reached(self) -> int:
        """The number of the last message that was delivered, as this node counts: it may be held."""
        return self.counted + self._held_messages

    def hold(self) -> None:
        """States are awaited: hold messages and notes from now on."""
        self._held = []

    def handle_held(self, out: list[Output]) -> None:
        """Go on with what was held, and hold nothing any more."""
        held, self._held, self._held_messages = self._held or [], None, 0
        for what, batch in held:
            self._handle(what, batch, out)

    # --- messages ---------------------------------------------------------------------------------

    def forget(self) -> None:
        """Memberships have changed: who gets what is looked up anew."""
        self._routes.clear()

    def on_message(self, found: bytes, batch: Batch, out: list[Output]) -> None:
        """Messages of one address."""
        known = found[:-STAMP_SIZE]
        route = self._routes.get(known)
        if route is None:
            if len(self._routes) >= ROUTES:
                self._routes.clear()
            route = self._routes[known] = self._route(found)
        sender, groups, to, queues, plain, _ = route
        first = self.counted + 1
        self.counted += len(batch.payloads)
        mine = not plain and batch.origin == self._me.node and batch.incarnation == self._me.incarnation
        if not (to or queues or mine or self.numbers):
            return
        if found[0] == WITHHELD:
            self._stats["withheld"] += len(batch.payloads)
            return
        heads, bodies = parts(found, batch.payloads)
        inner = Batch._make((*batch[:7], bodies, *batch[8:]))
        if self.numbers:
            out.append(Numbered(first, inner, sender, groups, heads))
        if queues:
            self._share(route, batch.payloads, inner, heads if mine else None, heads, sent_us(found), out)
        elif to:
            out.append(Received(inner, sender, groups, to, heads, sent_us=sent_us(found)))
        elif heads is not None and mine:
            out.append(Unheard(inner, sender, groups, heads))

    def _route(self, found: bytes) -> Route:
        """Who gets the messages of an address, as memberships are now."""
        where = read_address(found)
        assert where is not None
        plain = list(where.groups)
        queues: dict[str, tuple[Process, ...]] = {}
        for group in where.groups:
            for each in self.table.subscriptions(group):
                pattern = read_subscription(each)
                if pattern is not None and pattern[1] is not None:
                    queues[each] = tuple(sorted(self.table.processes(each)))
                elif each not in plain:
                    plain.append(each)
        without_echo = frozenset(
            process
            for queue in queues
            for process, properties in self.table.members(queue)
            if wants_no_echo(properties)
        )
        heard = any(group in self.table for group in plain)
        to = self.local(plain)
        return Route(where.sender, where.groups, to, tuple(queues.items()), heard, without_echo)

    def _share(
        self,
        route: Route,
        payloads: Sequence[bytes],
        batch: Batch,
        asked: Sequence[bytes] | None,
        heads: Sequence[bytes] | None,
        sent_us: int,
        out: list[Output],
    ) -> None:
        """Messages that queues get, too: one after the other, since each may go to another member.

        `asked`: the heads, if whoever sent them is to be told where nobody gets a message."""
        sender, groups, to, queues, _, without_echo = route
        if without_echo:
            queues = _without(Process(batch.origin, batch.incarnation, sender), queues, without_echo)
            if not queues and not to:
                if asked is not None:
                    out.append(Unheard(batch, sender, groups, asked))
                return
        for at, body in enumerate(batch.payloads):
            words = None if heads is None else [heads[at]]
            one = Received(batch.part(at, [body]), sender, groups, to, words, sent_us=sent_us)
            if to:
                out.append(one)
            message = MessageId(batch.origin, batch.incarnation, batch.number + at)
            for queue, members in queues:
                self._give(chosen(members, message), Share(message, queue, payloads[at]), one, out)

    def _give(self, process: Process, share: Share, message: Received, out: list[Output]) -> None:
        """A member of a queue is to get a message."""
        if process.life != self._me:
            self.shares.keep(process.life, share)
            return
        if process.number in self._ended:
            self._send_again(share)
        else:
            out.append(message._replace(to=(process.number,), queue=share.queue))
        count = self.shares.given(len(share.payload))
        if count is not None and self.settled_in is not None:
            self._queue.put(written(Served(self.settled_in, count)), Guarantee.AGREED, urgent=True)

    def _send_again(self, share: Share) -> None:
        self._stats["sent_again"] += 1
        self._queue.put(written(Again(*share)), Guarantee.AGREED, urgent=True)

    def on_again(self, again: Again, batch: Batch, out: list[Output]) -> None:
        """A message for another member of a queue, which is chosen anew."""
        self.shares.sent_again(again.message, again.queue)
        found = address_of(again.payload)
        where = None if found is None else read_address(found)
        if found is None or where is None:
            return
        sender = Process(again.message.origin, again.message.incarnation, where.sender)
        members = [
            process
            for process, properties in self.table.members(again.queue)
            if process != sender or not wants_no_echo(properties)
        ]
        if not members:
            return
        body, heads = again.payload[len(found) :], None
        if found[0] == HEADED:
            first, body = read_head(body)
            heads = [first]
        one = Received(
            batch._replace(payloads=[body]),
            *where,
            to=(),
            heads=heads,
            queue=again.queue,
            again=again.message,
            sent_us=sent_us(found),
        )
        number = MessageId(batch.origin, batch.incarnation, batch.number)
        self._give(chosen(members, number), Share(again.message, again.queue, again.payload), one, out)

    def local(self, groups: Sequence[str]) -> tuple[int, ...]:
        """Processes of this node that are in any of the groups, each once."""
        found = {
            process.number
            for group in groups
            for process in self.table.processes(group)
            if process.life == self._me
        }
        return tuple(sorted(number for number in found if number not in self._ended))

    def hand_over(self, received: Received) -> None:
        """A process that was to get messages of a queue could not take them: another member does.

        The process has left the queue, or ended, before this is called; else it may be chosen again.
        """
        assert received.queue is not None
        batch, heads = received.batch, received.heads
        stamped = stamp(received.sent_us)
        front = address(received.sender, received.groups, headed=heads is not None, stamped=stamped)
        for at, body in enumerate(batch.payloads):
            whole = front + (body if heads is None else head(heads[at]) + body)
            message = received.again or MessageId(batch.origin, batch.incarnation, batch.number + at)
            self._send_again(Share(message, received.queue, whole))

    def send_owed(self, lives: Container[Life]) -> None:
        """Only these lives are left: send what processes of others were to get, if this node is to do it."""
        for share in self.shares.owed_by(self._me, lives):
            self._send_again(share)


def _without(
    sender: Process, queues: Iterable[tuple[str, tuple[Process, ...]]], without_echo: Container[Process]
) -> tuple[tuple[str, tuple[Process, ...]], ...]:
    """Queues and the members that may get a message of this sender; no queue without any."""
    if sender not in without_echo:
        return tuple(queues)
    others = ((queue, tuple(each for each in members if each != sender)) for queue, members in queues)
    return tuple((queue, members) for queue, members in others if members)

"""One client of a node: its connection, and the local process that it is in the node's groups as.

What it receives over all its subscriptions is in the one order. It is written once for all that came in one
turn of the event loop. A client that does not take what it gets is cut off; one that publishes more than
there is room for is not read until there is.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ordercast.clients import wire
from ordercast.clients.parser import (
    PAYLOAD_TOO_LARGE,
    Connect,
    Operation,
    Parser,
    Ping,
    Pong,
    Publish,
    Subscribe,
    Unsubscribe,
    Violation,
)
from ordercast.clients.publishing import Run, first_run
from ordercast.clients.subscriptions import Subscription, Subscriptions
from ordercast.clients.wire import Options, read_options
from ordercast.core.headers import read_head
from ordercast.core.identity import Configuration
from ordercast.core.subjects import is_pattern, is_queue, is_subject, matches
from ordercast.errors import MessageTooLarge, NoMajority, OrdercastError
from ordercast.process_groups.queues import NO_ECHO
from ordercast.process_groups.views import Cause, Received, Unheard, View

if TYPE_CHECKING:
    from ordercast.clients.server import ClientServer
    from ordercast.runtime.direct_connections import Served

MOST_SUBSCRIPTIONS = 20_000
"""Subscriptions of one client."""
LAST_WORDS_S = 5.0
"""How long what a client was sent last may take to leave."""
LINGER_S = 0.1
"""How long a client that was told why it is cut off is still read: a connection that is closed with something
unread is reset, and what was told may be lost."""
NO_RESPONDERS = wire.status(503)
NOT_PRIMARY = (
    "this node is not in the primary partition, and sends nothing until it is again; connect to a node in "
    "the majority, or publish again later"
)
"""What who publishes is told where messages would not be ordered."""


class ClientConnection:
    """A client of a node, and the local process that stands for it in groups."""

    def __init__(self, server: ClientServer, served: Served, number: int) -> None:
        self.served = served
        self.number = number
        """Which client of the server it is."""
        self.options = Options()
        self.subscriptions = Subscriptions()
        self.idle_s = 0.0
        """Seconds for which it has said nothing."""
        self.pings = 0
        """How often it was asked since, whether it is there."""
        self.ended = ""
        """Why it was cut off; empty while it is served."""
        self._server = server
        self._parser = Parser(server.most_payload)
        self._process = server.processes.begin(self)
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flushing = False
        self._waiting: deque[Operation] = deque()
        """Operations that wait behind a message for which there is no room."""
        self._sending: asyncio.Task[None] | None = None
        self._last_number = 0
        """Of the last message that it published, among those of this node."""
        self._joins = [0, 0]
        """Groups that it asked to join, and those of them that it is in."""
        self._joining: Counter[str] = Counter()
        self.behind = False
        """Whether the client reads more slowly than messages come for it."""
        self._pongs: deque[tuple[int, int, int]] = deque()
        """How many answers it gets once so many messages were delivered and so many groups joined: PINGs
        that follow each other wait together."""

    @property
    def process_number(self) -> int:
        """Which process of the node's life it is."""
        return self._process.number

    @property
    def connected(self) -> bool:
        """Whether it has said who it is, as far as that is wanted."""
        return self.served.connection.proven

    @property
    def _wants_no_responders(self) -> bool:
        """Whether it wants to be told at once that nobody gets its request."""
        return bool(self.options.no_responders and self.options.headers)

    # --- what comes from the client -----------------------------------------------------------------

    def come(self, data: bytes) -> None:
        """Handle bytes that the client sent."""
        if self.ended:
            return
        self.idle_s = 0.0
        self.pings = 0
        operations = self._parser.feed(data)
        if self._waiting or self._sending is not None:
            self._waiting.extend(operations)
        elif operations:
            self._handle(deque(operations))

    async def serve(self) -> None:
        """Serve the connection, which is there now; returns when it is over."""
        await self._server.greet(self)
        await self.served.over

    def lost(self) -> None:
        """The connection is closed, by either side."""
        self.cut("gone")

    def held_up(self, on: bool) -> None:
        """Much is on its way to the client, or most of that has gone."""
        self.behind = on
        if not on:
            self._server.drained(self)

    def _handle(self, operations: deque[Operation]) -> None:
        while operations and not self.ended:
            operation = operations[0]
            if isinstance(operation, Publish):
                if not self._publish(operations):
                    return
                continue
            operations.popleft()
            self._do(operation)

    def _do(self, operation: Operation) -> None:
        match operation:
            case Ping():
                self._ping()
            case Pong():
                pass
            case Connect(options):
                self._connect(options)
            case Violation(words, reason):
                self._server.malformed[reason] += 1
                self.refuse(words)
            case Subscribe() | Unsubscribe():
                if self._may():
                    self._change(operation)

    def _change(self, operation: Subscribe | Unsubscribe) -> None:
        if isinstance(operation, Subscribe):
            self._subscribe(operation)
        else:
            self._unsubscribe(operation)

    def _connect(self, text: bytes) -> None:
        options = read_options(text)
        if options is None:
            self._server.malformed["CONNECT without sound options"] += 1
            self.refuse("Parser Error")
        elif not self._server.knows(options):
            self._server.refused["authorization"] += 1
            self.refuse("Authorization Violation")
        elif not self._server.connections.prove(self.served.connection):
            self.refuse("maximum connections exceeded")
        else:
            self.options = options
            self._confirm()

    def _may(self) -> bool:
        """Whether the client may do something: who need not say who it is may without a word."""
        if self.connected:
            return True
        if self._server.guarded:
            self._server.refused["authorization"] += 1
            self.refuse("Authorization Violation")
            return False
        if not self._server.connections.prove(self.served.connection):
            self.refuse("maximum connections exceeded")
            return False
        return True

    def _confirm(self) -> None:
        if self.options.verbose:
            self.write(wire.OK)

    # --- subscriptions --------------------------------------------------------------------------

    def _subscribe(self, wanted: Subscribe) -> None:
        subject, queue, sid = wanted
        if not is_pattern(subject) or (queue is not None and not is_queue(queue)):
            self.write(wire.error("Invalid Subject"))
            return
        if len(self.subscriptions) >= MOST_SUBSCRIPTIONS:
            self.write(wire.error("maximum subscriptions exceeded"))
            return
        one = Subscription(sid, subject, queue)
        if self.subscriptions.add(one):
            try:
                no_echo = queue is not None and self.options.echo is False
                self._process.join(one.group, NO_ECHO if no_echo else None)
            except OrdercastError:
                self.subscriptions.remove(one)
                self.write(wire.error("maximum subscriptions exceeded"))
                return
            self._joins[0] += 1
            self._joining[one.group] += 1
        self._server.watches(self, subject)
        self._server.drained(self)
        self._confirm()

    def _unsubscribe(self, wanted: Unsubscribe) -> None:
        one = self.subscriptions.get(wanted.sid)
        if one is not None:
            if wanted.after and wanted.after > one.delivered:
                one.most = wanted.after
            else:
                self._remove(one)
        self._confirm()

    def _remove(self, one: Subscription) -> None:
        if self.subscriptions.remove(one) and not self.ended:
            self._process.leave(one.group)

    # --- publishing -----------------------------------------------------------------------------

    def _publish(self, operations: deque[Operation]) -> bool:
        """Hand on the messages that come first, as many as are of one kind; False if there is no room."""
        first = operations[0]
        assert isinstance(first, Publish)
        subject = first.subject
        if not self._may():
            return True
        if not is_subject(subject) or (first.reply is not None and not is_subject(first.reply)):
            operations.popleft()
            self.write(wire.no_subject(subject, bool(self.options.pedantic)))
            return True
        if self._server.serves(subject):
            operations.popleft()
            self._confirm()
            self._server.ask(self, first)
            return True
        if self._server.jetstream is not None and self._server.jetstream.refuses(self, first):
            operations.popleft()
            self._confirm()
            return True
        run = first_run(first, operations, self._server.guarantee(subject, first.reply))
        try:
            number = self._process.try_send(*run[:3], heads=run.heads)
        except OrdercastError as error:
            return self._not_sent(operations, len(run.payloads), error)
        if number is None:
            self._wait_to_send(operations, run)
            return False
        self._last_number = number
        self._published(operations, len(run.payloads))
        return True

    def _published(self, operations: deque[Operation], count: int) -> None:
        self._server.published += count
        for _ in range(count):
            operations.popleft()
            self._confirm()

    def _not_sent(self, operations: deque[Operation], count: int, error: OrdercastError) -> bool:
        """The first so many messages cannot be sent: tell the client; whether it is served all the same."""
        if isinstance(error, NoMajority):
            for _ in range(count):
                message = operations.popleft()
                assert isinstance(message, Publish)
                self._refuse_publish(message)
            return True
        if isinstance(error, MessageTooLarge):
            self._do(PAYLOAD_TOO_LARGE)
        else:
            self.cut("the node ends")
        return False

    def _refuse_publish(self, message: Publish) -> None:
        """A message is not sent, since this node is not in the primary partition. The client stays connected:
        a violation of permissions is the one error after which NATS clients do."""
        subject, reply = message.subject, message.reply
        if self._server.jetstream is not None and self._server.jetstream.acknowledges(subject, reply):
            self._confirm()
            self._server.jetstream.unavailable(self, message, NOT_PRIMARY)
            return
        if reply is not None and self._wants_no_responders:
            self.tell(reply, NO_RESPONDERS, b"")
        self.write(wire.error(f'Permissions Violation for Publish to "{subject}": {NOT_PRIMARY}'))

    def _wait_to_send(self, operations: deque[Operation], run: Run) -> None:
        """There is no room: read nothing more of this client until there is."""
        self._waiting = operations
        if self.served.transport is not None:
            self.served.transport.pause_reading()
        self._sending = asyncio.get_running_loop().create_task(self._send(run))

    async def _send(self, run: Run) -> None:
        groups, payloads, guarantee, heads = run
        try:
            first = await self._process.send(groups, payloads, guarantee, heads=heads)
        except OrdercastError as error:
            self._sending = None
            if not self._not_sent(self._waiting, len(payloads), error):
                return
        else:
            self._sending = None
            self._last_number = first + len(payloads) - 1
            self._published(self._waiting, len(payloads))
        self._handle(self._waiting)
        if (
            self._sending is None
            and self.served.transport is not None
            and not self.served.transport.is_closing()
        ):
            self.served.transport.resume_reading()

    # --- being there ----------------------------------------------------------------------------

    def _ping(self) -> None:
        """Answer once all that the client said before has its place in the order here."""
        said = (self._last_number, self._joins[0])
        same = self._pongs.pop()[2] if self._pongs and self._pongs[-1][:2] == said else 0
        self._pongs.append((*said, same + 1))
        self.answer_pings()

    def answer_pings(self, *, all_of_them: bool = False) -> None:
        """Answer the client, as far as what it said before is done."""
        delivered = self._server.delivered
        while self._pongs and (
            all_of_them or (self._pongs[0][0] <= delivered and self._pongs[0][1] <= self._joins[1])
        ):
            self.write(wire.PONG * self._pongs.popleft()[2])
        if self._pongs:
            self._server.unanswered.add(self)
        else:
            self._server.unanswered.discard(self)

    # --- what the order says ----------------------------------------------------------------------

    def received(self, received: Received) -> None:
        """Messages for the client."""
        if self.ended:
            return
        batch, sender, groups, _, heads, queue, _, _ = received
        if queue is not None:
            one = self.subscriptions.of_queue(queue)
            if one is None:
                self._server.processes.hand_over(received)
            else:
                subject = next((each for each in groups if matches(one.pattern, each)), groups[0])
                self._deliver_all((one,), subject, batch.payloads, heads)
            return
        if self.options.echo is False and self._server.is_own(batch, sender, self._process):
            return
        for subject in groups:
            if len(groups) > 1 and not is_subject(subject):
                continue  # a group of members that no client can name
            found = self.subscriptions.of(subject)
            if len(found) == 1 and heads is None and found[0].most is None:
                front = b"MSG %b %b " % (subject.encode(), found[0].sid)
                found[0].delivered += len(batch.payloads)
                self.write(*[b"%b%d\r\n%b\r\n" % (front, len(body), body) for body in batch.payloads])
            elif found:
                self._deliver_all(found, subject, batch.payloads, heads)

    def _deliver_all(
        self,
        found: Sequence[Subscription],
        subject: str,
        bodies: Sequence[bytes],
        heads: Sequence[bytes] | None,
    ) -> None:
        """Messages over several subscriptions, one message after the other."""
        for at, body in enumerate(bodies):
            reply, headers = (b"", b"") if heads is None else read_head(heads[at])
            for one in found:
                self.deliver(one, subject, reply, headers, body)

    def deliver(self, one: Subscription, subject: str, reply: bytes, headers: bytes, body: bytes) -> None:
        """A message over one subscription."""
        if one.most is not None and one.delivered >= one.most:
            return
        one.delivered += 1
        front = b"%s %s " % (subject.encode(), one.sid)
        if headers and not self.options.headers:
            headers = b""
        self.write(*wire.message(front, reply, headers, body))
        if one.most is not None and one.delivered >= one.most and self.subscriptions.get(one.sid) is one:
            self._remove(one)

    def tell(self, subject: str, headers: bytes, body: bytes, reply: bytes = b"") -> bool:
        """A message of this node itself, to the client's subscriptions to a subject; whether it has any."""
        found = self.subscriptions.of(subject)
        for one in found:
            self.deliver(one, subject, reply, headers, body)
        return bool(found)

    def tell_as(self, wanted: str, subject: str, headers: bytes, body: bytes, reply: bytes) -> None:
        """A message to a subject, over the client's subscriptions to another one."""
        for one in self.subscriptions.of(wanted):
            self.deliver(one, subject, reply, headers, body)

    def unheard(self, unheard: Unheard) -> None:
        """What the client published reaches nobody: who asked something is told."""
        if self._wants_no_responders:
            for words in unheard.heads:
                reply = read_head(words).reply.decode("utf-8", "replace")
                if reply and not self._server.acknowledges(unheard.groups[0], reply):
                    self.tell(reply, NO_RESPONDERS, b"")

    def installed(self, view: View) -> None:
        """A group of the client has a new view: the first one is where it has joined."""
        if self._joining[view.group]:
            self._joining[view.group] -= 1
            self._joins[1] += 1
            if self._pongs:
                self.answer_pings()

    def left(self, group: str, cause: Cause) -> None:
        """The client is in a group no longer: it knows."""

    def configuration(self, change: Configuration) -> None:
        """Another configuration of nodes: clients do not see them."""

    def life_over(self) -> None:
        """The node begins another life: what was not delivered in this one may never be."""
        self._last_number = 0
        self._joins[1] = self._joins[0]
        self._joining.clear()
        self.answer_pings(all_of_them=True)

    # --- what goes to the client --------------------------------------------------------------------

    def write(self, *parts: bytes) -> None:
        """Send this, with all else of this turn."""
        if self.ended or self.served.transport is None:
            return
        self._out += parts
        self._out_bytes += sum(map(len, parts))
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self.flush)
        if self._out_bytes > self._server.most_pending:
            self.flush()

    def flush(self) -> None:
        """Hand what was written to the system; cut the client off if it does not take it."""
        self._flushing = False
        if self.ended:
            return
        self._push()
        if (
            self.served.transport is not None
            and self.served.transport.get_write_buffer_size() > self._server.most_pending
        ):
            self._server.refused["slow consumer"] += 1
            self.refuse("Slow Consumer")

    def _push(self) -> None:
        out, self._out, self._out_bytes = self._out, [], 0
        if out and self.served.transport is not None and not self.served.transport.is_closing():
            self.served.transport.write(b"".join(out))

    def refuse(self, words: str) -> None:
        """Tell the client why, and cut it off."""
        self.write(wire.error(words))
        self.cut(words, LINGER_S)

    def cut(self, why: str, linger_s: float = 0.0) -> None:
        """Serve the client no more, and close the connection after so long."""
        if self.ended:
            return
        self.ended = why
        self._push()
        self._server.gone(self)
        if self._sending is not None:
            self._sending.cancel()
        self._waiting.clear()
        self._process.end()
        transport = self.served.transport
        if transport is not None and not transport.is_closing():
            loop = asyncio.get_running_loop()
            if linger_s:
                loop.call_later(linger_s, transport.close)
            else:
                transport.close()
            loop.call_later(LAST_WORDS_S, transport.abort)

"""Drives a machine with real sockets, a real clock and a real disk.

Effects are carried out in list order; packets of one turn leave together. A *turn* reads what waits: data
first, and a token only when no data waits (000 §5.2); a bounded amount, so that the application's own tasks
on the same event loop go on. Timers run out only when the sockets are dry: a process that was stopped, or
late, reads what the others sent meanwhile before it believes that they fell silent.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ordercast.core.contract import (
    Brake,
    CancelTimer,
    Deliver,
    Drop,
    Effect,
    Event,
    Halt,
    Install,
    Lane,
    Machine,
    Multicast,
    Originate,
    Packet,
    Persist,
    SetTimer,
    Shift,
    Stable,
    Start,
    Stop,
    Submit,
    Timer,
    Unicast,
)
from ordercast.core.identity import Guarantee, Kind, NodeId
from ordercast.errors import OrdercastError
from ordercast.runtime.ending import EndingOnError
from ordercast.runtime.health import STOPPED_US, Lag
from ordercast.runtime.outgoing import Outgoing
from ordercast.runtime.sending import Sender
from ordercast.runtime.sink import Sink
from ordercast.runtime.storage import Storage
from ordercast.runtime.timers import Timers
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import Row
from ordercast.transport.activity import ActivityMonitor, PeerMonitor
from ordercast.transport.greetings import GREETING_MAGIC
from ordercast.transport.links import Links
from ordercast.transport.paths import RoundTrip
from ordercast.transport.seal import Port, Seal
from ordercast.transport.segments import HEADER_SIZE, MAGIC
from ordercast.transport.sockets import NodeSockets
from ordercast.transport.udp_socket import Address, Arrival, UdpSocket
from ordercast.transport.wake_policy import RateLimitedReader, WakePolicy

if TYPE_CHECKING:
    from ordercast.trace.journal import Journal

LOG = logging.getLogger("ordercast")

BUFFERS_A_TURN = 8
"""Reads of up to 64 KB before the event loop has its turn again."""
USELESS_A_TURN = 128
"""Datagrams at the token port that are no tokens, and are read before the event loop has its turn again."""
MOST_USELESS = 128
"""Reads of data that were of no use, after which a token does not wait for the rest."""
GUARDED_TURNS = 64
"""How often overdue timers wait for sockets that do not run dry."""
HELD_US = 500
"""A token that waited no longer than this was not kept waiting."""


class Driver(Sender):
    """A node's machine, and its next one where that ends its own life, between the sockets and the groups."""

    def __init__(
        self,
        node: NodeId,
        machine: Machine,
        storage: Storage,
        wires: NodeSockets,
        sink: Sink,
        seal: Seal | None,
        datagram: int,
        recorder: Recorder | None,
        rows: list[Row],
        journal: Journal | None,
        *,
        round_trip: RoundTrip | None = None,
    ) -> None:
        super().__init__(node, wires, seal, datagram, rows, journal, round_trip, sink)
        self.machine = machine
        self.state = "starting"
        self.because = ""
        self.sent = self.delivered = 0
        self._guard = EndingOnError(self.end)
        self.halted = False  # the machine itself ended the last life, with a word to the others
        self._stopping = False
        self._sent_before = 0
        """By earlier lives: message numbers begin anew in each."""
        self.lag = Lag(self.now_us)
        self._handle: Callable[[int, Event], Sequence[Effect]] = _not_started
        self._storage = storage
        self._recorder = recorder
        self._loop: asyncio.AbstractEventLoop
        self._listening = [socket for socket in (wires.data, wires.multicast) if socket is not None]
        self._wake_policy: WakePolicy | None = None
        self._tokens = False  # the machine has sent none yet
        self._outgoing = Outgoing()
        self._submitting = False
        self._timers = Timers(self.lag, self.now_us, self._on_alarm)
        self._guarded = 0
        self._useless = self._unread = 0  # since data was last read to its end: reads of no use, and bytes
        self._greetings: list[RateLimitedReader] = []
        self._peer_monitor: PeerMonitor | None = None
        self._activity = ActivityMonitor(self.now_us, lambda: self.delivered)

    # --- a life ---------------------------------------------------------------------------------

    def listen(self, links: Links) -> None:
        """Read the sockets and greet; the machine is not started yet."""
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._wake_policy = WakePolicy(
            self.wires.token.fileno(),
            [channel.fileno() for channel in self._listening],
            self._on_token_readable,
            self._on_data_readable,
            self.now_us,
        )
        links.sources_changed = self.wires.admit
        self.wires.admit(())
        self._greetings = [
            RateLimitedReader(channel.fileno(), partial(self._on_greeting, channel))
            for channel in self.wires.greetings
        ]
        self.wires.liveness.open()
        self._peer_monitor = PeerMonitor(links, self._guard, self._activity, self._on_gone, self.paths)

    def start(self, incarnation: int, stored: bytes | None) -> None:
        """Begin the machine's life: packets that came before were not for it."""
        self._handle = self.machine.handle
        self.live = True
        self._event(Start(incarnation, stored, secrets.randbits(64)))
        self._tell_distance(anew=True)

    def start_again(self, machine: Machine, incarnation: int, stored: bytes | None) -> None:
        """Begin the next life, with a new machine, where the last one ended by itself."""
        assert not self.live, "one life at a time"
        self.machine = machine
        self._sent_before = self.sent
        if self._recorder is not None:
            self._recorder.begin_life(self.now_us(), incarnation)
        self.start(incarnation, stored)

    def stop(self) -> None:
        """Leave: the machine finishes what it accepted, then halts. Between two lives, it is gone already."""
        self._stopping = True
        with self._guard:
            self._submit()
        if self.live:
            self._event(Stop())
        elif not self.ended:
            self._end_halted()

    def leave_at_once(self, error: OrdercastError) -> None:
        """End with an error. The others notice that this node fell silent."""
        LOG.error("%s", error)
        self.end(error)

    def brake(self, on: bool) -> None:
        """The disk of the log does not keep up; or it does again."""
        if self.live:
            self._event(Brake(on))

    def end(self, error: BaseException | None) -> None:
        """Give everything back. Nothing is handed to the machine after this."""
        if self.ended:
            return
        self.ended = True
        self.live = False
        if self._wake_policy is not None:
            self._wake_policy.close()
        for reader in self._greetings:
            reader.close()
        self._timers.close()
        if self._peer_monitor is not None:
            self._peer_monitor.close()
        self._note_rows()
        self.wires.close()
        self._sink.ended(error)

    # --- submitting -----------------------------------------------------------------------------

    def submit(self, payloads: Sequence[bytes], guarantee: Guarantee) -> None:
        """Messages for the machine; those of one turn of the event loop go to it together."""
        self._outgoing.add(payloads, guarantee)
        if not self._submitting:
            self._submitting = True
            self._loop.call_soon(self._on_submitting)

    def _on_submitting(self) -> None:
        self._submitting = False
        if not self.ended:
            with self._guard:
                self._submit()
                self._flush()

    def _submit(self) -> None:
        """Hand over what waits, as far as the machine has room for it; the rest waits for the next token."""
        while self.live and (run := self._outgoing.take(self.machine.room)) is not None:
            payloads, guarantee = run
            now = self.now_us()
            effects = self._ask(now, Submit(payloads, guarantee))
            if not self.live:
                return
            if self._recorder is not None:
                self._recorder.submit(now, payloads, guarantee, self.sent - self._sent_before + 1)
            self.sent += len(payloads)
            self._carry_out(now, effects)

    # --- reading --------------------------------------------------------------------------------

    def _on_data_readable(self) -> None:
        with self._guard:
            self._drain()
            self._flush()

    def _on_token_readable(self) -> None:
        with self._guard:
            self._turn()

    def _turn(self) -> bool:
        """Read a bounded amount, and a token behind all data; whether everything was read.

        A token does not wait for data that does not end: what had come before it is in the socket's buffer,
        so that it waits for no more bytes than twice that, and for few datagrams that are of no use.
        """
        dry = self._drain()
        budget = 1 if self._tokens else BUFFERS_A_TURN
        useless = USELESS_A_TURN
        enough = self._useless >= MOST_USELESS or self._unread >= 2 * self.wires.data.granted
        while budget and useless and (dry or enough or not self._tokens) and not self.ended:
            arrival = self.wires.token.receive()
            if arrival is None:
                break
            if self._on_token(arrival):
                budget -= 1
                self._useless = self._unread = 0
            else:
                useless -= 1
        self._flush()
        return dry and budget > 0 and useless > 0

    def _drain(self) -> bool:
        """Read data, a bounded amount; whether none is left."""
        budget = BUFFERS_A_TURN
        for channel in self._listening:
            while not self.ended and channel.waiting():
                arrival = channel.receive()
                if arrival is None:
                    break
                self._unread += arrival.size
                if not self._on_data(channel, arrival):
                    self._useless += 1
                budget -= 1
                if not budget:
                    return False
        self._useless = self._unread = 0
        return True

    def _on_data(self, channel: UdpSocket, arrival: Arrival) -> bool:
        """Hand the packets of a read to the machine; whether there was any."""
        size, source, segment, _ = arrival
        peer = self._links.peer_at(source)
        if not size:
            self.drop("empty")
            return False
        if peer is None:
            own = channel is self.wires.multicast and source[1] == self.wires.data.address[1]
            if not own:
                self.drop("unknown sender")
            return False
        handle = self._handle
        now = self.now_us()
        if not self._tokens:
            self._came(now)
        joiner = peer.data_joiner
        joined = joiner.join(channel.buffer, size, segment)
        useless = bool(joined or joiner.bad)  # unless some can be opened; parts of packets may be of use
        packets = self._opened(peer, joiner, joined, Port.DATA, None)
        for packet in packets:
            try:
                effects = handle(now, Packet(packet, peer.node))
            except Exception as error:  # noqa: BLE001 - a defect of the machine, whatever it is
                self._end_failed(Packet(packet, peer.node), error)
                return True
            if effects:
                self._carry_out(now, effects)
                if not self.live:
                    return True
        if self._outgoing and not self._tokens:
            self._submit()
        return bool(packets) or not useless

    def _came(self, now: int) -> None:
        """What shows that the group goes about its work: the token; or, without one, any packet."""
        self._activity.note(now)
        if self._wake_policy is not None:
            self._wake_policy.came(now)

    def _expect_tokens(self) -> None:
        """Whoever sends tokens gets some: they are read behind data, one at a time."""
        self._tokens = True
        for reader in (self._activity, self.wires, self._wake_policy):
            assert reader is not None
            reader.expect_tokens()

    def _on_greeting(self, channel: UdpSocket) -> bool:
        """Read a greeting where nothing else comes; whether there was any."""
        with self._guard:
            arrival = None if self.ended else channel.receive()
            if arrival is not None:
                self._on_token(arrival, channel)
            return arrival is not None
        return False

    def _on_token(self, arrival: Arrival, channel: UdpSocket | None = None) -> bool:
        """What came to the token port, by its first socket or another one; whether it was a token."""
        size, source, segment, waited_us = arrival
        buffer = (channel or self.wires.token).buffer
        if not segment:
            return self._on_token_datagram(buffer, size, source, waited_us)
        tokens = 0  # the kernel may have put tokens and greetings of one sender into one train
        for at in range(0, size, segment):
            part = buffer[at : min(size, at + segment)]
            tokens += self._on_token_datagram(part, len(part), source, waited_us)
        return tokens > 0

    def _on_token_datagram(self, buffer: bytearray, size: int, source: Address, waited_us: int) -> bool:
        if not buffer.startswith(MAGIC) or size < HEADER_SIZE:
            if buffer.startswith(GREETING_MAGIC) and size >= HEADER_SIZE:
                self._links.on_greeting(bytes(buffer[:size]), source)
            else:
                self.drop("malformed segment" if size else "empty")
            return False
        peer = self._links.peer_at(source)
        if peer is None:
            self.drop("unknown sender")
            return False
        self.lag.note(waited_us)
        held_us = waited_us if HELD_US < waited_us < STOPPED_US else 0  # who was stopped is not slow
        joiner = peer.token_joiner
        packets = self._opened(peer, joiner, joiner.join(buffer, size, 0), Port.TOKEN, self._me)
        for packet in packets:
            if self._outgoing:
                self._submit()
            if self.ended:
                return True
            now = self.now_us()
            self._came(now)
            self._carry_out(now, self._ask(now, Packet(packet, peer.node, held_us)))
        return bool(packets)

    # --- effects --------------------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        with self._guard:
            now = self.now_us()
            self._carry_out(now, self._ask(now, event))
            self._flush()

    def _ask(self, now: int, event: Event) -> Sequence[Effect]:
        """What the machine answers to an event; nothing if it raises, which ends its life."""
        try:
            return self._handle(now, event)
        except Exception as error:  # noqa: BLE001 - a defect of the machine, whatever it is
            self._end_failed(event, error)
            return ()

    def _carry_out(self, now: int, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if type(effect) is Deliver:
                batch = effect.batch
                self.delivered += len(batch.payloads)
                if self._recorder is not None:
                    self._recorder.deliver(now, batch)
                self._sink.deliver(batch)
            elif type(effect) is Multicast:
                self._queue(effect.data)
            elif type(effect) is Unicast:
                if effect.lane is Lane.TOKEN and not self._tokens:
                    self._expect_tokens()
                self._unicast(effect.to, effect.data)
            elif type(effect) is SetTimer:
                self._timers.set(now, effect.name, effect.delay_us)
            elif type(effect) is Originate:
                batch = effect.batch
                if self._recorder is not None:
                    self._recorder.originate(now, batch)
                self._sink.originated(batch)
            elif type(effect) is Stable:
                if self._recorder is not None:
                    self._recorder.stable(now, effect.batches)
            elif type(effect) is CancelTimer:
                self._timers.cancel(effect.name)
            else:
                self._carry_out_rare(now, effect)
                if not self.live:
                    return

    def _carry_out_rare(self, now: int, effect: Effect) -> None:
        match effect:
            case Persist(data):
                self._storage.persist(data)
            case Install(configuration, ended):
                if self._recorder is not None:
                    self._recorder.install(now, configuration, ended)
                members = ", ".join(map(str, configuration.members))
                level = logging.INFO if configuration.kind is Kind.REGULAR else logging.DEBUG
                LOG.log(level, "%s configuration %s: %s", configuration.kind, configuration.id, members)
                self._sink.install(configuration, ended)
            case Shift(state, because):
                self.state, self.because = state, because
                LOG.debug("%s: %s", state, because)
            case Drop(reason):
                self.drop(reason)
            case Halt(reason):
                if self._recorder is not None:
                    self._recorder.halt(now)
                self._flush()
                self._on_halt(reason)

    def _on_halt(self, reason: str) -> None:
        """The machine ended its life. Where it was not told to, there may be another."""
        self._end_life("halted", reason)
        if self._stopping or not self._sink.halted(reason):
            LOG.info("halted: %s", reason)
            self._end_halted()

    def _end_failed(self, event: Event, error: Exception) -> None:
        """The machine raised: its life is over as after a crash; while it begins or goes, so is the node."""
        if isinstance(error, OrdercastError) or isinstance(event, Start) or self._stopping:
            raise error
        self._flush()  # what earlier events answered was carried out up to here
        self.crash(f"{type(error).__name__} on a {type(event).__name__}")
        self.drop("machine failed")
        self._sink.failed(event, error)

    def crash(self, because: str) -> None:
        """End the machine's life without a word to the others; whoever does so begins the next one."""
        if self._recorder is not None:
            self._recorder.crash(self.now_us())
        self._end_life("crashed", because)

    def _end_life(self, state: str, because: str) -> None:
        self.live = False
        self._handle = _not_started
        self.state, self.because = state, because
        self._timers.close()
        self._out.clear()
        self._outgoing = Outgoing()

    def _end_halted(self) -> None:
        self.halted = True
        self._links.part()
        self.end(None)

    # --- timers ---------------------------------------------------------------------------------

    def _on_alarm(self) -> None:
        """Timers may have run out: they have, if they still have when everything that waits was read."""
        if self.ended:
            return
        with self._guard:
            now = self.now_us()
            if self._timers.any_due(now) and not self._turn():
                self._guarded += 1
                if self._guarded < GUARDED_TURNS:
                    self._timers.arm(now, now)
                    return
            self._guarded = 0
            for _ in range(len(self._timers)):
                if not self.live or (name := self._timers.take_due(now)) is None:
                    break
                self._carry_out(now, self._ask(now, Timer(name)))
            self._flush()
            if not self.ended:
                self._timers.rearm(now)


def _not_started(now: int, event: Event) -> Sequence[Effect]:
    return (Drop("not started yet"),)

"""Drives a machine with real sockets, a real clock and a real disk.

Effects are carried out in list order; packets of one turn leave together. A *turn* reads what waits: data
first, and a token only when no data waits (000 §5.2); a bounded amount, so that the application's own tasks
on the same event loop go on. Timers run out only when the sockets are dry: a process that was stopped, or
late, reads what the others sent meanwhile before it believes that they fell silent.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ordercast.core.contract import (
    Brake,
    CancelTimer,
    Deliver,
    Drop,
    Effect,
    Event,
    Gone,
    Halt,
    Install,
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
from ordercast.core.identity import Guarantee, NodeId
from ordercast.errors import OrdercastError
from ordercast.runtime.ending import EndingOnError
from ordercast.runtime.health import STOPPED_US, Lag
from ordercast.runtime.links import GREET_S, GREETING_MAGIC, Links, Peer, spell
from ordercast.runtime.outgoing import Outgoing
from ordercast.runtime.probes import PROBE, Probes
from ordercast.runtime.seal import Channel as Purpose
from ordercast.runtime.seal import Refused, Seal
from ordercast.runtime.segments import Cutter, Joiner, Train
from ordercast.runtime.sink import Sink
from ordercast.runtime.storage import Storage
from ordercast.runtime.timers import Timers
from ordercast.runtime.udp import Address, Arrival, Channel
from ordercast.runtime.wires import Wires
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import Row

if TYPE_CHECKING:
    from ordercast.trace.journal import Journal

LOG = logging.getLogger("ordercast")

BUFFERS_A_TURN = 8
"""Reads of up to 64 KB before the event loop has its turn again."""
GUARDED_TURNS = 64
"""How often overdue timers wait for sockets that do not run dry."""
_NODE = struct.Struct(">I")

WATCH_S = 0.02
MISSED_US = 40_000
"""A token that has been away for this long makes a node look whether the others are still there."""
MOST_REASONS = 64
"""Reasons for drops that are counted apart."""


class Driver:
    """One life of a node."""

    def __init__(
        self,
        node: NodeId,
        machine: Machine,
        storage: Storage,
        wires: Wires,
        sink: Sink,
        seal: Seal | None,
        datagram: int,
        recorder: Recorder | None,
        rows: list[Row],
        journal: Journal | None,
    ) -> None:
        self.node = node
        self._me = _NODE.pack(node)
        self.machine = machine
        self.wires = wires
        self.drops: Counter[str] = Counter()
        self.state = "starting"
        self.because = ""
        self.sent = self.delivered = 0
        self.refusals: list[str] = []
        """What others said when they refused this node."""
        self.ended = False
        self.halted = False
        """The machine itself ended this life, with a word to the others."""
        self._offset_us = time.time_ns() // 1000 - time.monotonic_ns() // 1000
        self.lag = Lag(self.now_us)
        self._handle: Callable[[int, Event], Sequence[Effect]] = _not_started
        self._storage = storage
        self._sink = sink
        self._seal = seal
        self._cutters = {channel: Cutter(datagram, checked=seal is None) for channel in Purpose}
        self._recorder = recorder
        self._rows = rows
        self._journal = journal
        self._links: Links
        self._loop: asyncio.AbstractEventLoop
        self._listening = [wires.data, *([wires.multicast] if wires.multicast else [])]
        self._watched: list[int] = []
        self._out: list[bytes] = []
        self._outgoing = Outgoing()
        self._submitting = False
        self._timers = Timers(self.lag, self.now_us, self._on_alarm)
        self._guarded = 0
        self._greeting: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._probes = Probes()
        self._token_seen_us = 0

    # --- a life ---------------------------------------------------------------------------------

    def now_us(self) -> int:
        """Wall-clock microseconds that never go back."""
        return time.monotonic_ns() // 1000 + self._offset_us

    def listen(self, links: Links) -> None:
        """Read the sockets and greet; the machine is not started yet."""
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._watched = [channel.fileno() for channel in (*self._listening, self.wires.token)]
        for fd in self._watched:
            self._loop.add_reader(fd, self._on_readable)
        self._greet()
        self._watch()

    def start(self, incarnation: int, stored: bytes | None) -> None:
        """Begin the machine's life: packets that came before were not for it."""
        self._handle = self.machine.handle
        self._event(Start(incarnation, stored))

    def stop(self) -> None:
        """Leave: the machine finishes what it accepted, then halts."""
        with self._ending_on_error():
            self._submit()
        if not self.ended:
            self._event(Stop())

    def leave_at_once(self, error: OrdercastError) -> None:
        """End with an error. The others notice that this node fell silent."""
        LOG.error("%s", error)
        self.end(error)

    def brake(self, on: bool) -> None:
        """The application does not keep up; or it does again."""
        if not self.ended:
            self._event(Brake(on))

    def end(self, error: BaseException | None) -> None:
        """Give everything back. Nothing is handed to the machine after this."""
        if self.ended:
            return
        self.ended = True
        for fd in self._watched:
            self._loop.remove_reader(fd)
        self._timers.close()
        for handle in (self._greeting, self._watching):
            if handle is not None:
                handle.cancel()
        self._probes.clear()
        self._note_rows()
        for channel in (*self._listening, self.wires.token):
            channel.close()
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
            with self._ending_on_error():
                self._submit()
                self._flush()

    def _submit(self) -> None:
        """Hand over what waits, as far as the machine has room for it; the rest waits for the next token."""
        while not self.ended and (run := self._outgoing.take(self.machine.room)) is not None:
            payloads, guarantee = run
            now = self.now_us()
            effects = self._handle(now, Submit(payloads, guarantee))
            if self._recorder is not None:
                self._recorder.submit(now, payloads, guarantee, self.sent + 1)
            self.sent += len(payloads)
            self._carry_out(now, effects)

    # --- reading --------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        with self._ending_on_error():
            self._turn()

    def _turn(self) -> bool:
        """Read a bounded amount; whether everything was read."""
        budget = BUFFERS_A_TURN
        for channel in self._listening:
            while not self.ended:
                arrival = channel.receive()
                if arrival is None:
                    break
                self._on_data(channel, arrival)
                budget -= 1
                if not budget:
                    self._flush()
                    return False
        if self.ended:
            return True
        arrival = self.wires.token.receive()
        if arrival is not None:
            self._on_token(arrival)
            self._flush()
        return arrival is None

    def _on_data(self, channel: Channel, arrival: Arrival) -> None:
        size, source, _, _ = arrival
        peer = self._links.peer_at(source)
        if not size:
            self.drop("empty")
            return
        if peer is None:
            own = channel is self.wires.multicast and source[1] == self.wires.data.address[1]
            if not own:
                self.drop("unknown sender")
            return
        handle = self._handle
        now = self.now_us()
        for packet in self._open(peer, peer.data_joiner, channel, arrival, Purpose.DATA, None):
            effects = handle(now, Packet(packet))
            if effects:
                self._carry_out(now, effects)
                if self.ended:
                    return

    def _open(
        self,
        peer: Peer,
        joiner: Joiner,
        channel: Channel,
        arrival: Arrival,
        purpose: Purpose,
        to: bytes | None,
    ) -> list[bytes]:
        """The packets that are whole, and authentic where that can be known."""
        packets = joiner.join(channel.buffer, arrival.size, arrival.segment)
        if joiner.bad or joiner.given_up:
            self.drop("malformed segment", joiner.bad)
            self.drop("incomplete packet", joiner.given_up)
            joiner.bad = joiner.given_up = 0
        if peer.opener is not None:
            sealed, packets = packets, []
            for packet in sealed:
                try:
                    packets.append(peer.opener.open(purpose, packet, to))
                except Refused as error:
                    self.drop(str(error))
        if packets:
            self._links.heard(peer)
        return packets

    def _on_token(self, arrival: Arrival) -> None:
        size, source, segment, waited_us = arrival
        buffer = self.wires.token.buffer
        if size <= len(PROBE):
            if buffer[:size] != PROBE:
                self.drop("malformed segment" if size else "empty")
            return
        step = segment or size
        greetings = [at for at in range(0, size, step) if buffer.startswith(GREETING_MAGIC, at)]
        if greetings:  # the kernel may have put them and tokens of one sender into one train
            for at in greetings:
                self._links.on_greeting(bytes(buffer[at : min(size, at + step)]), source)
            if len(greetings) * step >= size:
                return
        peer = self._links.peer_at(source)
        if peer is None:
            self.drop("unknown sender")
            return
        self.lag.note(waited_us)
        held_us = 0 if waited_us > STOPPED_US else waited_us  # a process that was stopped is not slow
        peer.token_joiner.bad -= len(greetings)
        for packet in self._open(peer, peer.token_joiner, self.wires.token, arrival, Purpose.TOKEN, self._me):
            if self._outgoing:
                self._submit()
            if self.ended:
                return
            self._token_seen_us = now = self.now_us()
            self._carry_out(now, self._handle(now, Packet(packet, held_us)))

    # --- effects --------------------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        with self._ending_on_error():
            now = self.now_us()
            self._carry_out(now, self._handle(now, event))
            self._flush()

    def _carry_out(self, now: int, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if type(effect) is Deliver:
                batch = effect.batch
                self.delivered += len(batch.payloads)
                if self._recorder is not None:
                    self._recorder.deliver(now, batch)
                self._sink.deliver(batch)
            elif type(effect) is Multicast:
                self._out.append(effect.data)
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
            elif type(effect) is Unicast:
                self._flush()
                self._unicast(effect.to, effect.data)
            elif type(effect) is CancelTimer:
                self._timers.cancel(effect.name)
            else:
                self._carry_out_rare(now, effect)
                if self.ended:
                    return

    def _carry_out_rare(self, now: int, effect: Effect) -> None:
        match effect:
            case Persist(data):
                self._storage.persist(data)
            case Install(configuration):
                if self._recorder is not None:
                    self._recorder.install(now, configuration)
                members = ", ".join(map(str, configuration.members))
                LOG.info("%s configuration %s: %s", configuration.kind, configuration.id, members)
                self._sink.install(configuration)
            case Shift(state, because):
                self.state, self.because = state, because
                LOG.debug("%s: %s", state, because)
            case Drop(reason):
                self.drop(reason)
            case Halt(reason):
                if self._recorder is not None:
                    self._recorder.halt(now)
                LOG.info("halted: %s", reason)
                self._flush()
                self.halted = True
                self.end(None)

    # --- sending --------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send what was multicast since the last time, all of it together."""
        self._note_rows()
        packets = self._out
        if not packets or self.ended:
            return
        self._out = []
        if self._seal is not None:
            seal = self._seal.seal
            packets = [seal(Purpose.DATA, packet) for packet in packets]
        send = self.wires.data.send
        group, targets = self.wires.group, self._links.targets
        for train in self._cutters[Purpose.DATA].cut(packets):
            if group is not None:
                send(train, group)
            else:
                for peer in targets:
                    send(train, peer.data)

    def _unicast(self, to: NodeId, data: bytes) -> None:
        peer = self._links.peers.get(to)
        if peer is None:
            self.drop("no address to send to")
            return
        if self._seal is not None:
            data = self._seal.seal(Purpose.TOKEN, data, _NODE.pack(to))
        for train in self._cutters[Purpose.TOKEN].cut((data,)):
            self.wires.token.send(train, peer.token)

    def _note_rows(self) -> None:
        """What others may see of this turn is in the trace before they can see it."""
        if self._rows and self._journal is not None:
            self._journal.append(self._rows)
            self._rows.clear()

    # --- timers ---------------------------------------------------------------------------------

    def _on_alarm(self) -> None:
        """Timers may have run out: they have, if they still have when everything that waits was read."""
        if self.ended:
            return
        with self._ending_on_error():
            now = self.now_us()
            if self._timers.any_due(now) and not self._turn():
                self._guarded += 1
                if self._guarded < GUARDED_TURNS:
                    self._timers.arm(now, now)
                    return
            self._guarded = 0
            for _ in range(len(self._timers)):
                if self.ended or (name := self._timers.take_due(now)) is None:
                    break
                self._carry_out(now, self._handle(now, Timer(name)))
            self._flush()
            if not self.ended:
                self._timers.rearm(now)

    # --- links ----------------------------------------------------------------------------------

    def _greet(self) -> None:
        if self.ended:
            return
        with self._ending_on_error():
            self._links.greet()
        self._greeting = self._loop.call_later(GREET_S, self._greet)

    def _watch(self) -> None:
        """Look at the peers' processes while no token comes."""
        if self.ended:
            return
        self._watching = self._loop.call_later(WATCH_S, self._watch)
        if self.now_us() - self._token_seen_us < MISSED_US:
            if self._probes:
                self._probes.clear()
            return
        peers = {peer.token: peer for peer in self._links.targets}
        for address in self._probes.look(list(peers)):
            peer = peers[address]
            LOG.warning("node %d at %s is gone: nobody listens there any more", peer.node, spell(address))
            self._links.part_with(peer)
            self._event(Gone(peer.node))

    def post(self, packet: bytes, to: Address) -> None:
        """Send a greeting."""
        self.wires.token.send(Train(packet, 0), to)

    def linked(self, peer: Peer) -> None:
        """A link was made, or made again."""
        LOG.info("node %d is at %s", peer.node, spell(peer.token))

    def silent(self, peer: Peer) -> None:
        """A peer has not been heard for long."""
        LOG.warning("node %d at %s is silent", peer.node, spell(peer.token))

    def refused(self, reason: str) -> None:
        """Others say that this node is not wanted."""
        if reason not in self.refusals:
            LOG.warning("refused: %s", reason)
        self.refusals.append(reason)
        del self.refusals[:-8]

    def warn(self, sentence: str) -> None:
        """Something a person should know."""
        LOG.warning("%s", sentence)

    def drop(self, reason: str, count: int = 1) -> None:
        """Datagrams were not used."""
        if not count:
            return
        if reason not in self.drops and len(self.drops) >= MOST_REASONS:
            reason = "other reasons"
        self.drops[reason] += count

    def _ending_on_error(self) -> EndingOnError:
        return EndingOnError(self.end)


def _not_started(now: int, event: Event) -> Sequence[Effect]:
    return (Drop("not started yet"),)

"""Drives a machine: hands it events and the time, and carries out its effects, in list order.

Packets travel by the `Transport` that the driver is handed; those that are multicast in one turn leave
together. Timers run out only when everything that has arrived was read: a process that was stopped, or late,
reads what the others sent meanwhile before it believes that they fell silent.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING

from ordercast.core.contract import (
    Attend,
    Brake,
    CancelTimer,
    Deliver,
    Distance,
    Drop,
    Effect,
    Event,
    Gone,
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
from ordercast.core.fronted import Fronted, bytes_of
from ordercast.core.identity import Guarantee, Kind, NodeId
from ordercast.core.wire import KIND_BYTE
from ordercast.errors import OrdercastError
from ordercast.runtime.distance import RoundTrip
from ordercast.runtime.ending import EndingOnError
from ordercast.runtime.health import STOPPED_US, Lag
from ordercast.runtime.sink import Owner, Sink
from ordercast.runtime.storage import Storage
from ordercast.runtime.timers import Timers
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import Row
from ordercast.transport.interface import Drops, Transport

if TYPE_CHECKING:
    from ordercast.runtime.environment import Trace

LOG = logging.getLogger("ordercast")

GUARDED_TURNS = 64
"""How often overdue timers wait for packets of which there is no end."""
_KIND = itemgetter(KIND_BYTE)
HELD_US = 500
"""A token that waited no longer than this was not kept waiting."""


class Outgoing:
    """Submitted messages that the machine was not given yet, in runs of one guarantee."""

    def __init__(self) -> None:
        self._runs: deque[tuple[list[bytes] | Fronted, Guarantee]] = deque()

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, payloads: Sequence[bytes], guarantee: Guarantee) -> None:
        """Messages behind those that are here."""
        last, asked = self._runs[-1] if self._runs else (None, guarantee)
        if type(payloads) is Fronted:  # with many messages: they stay what they are
            self._runs.append((payloads, guarantee))
        elif type(last) is list and asked is guarantee:
            last.extend(payloads)
        else:
            self._runs.append((list(payloads), guarantee))

    def take(self, room: int) -> tuple[Sequence[bytes], Guarantee] | None:
        """The first run, or as much of it as fits into ``room`` bytes; None if nothing does."""
        if not self._runs or room <= 0:
            return None
        payloads, guarantee = self._runs[0]
        if bytes_of(payloads) <= room:
            self._runs.popleft()
            return payloads, guarantee
        fits = bisect_right(list(accumulate(map(len, payloads))), room)
        if not fits:
            return None
        self._runs[0] = payloads[fits:], guarantee
        return payloads[:fits], guarantee


class Driver:
    """A node's machine, and its next one where that ends its own life, between transport and groups."""

    def __init__(
        self,
        machine: Machine,
        storage: Storage,
        transport: Transport,
        sink: Sink,
        owner: Owner,
        drops: Drops,
        now_us: Callable[[], int],
        new_seed: Callable[[], int],
        round_trip: RoundTrip,
        recorder: Recorder | None,
        rows: list[Row],
        trace: Trace | None,
    ) -> None:
        """`recorder` appends to `rows`, which go to `trace` before others can see what they tell.

        `new_seed` draws the 64 bits for each life's machine.
        """
        self.machine = machine
        self.transport = transport
        self.drops = drops
        self.now_us = now_us
        self.state = "starting"
        self.because = ""
        self.sent = self.delivered = 0
        self.packets_sent: Counter[bytes] = Counter()
        """Packets of the machine, by the byte that tells their kind (`ordercast.core.wire`)."""
        self.guard = EndingOnError(self.end)
        self.live = False
        """The machine lives: it was started, and has not halted."""
        self.ended = False
        self.halted = False
        """The machine itself ended the last life, and told the others that it leaves."""
        self.lag = Lag(now_us)
        self._new_seed = new_seed
        self._round_trip = round_trip
        self._stopping = False
        self._sent_before = 0
        """By earlier lives: message numbers begin anew in each."""
        self._handle: Callable[[int, Event], Sequence[Effect]] = _not_started
        self._storage = storage
        self._sink = sink
        self._owner = owner
        self._recorder = recorder
        self._rows = rows
        self._trace = trace
        self._networks = transport.networks
        self._out: defaultdict[int, list[bytes]] = defaultdict(list)
        """What was multicast in this turn, by network; none are empty."""
        self._tokens = False
        """The machine has sent a token: there is room for messages when the next one comes."""
        self._outgoing = Outgoing()
        self._attend: Attend | None = None
        """What the machine is to be told before it is given more."""
        self.submitting = False
        """Something was submitted in this turn of the event loop."""
        self._timers = Timers(self.lag, now_us, self._on_alarm)
        self._guarded = 0

    # --- a life ---------------------------------------------------------------------------------

    def start(self, incarnation: int, stored: bytes | None) -> None:
        """Begin the machine's life: packets that came before were not for it."""
        self._handle = self.machine.handle
        self.live = True
        self._event(Start(incarnation, stored, self._new_seed()))
        self._tell_distance(anew=True)

    def start_again(self, machine: Machine, incarnation: int, stored: bytes | None) -> None:
        """Begin the next life, with a new machine, where the last one ended by itself."""
        assert not self.live, "one life at a time"
        self.machine = machine
        self._attend = None
        self._sent_before = self.sent
        if self._recorder is not None:
            self._recorder.begin_life(self.now_us(), incarnation)
        self.start(incarnation, stored)

    def stop(self) -> None:
        """Leave: the machine finishes what it accepted, then halts. Between two lives, it is gone already."""
        self._stopping = True
        with self.guard:
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
        self._timers.close()
        self._note_rows()
        self.transport.close()
        self._owner.ended(error)

    # --- submitting -----------------------------------------------------------------------------

    def submit(self, payloads: Sequence[bytes], guarantee: Guarantee) -> None:
        """Messages for the machine; those of one turn of the event loop go to it together."""
        self._outgoing.add(payloads, guarantee)
        self._submit_soon()

    def attend(self, attend: Attend) -> None:
        """Tell the machine what this node needs, before anything that is submitted after this."""
        self._attend = attend
        self._submit_soon()

    def _submit_soon(self) -> None:
        if not self.submitting:
            self.submitting = True
            asyncio.get_running_loop().call_soon(self._on_submitting)

    def _on_submitting(self) -> None:
        self.submitting = False
        if not self.ended:
            with self.guard:
                self._submit()
                self._flush()

    def _submit(self) -> None:
        """Hand over what waits, as far as the machine has room for it; the rest waits for the next token."""
        if self.live and self._attend is not None:
            attend, self._attend = self._attend, None
            now = self.now_us()
            self._carry_out(now, self._ask(now, attend))
        while self.live and (run := self._outgoing.take(self.machine.room)) is not None:
            payloads, guarantee = run
            now = self.now_us()
            effects = self._ask(now, Submit(payloads, guarantee))
            if self._life_is_over():
                return
            if self._recorder is not None:
                self._recorder.submit(now, payloads, guarantee, self.sent - self._sent_before + 1)
            self.sent += len(payloads)
            self._carry_out(now, effects)

    # --- what the transport tells ---------------------------------------------------------------

    def on_data(self, sender: NodeId, packets: Sequence[bytes], network: int = 0) -> None:
        """Packets that a node multicast, in order."""
        handle = self._handle
        now = self.now_us()
        for packet in packets:
            try:
                effects = handle(now, Packet(packet, sender, 0, network))
            except Exception as error:  # noqa: BLE001 - a defect of the machine, whatever it is
                self._end_failed(Packet(packet, sender, 0, network), error)
                return
            if effects:
                self._carry_out(now, effects)
                if not self.live:
                    return
        if self._outgoing and not self._tokens:
            self._submit()

    def on_unicast(self, sender: NodeId, packet: bytes, waited_us: int, network: int = 0) -> None:
        """A packet for this node alone, behind all that was submitted: it may be the token."""
        self.lag.note(waited_us)
        held_us = waited_us if HELD_US < waited_us < STOPPED_US else 0  # who was stopped is not slow
        if self._outgoing:
            self._submit()
        if not self.ended:
            now = self.now_us()
            self._carry_out(now, self._ask(now, Packet(packet, sender, held_us, network)))

    def on_turn_over(self) -> None:
        """What could be read was."""
        if self._out or self._rows:
            self._flush()

    def on_gone(self, node: NodeId, network: int = 0) -> None:
        """A node's process has ended, or so it seems."""
        if self.live:
            self._event(Gone(node, network))

    def on_distance(self) -> None:
        """Peers are farther or nearer."""
        self._tell_distance(anew=False)

    def on_outlived(self, life: int) -> None:
        """Others know a life of this node that is not earlier than the one it is in."""
        self._owner.outlived(life)

    def _life_is_over(self) -> bool:
        """Whether the machine has halted, also where it lived before it was asked."""
        return not self.live

    def _tell_distance(self, anew: bool) -> None:
        """Have the machine's timeouts fit the round trip to the peers, if that has changed by much."""
        if not self.live:
            return
        trip_us = self._round_trip.news(self.transport.round_trip_us, anew)
        if trip_us is None:
            return
        if trip_us:
            LOG.log(*self._round_trip.told(trip_us))
        if self._round_trip.followed:
            self._event(Distance(3 * trip_us // 2))

    # --- effects --------------------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        with self.guard:
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
                self._out[effect.network].append(effect.data)
            elif type(effect) is Unicast:
                self._unicast(effect)
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

    def _unicast(self, effect: Unicast) -> None:
        """Send a packet to one node, behind what was multicast before it on the same network."""
        to, data, lane, network = effect
        if lane is Lane.TOKEN:
            self._tokens = True
        if self._rows:
            self._note_rows()
        behind = self._out.pop(network, ())
        self.packets_sent[_KIND(data)] += 1
        if behind:
            self.packets_sent.update(map(_KIND, behind))
        self._networks[network].unicast(to, data, lane, behind)

    def _flush(self) -> None:
        """Send what was multicast since the last time, all of it together."""
        if self._rows:
            self._note_rows()
        while self._out:
            network, packets = self._out.popitem()
            self.packets_sent.update(map(_KIND, packets))
            self._networks[network].multicast(packets)

    def _note_rows(self) -> None:
        """What others may see of this turn is in the trace before they can see it."""
        if self._rows and self._trace is not None:
            self._trace.append(self._rows)
            self._rows.clear()

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
                self._owner.entered(state)
                LOG.debug("%s: %s", state, because)
            case Drop(reason):
                self.drops.drop(reason)
            case Halt(reason):
                if self._recorder is not None:
                    self._recorder.halt(now)
                self._flush()
                self._on_halt(reason)

    def _on_halt(self, reason: str) -> None:
        """The machine ended its life. Where it was not told to, there may be another."""
        self._end_life("halted", reason)
        if self._stopping or not self._owner.halted(reason):
            LOG.info("halted: %s", reason)
            self._end_halted()

    def _end_failed(self, event: Event, error: Exception) -> None:
        """The machine raised: its life is over as after a crash; while it begins or goes, so is the node."""
        if isinstance(error, OrdercastError) or isinstance(event, Start) or self._stopping:
            raise error
        self._flush()  # what earlier events answered was carried out up to here
        self.crash(f"{type(error).__name__} on a {type(event).__name__}")
        self.drops.drop("machine failed")
        self._owner.failed(event, error)

    def crash(self, because: str) -> None:
        """End the machine's life without telling the others; the caller begins the next one."""
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
        self.transport.say_goodbye()
        self.end(None)

    # --- timers ---------------------------------------------------------------------------------

    def _on_alarm(self) -> None:
        """Timers may have run out: they have, if they still have when everything that waits was read."""
        if self.ended:
            return
        with self.guard:
            now = self.now_us()
            if self._timers.any_due(now) and not self.transport.read_waiting():
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

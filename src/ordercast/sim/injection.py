"""Wrong packets at machines in every state: no machine raises, and what it then wants is sane.

A group is fuzzed as usual (`ordercast.sim.fuzz`): it starts, loses members, splits, merges, recovers. Every
packet that is sent is remembered, and packets with something wrong in them are made of those (`mutation`).
They are injected in two ways:

- into *copies*: a machine is copied as it stands, and its copy gets a few dozen of them, with timers and
  messages in between. The group itself does not notice, so all states are those of a correct run;
- into the *group*: with some seeds every node is given wrong packets between the right ones, and what comes
  of it spreads. When the injections end, the group has to come together again.

What a machine answers is looked at as a driver would: packets that fit the wire and can be decoded, times
that are times, a stored state from which a next life can begin; and a machine must not grow without bounds,
nor work on one packet for long.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import count
from typing import Any, NoReturn, cast

import msgspec

from ordercast.core.contract import (
    Brake,
    CancelTimer,
    Deliver,
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
    Start,
    Submit,
    Timer,
    Unicast,
)
from ordercast.core.identity import MAX_NODE_ID, Batch, ConfigurationId, Guarantee, NodeId
from ordercast.core.wire import MAX_PACKET, PREFIX_SIZE, Malformed
from ordercast.sim.clock import Runaway
from ordercast.sim.faults import schedule
from ordercast.sim.founders import may_go_on
from ordercast.sim.fuzz import SLICE_US, Case, are_together, plan, without_garbage_collection
from ordercast.sim.mutation import Mutator
from ordercast.sim.protocol import LabProtocol
from ordercast.sim.topology import attached
from ordercast.sim.watchdog import watched
from ordercast.sim.workload import drive
from ordercast.sim.world import MachineFactory, World

AT_A_TIME = (20, 60, 200)
"""Wrong packets that a copy of a machine is given before it is thrown away: a few leave it in the state that
it was in, many lead far away from it. They are of a few kinds only, mostly."""
APART_US = 5_000_000
"""How long after the last wrong packet a group may take to be one configuration."""
WEIGHED = 0.1
"""How many of the copies are measured: it takes as long as many packets."""
MOST_PACKETS = 5_000
"""Wrong packets of one seed."""
MOST_EVENTS = 60_000
"""Events of one group: then the next seed has its turn."""
LONGEST_TIMER_US = 3_600_000_000
MOST_STORED = 1 << 20
MOST_RETAINED = 64 << 20
"""Bytes that a machine may hold on to: in these runs it keeps a few hundred packets, of 20 KB at most."""
LONGEST_PACKET_S = 1.0
"""Processor time that a machine may spend on one packet."""


class ImpossibleEffect(Exception):
    """A machine did not raise, but wants something that no driver can do."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that did not stand a packet."""

    seed: int
    what: str
    """The exception, or what the machine wants."""
    where: str
    """The line of the machine that raised, or nothing."""
    event: str
    state: str


class Injections(msgspec.Struct, kw_only=True):
    """What came of the injections of a seed, or of several."""

    protocol: str
    runs: int = 0
    count: int = 0
    """Wrong packets that machines were given."""
    dropped: int = 0
    """How many of these packets were not used."""
    halted: int = 0
    """Lives that ended because of one."""
    apart: list[int] = []
    """Seeds whose group did not come together again afterwards."""
    failures: list[Failure] = []
    states: dict[str, int] = {}
    """Injections by the state that the machine was in."""
    reasons: dict[str, int] = {}
    most_retained: int = 0
    """Bytes that the largest machine held on to."""
    longest_s: float = 0.0
    """Processor time of the packet that took longest."""

    def add(self, other: Injections) -> None:
        """Add up what came of another seed."""
        self.runs += other.runs
        self.count += other.count
        self.dropped += other.dropped
        self.halted += other.halted
        self.apart = [*self.apart, *other.apart]
        self.failures = [*self.failures, *other.failures]
        self.states = dict(Counter(self.states) + Counter(other.states))
        self.reasons = dict(Counter(self.reasons) + Counter(other.reasons))
        self.most_retained = max(self.most_retained, other.most_retained)
        self.longest_s = max(self.longest_s, other.longest_s)


def inject(protocol: LabProtocol, seed: int, nodes: tuple[int, int]) -> Injections:
    """Run the group of a seed, and inject packets; the same seed injects the same ones."""
    case = plan(protocol, seed, nodes)
    found = Injections(protocol=protocol.name, runs=1)
    injected = GroupUnderInjection(protocol, case, found)
    with without_garbage_collection():
        injected.run()
    return found


def campaign(
    protocol: LabProtocol, first_seed: int, nodes: tuple[int, int], count_: int
) -> Iterator[Injections]:
    """Seed after seed, until so many packets were injected, and the last seed is over; what came of each."""
    left = count_
    for seed in count(first_seed):
        if left <= 0:
            return
        found = inject(protocol, seed, nodes)
        left -= max(1, found.count)
        yield found


class GroupUnderInjection:
    """The group of one seed under injection."""

    def __init__(self, protocol: LabProtocol, case: Case, found: Injections) -> None:
        self.protocol = protocol
        self.case = case
        self.found = found
        self.chance = random.Random(f"{case.seed}/injection")
        self.mutator = Mutator(self.chance, protocol.rewrite, case.nodes)
        self._networks = attached(case.settings, case.nodes) or {}
        self._calm = False
        self._copies = self.chance.choice((0.005, 0.02, 0.05))
        """How often a machine is copied, of the packets it gets."""
        self.within = self.chance.choice((0.0, 0.0, 0.01, 0.1, 0.5))
        """How often the group itself gets a wrong packet with a right one."""

    @property
    def over(self) -> bool:
        """Whether there are enough."""
        return self.found.count >= MOST_PACKETS or bool(self.found.failures)

    def run(self) -> None:
        """Faults and wrong packets, then calm; where the group got any, it has to come together again."""
        case, protocol = self.case, self.protocol
        besieged = protocol._replace(make=self._besieged)
        world = besieged.world(case.settings, case.nodes, case.network, case.seed)
        drive(world, case.workload)
        schedule(world, case.faults)
        try:
            with watched(lambda: world.handled + self.found.count):
                world.start()
                self._advance(world, case.duration_us)
                self._calm = True
                world.networks.recover()
                if self.within and not self.over and not self._together(world):
                    self.found.apart = [case.seed]
        except Runaway:
            if not self.over:
                raise
        except MachineFailed:
            pass

    def _advance(self, world: World, until_us: int) -> None:
        while world.now < until_us and not self.over and (self._calm or world.handled < MOST_EVENTS):
            world.run_until(min(until_us, world.now + 1_000))

    def _together(self, world: World) -> bool:
        """Whether the group becomes one configuration again, if enough of the last view are left to go on."""
        begun_us = world.now
        while not _one_configuration(world):
            if self.protocol.product.primary_partition and not may_go_on(world, self.case.settings):
                return True
            if world.now - begun_us > APART_US:
                return False
            self._advance(world, world.now + SLICE_US)
        return True

    def _besieged(self, settings: Mapping[str, object]) -> MachineFactory:
        self._make = self.protocol.make(settings)
        return lambda node: cast(Machine, InjectedMachine(self, self._make(node), node))

    def hit(self, subject: Subject, now_us: int, event: Event, injected: bool) -> Sequence[Effect]:
        """Give a machine an event; what is wrong with what comes of it is a finding."""
        state = str(getattr(subject.machine, "state", ""))
        found = self.found
        began = time.process_time()
        try:
            effects = subject.machine.handle(now_us, event)
            subject.heed(now_us, effects)
        except Exception as error:  # noqa: BLE001 - whatever a machine raises is what is looked for
            self._finding(error, event, state)
        took_s = time.process_time() - began
        if injected:
            found.count += 1
            found.states[state] = found.states.get(state, 0) + 1
            found.longest_s = max(found.longest_s, took_s)
            for effect in effects:
                if type(effect).__name__ == "Drop":
                    found.dropped += 1
                    reason = effect.reason  # type: ignore[union-attr]
                    found.reasons[reason] = found.reasons.get(reason, 0) + 1
            if subject.halted:
                found.halted += 1
            if took_s > LONGEST_PACKET_S:
                self._finding(ImpossibleEffect(f"one packet took {took_s:.1f} s"), event, state)
        return effects

    def _finding(self, error: Exception, event: Event, state: str) -> NoReturn:
        """A machine did not stand it: that is told, and ends the run."""
        self.found.failures = [*self.found.failures, _failure(self.case.seed, error, event, state)]
        raise MachineFailed from error

    def wants_copy(self) -> bool:
        """Whether a machine is to be copied now."""
        return not self._calm and self.mutator.ready and self.chance.random() < self._copies

    def wrong_packet(self, node: NodeId, kinds: Sequence[int] = ()) -> Packet:
        """A wrong packet for a node: it comes in on a network that the node is attached to."""
        packet = self.mutator.packet(kinds)
        networks = self._networks.get(node, (0,))
        return packet._replace(network=networks[packet.network % len(networks)])

    def wants_packet(self) -> bool:
        """Whether the group itself is to get a wrong packet now."""
        return (
            bool(self.within) and not self._calm and self.mutator.ready and self.chance.random() < self.within
        )

    def bombard(self, original: Subject, now_us: int) -> None:
        """Give a copy of a machine many wrong packets, with timers and messages in between."""
        subject = original.copied()
        chance = self.chance
        kinds = self.mutator.some_kinds()
        for _ in range(chance.choice(AT_A_TIME)):
            if subject.halted or self.over:
                break
            self.hit(subject, now_us, self.wrong_packet(subject.node, kinds), True)
            if chance.random() < 0.1 and not subject.halted:
                now_us += chance.choice((1, 100, 1_000, 20_000, 200_000))
                for name in subject.due(now_us):
                    if not subject.halted:
                        self.hit(subject, now_us, Timer(name), False)
            if chance.random() < 0.03 and not subject.halted:
                self.hit(subject, now_us, self._own_event(subject), False)
        self._look_at(subject, now_us)

    def _own_event(self, subject: Subject) -> Event:
        """Something that does not come from the network."""
        chance = self.chance
        match chance.randrange(4):
            case 0:
                return Brake(chance.random() < 0.3)
            case 1:
                return Gone(chance.choice(self.case.nodes))
        size = min(subject.machine.room, chance.choice((0, 10, 3_000)))
        return (
            Submit([bytes(size)], chance.choice((Guarantee.AGREED, Guarantee.SAFE))) if size else Brake(False)
        )

    def _look_at(self, subject: Subject, now_us: int) -> None:
        """What a machine holds on to is bounded, and its next life can begin with what it stored."""
        if self.chance.random() < WEIGHED:
            self._weigh(subject)
        if subject.stored is not None:
            following = Subject(self, self._make(subject.node), subject.node)
            self.hit(following, now_us, Start(subject.incarnation + 1, subject.stored, 1), False)

    def _weigh(self, subject: Subject) -> None:
        size = retained(subject.machine)
        self.found.most_retained = max(self.found.most_retained, size)
        if size > MOST_RETAINED:
            self._finding(
                ImpossibleEffect(f"the machine holds on to {size:,} bytes"), Packet(b"", subject.node), ""
            )


class MachineFailed(Exception):
    """A machine did not stand it: this run is over."""


class Subject:
    """A machine with what its driver keeps for it: timers and the disk."""

    def __init__(self, injected: GroupUnderInjection, machine: Machine, node: NodeId) -> None:
        self._injected = injected
        self.machine = machine
        self.node = node
        self.incarnation = 0
        self.stored: bytes | None = None
        self.halted = False
        self._installed: ConfigurationId | None = None
        self._timers: dict[str, int] = {}

    def copied(self) -> Subject:
        """A copy of the machine that a wrong packet can be tried on."""
        other = Subject(self._injected, deepcopy(self.machine), self.node)
        other.incarnation, other.stored = self.incarnation, self.stored
        other._installed, other._timers = self._installed, dict(self._timers)
        return other

    def due(self, now_us: int) -> list[str]:
        """The timers that run out."""
        names = [name for name, due_us in self._timers.items() if due_us <= now_us]
        for name in names:
            del self._timers[name]
        return names

    def heed(self, now_us: int, effects: Sequence[Effect]) -> None:
        """Look at effects as a driver does; raises `ImpossibleEffect`."""
        for effect in effects:
            match effect:
                case Multicast(data) | Unicast(_, data):
                    self._check_packet(data)
                    if isinstance(effect, Unicast) and not 0 < effect.to <= MAX_NODE_ID:
                        raise ImpossibleEffect(f"a packet is to go to node {effect.to}")
                case SetTimer(name, delay_us):
                    if not 0 <= delay_us <= LONGEST_TIMER_US:
                        raise ImpossibleEffect(f"the timer {name} is to run out after {delay_us} µs")
                    self._timers[name] = now_us + delay_us
                case CancelTimer(name):
                    self._timers.pop(name, None)
                case Persist(data):
                    if len(data) > MOST_STORED:
                        raise ImpossibleEffect(f"{len(data)} bytes are to be stored")
                    self.stored = data
                case Deliver(batch) | Originate(batch):
                    _check_batch(batch)
                case Install(configuration, ended):
                    members = configuration.members
                    member = self.node in members or self._injected.protocol.followers
                    if not member or list(members) != sorted(set(members)):
                        raise ImpossibleEffect(
                            f"the configuration {configuration} was installed at node {self.node}"
                        )
                    if (ended and ended.configuration) != self._installed:
                        raise ImpossibleEffect(
                            f"{configuration.id} ends {ended}, and {self._installed} was installed"
                        )
                    self._installed = configuration.id
                case Halt():
                    self.halted = True
                    return

    def _check_packet(self, data: bytes) -> None:
        if not PREFIX_SIZE <= len(data) <= MAX_PACKET:
            raise ImpossibleEffect(f"a packet of {len(data)} bytes is to be sent")
        try:
            self._injected.protocol.rewrite(data, lambda packet: packet)
        except Malformed as bad:
            raise ImpossibleEffect(f"a packet is to be sent that nobody can read: {bad}") from bad


def _one_configuration(world: World) -> bool:
    """Whether every node that lives is in one regular configuration of exactly those nodes."""
    living = tuple(node for node in world.nodes if world.living(node))
    return not living or are_together(world, living)


def _check_batch(batch: Batch) -> None:
    numbers = (batch.configuration.seq, batch.seq, batch.slot, batch.incarnation, batch.number)
    if not all(0 <= number < 2**63 for number in numbers) or not 0 < batch.origin <= MAX_NODE_ID:
        raise ImpossibleEffect(f"a batch has numbers that are none: {batch[:7]}")
    if not batch.payloads:
        raise ImpossibleEffect("a batch is empty")


class InjectedMachine(Subject):
    """A machine of the group: a `Machine` itself, which passes events on and has wrong packets join them."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Take one event, and sometimes a wrong packet before it."""
        injected = self._injected
        if type(event) is Start:
            self.incarnation, self.stored = event.incarnation, event.stored
        elif type(event) is Packet:
            injected.mutator.saw(event)
            if injected.wants_copy():
                injected.bombard(self, now_us)
            if injected.wants_packet():
                first = injected.hit(self, now_us, injected.wrong_packet(self.node), True)
                if self.halted:
                    return self._reachable(first)
                return self._reachable([*first, *injected.hit(self, now_us, event, False)])
        return self._reachable(injected.hit(self, now_us, event, False))

    def _reachable(self, effects: Sequence[Effect]) -> Sequence[Effect]:
        """Without what is for nodes that there are not: a driver has no address for them."""
        nodes = self._injected.case.nodes
        return [effect for effect in effects if not (type(effect) is Unicast and effect.to not in nodes)]

    def __getattr__(self, name: str) -> Any:
        """Everything else is the machine's."""
        return getattr(self.machine, name)


def _failure(seed: int, error: Exception, event: Event, state: str) -> Failure:
    return Failure(
        seed=seed,
        what=f"{type(error).__name__}: {error}"[:300],
        where=_where(error),
        event=f"packet {event.data.hex()[:400]}" if isinstance(event, Packet) else repr(event)[:100],
        state=state,
    )


def _where(error: BaseException) -> str:
    trace, where = error.__traceback__, ""
    while trace is not None:
        where = f"{trace.tb_frame.f_code.co_filename.rpartition('ordercast/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return where


def retained(root: object) -> int:
    """About how many bytes an object holds on to, with everything in it. Functions and classes are shared."""
    seen: set[int] = set()
    waiting = deque([root])
    size = 0
    while waiting:
        it = waiting.pop()
        if id(it) in seen or callable(it) or it is None:
            continue
        seen.add(id(it))
        size += sys.getsizeof(it, 64)
        if isinstance(it, dict):
            waiting.extend(it.keys())
            waiting.extend(it.values())
        elif isinstance(it, tuple | list | set | frozenset | deque):
            waiting.extend(it)
        elif not isinstance(it, int | float | str | bytes):
            waiting.extend(vars(it).values() if hasattr(it, "__dict__") else ())
            for kind in type(it).__mro__:
                waiting.extend(getattr(it, name, None) for name in getattr(kind, "__slots__", ()))
    return size

"""A simulated computer: the machine that runs on it, its disk, timers, input buffers and application.

Plain state; the rules by which it changes are the world's (`ordercast.sim.world`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ordercast.core.contract import Effect, Event, Machine, Packet, SetTimer
from ordercast.core.identity import Configuration, Guarantee, Kind, NodeId
from ordercast.trace.recorder import Recorder

MOST_WRITES_AGO = 8
"""How old the state may be that a disk returns, in writes."""

Handle = Callable[[int, Event], Sequence[Effect]]
"""A machine's `handle`."""

Refill = Callable[[NodeId, int], Iterable[tuple[int, Guarantee]]]
"""A node, and the bytes it has room for, to sizes and guarantees of messages that fill it."""


class Offer(NamedTuple):
    """A message of the application that its machine has not accepted yet."""

    payload: bytes
    guarantee: Guarantee
    label: str | None
    """What a scenario calls it."""
    since_us: int


class Arrival(NamedTuple):
    """A packet that waits at a host."""

    packet: Packet
    due_us: int
    """When a host with nothing else to do would have handled it."""


class Alarm:
    """A timer of one name. It has at most one live entry on the heap, at or before its deadline.

    A timer is set anew far more often than it runs out. So setting it to a later time only moves the
    deadline, and the entry, when it comes up too early, is put back to it.
    """

    __slots__ = ("armed_us", "deadline_us", "host", "name")

    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        self.name = name
        self.deadline_us = -1
        """When it runs out; -1 while it does not run."""
        self.armed_us = -1
        """When its heap entry comes up; -1 without one. Entries for other times are stale."""


class Host:
    """One node, over all its lives."""

    __slots__ = (
        "ahead",
        "alarms",
        "arrivals",
        "arrivals_bytes",
        "busy",
        "clock_us",
        "configuration",
        "departs_us",
        "direct",
        "disks",
        "drift_ppm",
        "effects_left",
        "epoch",
        "guard",
        "handle",
        "has_more",
        "highest",
        "in_hand",
        "incarnation",
        "input_bytes",
        "leaving",
        "left",
        "machine",
        "made",
        "next_clock_us",
        "node",
        "offered",
        "overdue",
        "paused",
        "record",
        "refill",
        "reviving",
        "serving",
        "slow_us",
        "state",
        "tokens",
        "tokens_bytes",
        "up",
        "waiting",
    )

    def __init__(self, node: NodeId, record: Recorder, input_bytes: int) -> None:
        self.node = node
        self.record = record
        self.disks: deque[bytes] = deque(maxlen=MOST_WRITES_AGO + 1)
        """What the last `Persist`s held, the newest at the end; empty on a disk that is new or lost."""
        self.highest: int | None = None
        """The highest number of a regular configuration that was installed here, on this disk."""
        self.clock_us = 0
        """How far this life's clock is ahead of the simulation's."""
        self.next_clock_us = 0
        """The same for the next life."""
        self.drift_ppm = 0
        """How much faster than the simulation's its clocks run, from the next life on."""
        self.incarnation = -1
        self.machine: Machine | None = None
        self.handle: Handle = _asleep
        self.up = False
        self.leaving = False
        """Its machine was told to go (`Stop`) in this life."""
        self.left = False
        """The machine has left the group, which goes on without it."""
        self.reviving = False
        """Its machine halted by itself, and a new life is about to begin."""
        self.paused = False
        self.direct = False
        """Nothing stands between an arrival and the machine: the fast path."""
        self.epoch = 0
        """Grows when a life ends: heap entries of an earlier one are stale."""
        self.effects_left: int | None = None
        """The next event carries out this many effects, then the node crashes."""
        self.state = ""
        """What the machine last said it shifted to."""
        self.configuration: Configuration | None = None
        """What the machine installed last in this life."""
        self.slow_us = 0
        """Processor time each packet takes on top of the network's figures."""
        # input
        self.input_bytes = input_bytes
        """What each of the two input buffers holds; what does not fit is dropped."""
        self.arrivals: deque[Arrival] = deque()
        self.arrivals_bytes = 0
        self.tokens: deque[Arrival] = deque()
        """Unicasts: they wait until `arrivals` is empty (000 §5.2)."""
        self.tokens_bytes = 0
        self.busy = False
        """The processor works on `serving`, or still sends."""
        self.serving: Arrival | None = None
        self.in_hand = Packet(b"", node)
        """What the machine was given last; kept up to date where packets are traced."""
        self.departs_us = 0
        """When the last packet sent so far leaves the processor."""
        # timers
        self.alarms: dict[str, Alarm] = {}
        self.overdue: list[Alarm] = []
        """Ran out while the node was paused or busy; they wait for the packets before them."""
        self.guard = 0
        """How many packets that is."""
        # application
        self.ahead = 0
        """Messages of this life that the machine has accepted and not delivered to this node yet."""
        self.has_more = False
        """Whether something waits to be submitted, or always will."""
        self.waiting: deque[Offer] = deque()
        self.refill: Refill | None = None
        """Where there is always more to send: asked whenever the machine has room."""
        self.offered: Sequence[Offer] = ()
        """What the `Submit` being handled holds; empty once accepted."""
        self.made = 0
        """Payloads made in this life."""

    def run(self, machine: Machine, now_us: int) -> None:
        """A life begins with this machine, which goes by the node's clock."""
        self.machine = machine
        since_us = now_us + self.clock_us
        self.handle = (
            _drifting(machine.handle, since_us, self.drift_ppm) if self.drift_ppm else machine.handle
        )

    @property
    def follows(self) -> bool:
        """Whether it is told the order of configurations of which it is no member."""
        configuration = self.configuration
        return configuration is not None and self.node not in configuration.members

    @property
    def disk(self) -> bytes | None:
        """What the last `Persist` held."""
        return self.disks[-1] if self.disks else None

    def find_disk(self, kept: bool, writes_ago: int) -> None:
        """What the next life finds on the disk: nothing, the newest state, or an older one."""
        if not kept or writes_ago:
            self.highest = None
        if not kept:
            self.disks.clear()
        for _ in range(min(writes_ago, len(self.disks) - 1)):
            self.disks.pop()

    def install(self, configuration: Configuration) -> list[str]:
        """The machine installs a configuration; if its number does not rise, that in words.

        Numbers rise over all lives that keep the disk: the positions of a node's log rely on it.
        """
        self.configuration = configuration
        before, number = self.highest, configuration.id.seq
        if configuration.kind is not Kind.REGULAR or self.follows:
            return []
        self.highest = number
        if before is None or number > before:
            return []
        return [
            f"node {self.node} installed configuration {configuration.id} after {before} on the same disk"
        ]

    def room(self) -> int:
        """Bytes the application may submit now."""
        assert self.machine is not None
        room = self.machine.room
        return room if room > 0 else -1

    def end_life(self) -> None:
        """Forget all that dies with the process; the disk stays."""
        self.epoch += 1
        self.up = self.paused = self.direct = self.busy = False
        self.effects_left = self.serving = None
        self.state = ""
        self.handle = _asleep
        self.machine = None
        self.configuration = None
        for alarm in self.alarms.values():
            alarm.armed_us = alarm.deadline_us = -1
        self.alarms = {}
        self.overdue.clear()
        self.arrivals.clear()
        self.tokens.clear()
        self.waiting.clear()
        self.arrivals_bytes = self.tokens_bytes = self.guard = self.departs_us = self.made = self.ahead = 0
        self.offered = ()
        self.has_more = self.refill is not None


def _drifting(handle: Handle, since_us: int, ppm: int) -> Handle:
    """A machine by whose clock `ppm` microseconds more pass in a second, from a time on.

    What it is told of time, and how long its timers take, is by that clock.
    """
    rate = 1_000_000 + ppm
    if rate <= 0:
        raise ValueError(f"a clock that runs {-ppm} ppm slower stands still")

    def handle_drifting(now_us: int, event: Event) -> Sequence[Effect]:
        told_us = now_us + (now_us - since_us) * ppm // 1_000_000
        return [
            effect._replace(delay_us=effect.delay_us * 1_000_000 // rate)
            if type(effect) is SetTimer
            else effect
            for effect in handle(told_us, event)
        ]

    return handle_drifting


def _asleep(now_us: int, event: Event) -> Sequence[Effect]:
    raise AssertionError(f"{event} was given to a node that is down")


def take(waiting: deque[Offer], room: int) -> list[Offer]:
    """The first offers that fit into `room` and ask for one guarantee."""
    taken: list[Offer] = []
    while waiting and room > 0:
        offer = waiting[0]
        room -= len(offer.payload)
        if room < 0 or (taken and offer.guarantee != taken[0].guarantee):
            break
        taken.append(waiting.popleft())
    return taken

"""What can go wrong in a world, when, and how it is written down.

An *action* is something done to the world (`Crash`, `Partition`, …); a *fault* is an action and when it
happens: `At` a time, or `When` a machine enters a state or sends a packet. Both are data, and both have one
text form, the one of scenario files: ``str(fault)`` writes it and `ordercast.sim.reading` reads it.

    begin s                  clock s ahead 2ms            restart s        restart s without disk
    drift s 200ppm           drift s -200ppm
    crash s                  crash s after 3 effects      restart s with disk of 2 writes ago
    pause s                  resume s                     slow s 500us     unslow s
    partition p q | r s      heal                         leave s
    brake s                  unbrake s                    gone s at t      distance s 30ms
    cut p -> q               uncut p -> q                 burst 0.3 for 20ms
    clog p -> q              clog p -> q by 5ms           unclog p -> q
    lose p -> q ack          lose p -> q ack (2nd)
    p sends a                p sends a x*50 size 1000 safe               p sends a k=2

Where nodes are attached to several networks, what is wrong with packets may be so on one of them alone:

    partition p q | r s on 2      heal on 2      cut p -> q on 2      burst 0.3 for 20ms on 2

Without ``on`` it is so on all of them. A gateway whose link to network 2 is dead: ``partition g on 2``.

An action that does not apply (crash of a node that is down) does nothing. In the action of a `When`,
``it`` is the node that entered the state, or sent the packet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from ordercast.core.identity import Guarantee, NodeId
from ordercast.sim.world import World

IT: NodeId = 0
"""Stands for the node that a `When` is about, in its action."""

Names: TypeAlias = Callable[[NodeId], str]


def time_text(time_us: int) -> str:
    """A time as people write it: ``12us``, ``1.5ms``, ``3s``."""
    for unit, name in ((1_000_000, "s"), (1_000, "ms")):
        if time_us >= unit:
            return f"{Decimal(time_us) / unit:f}{name}"
    return f"{time_us}us" if time_us else "0ms"


class Action(msgspec.Struct, frozen=True, tag=True):
    """Something done to a world."""

    def __str__(self) -> str:
        return action_text(self)


class Crash(Action, frozen=True):
    """The node's process ends; at once, or having carried out some effects of an event."""

    node: NodeId
    after_effects: int | None = None


class Begin(Action, frozen=True):
    """A node that was not started with the others begins its first life."""

    node: NodeId


class Clock(Action, frozen=True):
    """From its next life on the node's clock is ahead of the simulation's by so much.

    Within a life a clock never goes back (the contract of machines); from one life to the next it may.
    """

    node: NodeId
    ahead_us: int


class Drift(Action, frozen=True):
    """From its next life on the node's clock runs faster than the simulation's, or slower where negative."""

    node: NodeId
    ppm: int
    """Microseconds a second."""


class Restart(Action, frozen=True):
    """A node that is down begins its next life."""

    node: NodeId
    keep_disk: bool = True
    writes_ago: int = 0
    """The disk holds what it held so many writes ago: 0 is the newest state."""


class Pause(Action, frozen=True):
    """The node's process is stopped (SIGSTOP)."""

    node: NodeId


class Resume(Action, frozen=True):
    """A paused process goes on."""

    node: NodeId


class Slow(Action, frozen=True):
    """Each packet costs the node this much more processor time."""

    node: NodeId
    cost_us: int


class Unslow(Action, frozen=True):
    """The node is as fast as before."""

    node: NodeId


class Leave(Action, frozen=True):
    """The node's application asks it to go (`Stop`)."""

    node: NodeId


class Brake(Action, frozen=True):
    """The node's application stops reading, and says so."""

    node: NodeId


class Unbrake(Action, frozen=True):
    """The node's application has caught up."""

    node: NodeId


class Gone(Action, frozen=True):
    """A node is told, rightly or wrongly, that another's process has ended."""

    node: NodeId
    """Who is said to be gone."""
    to: NodeId
    """Who is told."""


class Distance(Action, frozen=True):
    """A node is told, rightly or wrongly, how long the longest round trip to its peers takes."""

    node: NodeId
    round_trip_us: int
    """0: no longer than its settings are made for."""


class OnNetwork(Action, frozen=True, kw_only=True):
    """Something done to the network, or to the one of this number, where there are several."""

    network: int | None = None
    """None: all networks of the world."""


class Partition(OnNetwork, frozen=True):
    """Only nodes of one group reach each other; those in no group make up one more."""

    groups: tuple[tuple[NodeId, ...], ...]


class Heal(OnNetwork, frozen=True):
    """The partition ends."""


class Cut(OnNetwork, frozen=True):
    """Nothing gets through in this direction."""

    source: NodeId
    to: NodeId


class Uncut(OnNetwork, frozen=True):
    """The cut ends."""

    source: NodeId
    to: NodeId


class Clog(OnNetwork, frozen=True):
    """Packets in this direction take longer, or are held until the clog ends."""

    source: NodeId
    to: NodeId
    delay_us: int | None = None


class Unclog(OnNetwork, frozen=True):
    """The clog ends; what it held arrives."""

    source: NodeId
    to: NodeId


class Lose(OnNetwork, frozen=True):
    """The n-th packet of a kind that goes in this direction from now on is lost."""

    source: NodeId
    to: NodeId
    kind: str
    """As `Protocol.kind_of` names it."""
    nth: int = 1


class Burst(OnNetwork, frozen=True):
    """For a while each reception is lost with this probability."""

    loss: float
    duration_us: int


class Send(Action, frozen=True):
    """The node's application sends named messages: no fault, but it happens at a time like one."""

    node: NodeId
    names: tuple[str, ...]
    """``a`` is one message, ``x*50`` are fifty, called x1 to x50."""
    size: int = 100
    guarantee: Guarantee = Guarantee.AGREED


def apply(world: World, action: Action) -> None:
    """Carry out an action on a world, now."""
    match action:
        case OnNetwork():
            _apply_to_links(world, action)
        case Crash(node, after_effects):
            world.crash(node, after_effects)
        case Begin(node):
            world.begin(node)
        case Clock(node, ahead_us):
            world.set_clock(node, ahead_us)
        case Drift(node, ppm):
            world.hosts[node].drift_ppm = ppm
        case Restart(node, keep_disk, writes_ago):
            world.restart(node, keep_disk, writes_ago)
        case Pause(node):
            world.pause(node)
        case Resume(node):
            world.resume(node)
        case Slow(node, cost_us):
            world.slow(node, cost_us)
        case Unslow(node):
            world.slow(node, 0)
        case Leave(node):
            world.leave(node)
        case Brake(node):
            world.brake(node, True)
        case Unbrake(node):
            world.brake(node, False)
        case Gone(node, to):
            world.tell_gone(to, node)
        case Distance(node, round_trip_us):
            world.tell_distance(node, round_trip_us)
        case Send(node, names, size, guarantee):
            for name in each_name(names):
                world.applications.submit(node, size, guarantee, name)
        case _:
            raise TypeError(f"{action!r} is no action")


def _apply_to_links(world: World, action: OnNetwork) -> None:
    """Do it on its network, or on each that the nodes it names are attached to."""
    ends = () if isinstance(action, Partition) else named(action)
    for links in world.networks.links(action.network, *ends):
        match action:
            case Partition(groups):
                links.partition([[node for node in group if node in links.nodes] for group in groups])
            case Heal():
                links.heal()
            case Cut(source, to):
                links.cut(source, to)
            case Uncut(source, to):
                links.uncut(source, to)
            case Clog(source, to, delay_us):
                links.clog(source, to, delay_us)
            case Unclog(source, to):
                links.unclog(source, to)
            case Lose(source, to, kind, nth):
                links.lose(source, to, nth, lambda data: world.kind_of(data) == kind)
            case Burst(loss, duration_us):
                links.begin_burst(loss)
                world.at(world.now + duration_us, partial(links.end_burst, loss))
            case _:
                raise TypeError(f"{action!r} is no action")


def named(action: Action) -> list[NodeId]:
    """The nodes that an action names."""
    if isinstance(action, Partition):
        return [node for group in action.groups for node in group]
    fields = (getattr(action, field, None) for field in ("node", "source", "to"))
    return [node for node in fields if node is not None]


def each_name(names: Iterable[str]) -> list[str]:
    """The names of messages, with ``x*3`` spelled out as x1, x2, x3."""
    every: list[str] = []
    for name in names:
        stem, star, count = name.partition("*")
        if not re.fullmatch(r"\w+", stem) or (star and not count.isdigit()):
            raise ValueError(f"expected the name of a message, such as a or x*50, found {name!r}")
        every += [f"{stem}{i + 1}" for i in range(int(count))] if star else [stem]
    return every


def _plain_name(node: NodeId) -> str:
    return "it" if node == IT else str(node)


def action_text(action: Action, name: Names = _plain_name) -> str:
    """An action as in a scenario file, with the names that `name` gives to nodes."""
    on = f" on {action.network}" if isinstance(action, OnNetwork) and action.network is not None else ""
    return _without_network(action, name) + on


def _without_network(action: Action, name: Names) -> str:
    verb = type(action).__name__.lower()
    match action:
        case Crash(node, int(k)):
            return f"crash {name(node)} after {k} effects"
        case Restart(node, False):
            return f"restart {name(node)} without disk"
        case Restart(node, True, writes_ago) if writes_ago:
            return f"restart {name(node)} with disk of {writes_ago} writes ago"
        case Clock(node, ahead_us):
            return f"clock {name(node)} ahead {time_text(ahead_us)}"
        case Drift(node, ppm):
            return f"drift {name(node)} {ppm}ppm"
        case Slow(node, cost_us):
            return f"slow {name(node)} {time_text(cost_us)}"
        case Partition(groups):
            return "partition " + " | ".join(" ".join(map(name, group)) for group in groups)
        case Clog(source, to, int(delay_us)):
            return f"clog {name(source)} -> {name(to)} by {time_text(delay_us)}"
        case Cut(source, to) | Uncut(source, to) | Clog(source, to) | Unclog(source, to):
            return f"{verb} {name(source)} -> {name(to)}"
        case Lose(source, to, kind, nth):
            return f"lose {name(source)} -> {name(to)} {kind}{_nth(nth)}"
        case Burst(loss, duration_us):
            return f"burst {loss} for {time_text(duration_us)}"
        case Crash(node) | Restart(node) | Pause(node) | Resume(node) | Unslow(node) | Leave(node):
            return f"{verb} {name(node)}"
        case Begin(node) | Brake(node) | Unbrake(node):
            return f"{verb} {name(node)}"
        case Gone(node, to):
            return f"gone {name(node)} at {name(to)}"
        case Distance(node, round_trip_us):
            return f"distance {name(node)} {time_text(round_trip_us)}"
        case Send(node, names, size, guarantee):
            asked = "" if guarantee is Guarantee.AGREED else f" {guarantee}"
            return f"{name(node)} sends {' '.join(names)} size {size}{asked}"
        case _:
            return verb


# --- when ------------------------------------------------------------------------------------------


class At(msgspec.Struct, frozen=True, tag=True):
    """An action at a time."""

    at_us: int
    do: Actions

    def text(self, name: Names = _plain_name) -> str:
        """The line of a scenario file that says this."""
        return f"at {time_text(self.at_us)} {action_text(self.do, name)}"

    def __str__(self) -> str:
        return self.text()


class When(msgspec.Struct, frozen=True, tag=True):
    """An action that follows when a machine does something for the n-th time. It happens once."""

    node: NodeId | None
    """Who has to do it; None is anybody, counted together."""
    state: str
    """The state that it enters, or the kind of packet that it sends."""
    do: Actions
    nth: int = 1
    delay_us: int = 0
    before_us: int | None = None
    """The fault does not happen at or after this time, in microseconds."""
    event: Literal["enters", "sends"] = "enters"

    def text(self, name: Names = _plain_name) -> str:
        """The line of a scenario file that says this."""
        who = "any" if self.node is None else name(self.node)
        delay = "" if not self.delay_us else f" +{time_text(self.delay_us)}"
        before = "" if self.before_us is None else f" before {time_text(self.before_us)}"
        action = action_text(self.do, lambda node: "it" if node == IT else name(node))
        return f"when {who} {self.event} {self.state}{_nth(self.nth)}{before}{delay} {action}"

    def __str__(self) -> str:
        return self.text()


Actions: TypeAlias = (
    Begin
    | Clock
    | Drift
    | Crash
    | Restart
    | Pause
    | Resume
    | Slow
    | Unslow
    | Leave
    | Brake
    | Unbrake
    | Gone
    | Distance
    | Partition
    | Heal
    | Cut
    | Uncut
    | Clog
    | Unclog
    | Lose
    | Burst
    | Send
)
Fault: TypeAlias = At | When


def _nth(number: int) -> str:
    """Which of several, behind what it is one of; nothing for the first."""
    if number == 1:
        return ""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f" ({number}{ending})"


def schedule(world: World, faults: Iterable[Fault]) -> None:
    """Let these faults happen to a world."""
    for fault in faults:
        if isinstance(fault, At):
            world.at(fault.at_us, partial(apply, world, fault.do))
        else:
            (world.watch if fault.event == "enters" else world.watch_sent)(_Trigger(world, fault))


class _Trigger:
    """Waits for what a `When` names."""

    def __init__(self, world: World, fault: When) -> None:
        self._world = world
        self._fault = fault
        self._left = fault.nth

    def __call__(self, node: NodeId, state: str | None) -> None:
        fault = self._fault
        if state != fault.state or fault.node not in (None, node):
            return
        self._left -= 1
        when_us = self._world.now + fault.delay_us
        if self._left == 0 and (fault.before_us is None or when_us < fault.before_us):
            self._world.at(when_us, partial(apply, self._world, _meant(fault.do, node)))


def _meant(action: Action, it: NodeId) -> Action:
    """The action with the node that `IT` stands for."""
    changes = {field: it for field in ("node", "source", "to") if getattr(action, field, None) == IT}
    return msgspec.structs.replace(action, **changes) if changes else action

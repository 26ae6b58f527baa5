"""What can go wrong in a world, when, and how it is written down.

An *action* is something done to the world (`Crash`, `Partition`, …); a *fault* is an action and when it
happens: `At` a time, or `When` a machine enters a state. Both are data, and both have one text form,
the one of scenario files: ``str(fault)`` writes it and `parse_action` reads it.

    crash s                  crash s after 3 effects      restart s        restart s without disk
    pause s                  resume s                     slow s 500us     unslow s
    partition p q | r s      heal                         leave s
    brake s                  unbrake s                    gone s at t
    cut p -> q               uncut p -> q                 burst 0.3 for 20ms
    clog p -> q              clog p -> q by 5ms           unclog p -> q
    p sends a                p sends a x*50 size 1000 safe               p sends a k=2

An action that does not apply (crash of a node that is down) does nothing. In the action of a `When`,
``it`` is the node that entered the state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TypeAlias

import msgspec

from ordercast.core.identity import Guarantee, NodeId
from ordercast.sim.world import World

IT: NodeId = 0
"""Stands for the node that entered the state, in the action of a `When`."""

Names: TypeAlias = Callable[[NodeId], str]


def time_text(time_us: int) -> str:
    """A time as people write it: ``12us``, ``1.5ms``, ``3s``."""
    for unit, name in ((1_000_000, "s"), (1_000, "ms")):
        if time_us >= unit:
            return f"{Decimal(time_us) / unit:f}{name}"
    return f"{time_us}us" if time_us else "0ms"


_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|µs|ms|s)")


def parse_time(text: str) -> int:
    """Microseconds of a time such as ``12us``, ``1.5ms`` or ``3s``."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a time such as 20ms, 1.5s or 300us, found {text!r}")
    scaled = Decimal(match[1]) * {"s": 1_000_000, "ms": 1_000}.get(match[2], 1)
    if scaled != int(scaled):
        raise ValueError(f"{text!r} is finer than a microsecond")
    return int(scaled)


class Action(msgspec.Struct, frozen=True, tag=True):
    """Something done to a world."""

    def __str__(self) -> str:
        return action_text(self)


class Crash(Action, frozen=True):
    """The node's process ends; at once, or having carried out some effects of an event."""

    node: NodeId
    after_effects: int | None = None


class Restart(Action, frozen=True):
    """A node that is down begins its next life."""

    node: NodeId
    keep_disk: bool = True


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


class Partition(Action, frozen=True):
    """Only nodes of one group reach each other; those in no group make up one more."""

    groups: tuple[tuple[NodeId, ...], ...]


class Heal(Action, frozen=True):
    """The partition ends."""


class Cut(Action, frozen=True):
    """Nothing gets through in this direction."""

    source: NodeId
    to: NodeId


class Uncut(Action, frozen=True):
    """The cut ends."""

    source: NodeId
    to: NodeId


class Clog(Action, frozen=True):
    """Packets in this direction take longer, or are held until the clog ends."""

    source: NodeId
    to: NodeId
    delay_us: int | None = None


class Unclog(Action, frozen=True):
    """The clog ends; what it held arrives."""

    source: NodeId
    to: NodeId


class Burst(Action, frozen=True):
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
    """Do it now."""
    links = world.network.links
    match action:
        case Crash(node, after_effects):
            world.crash(node, after_effects)
        case Restart(node, keep_disk):
            world.restart(node, keep_disk)
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
        case Partition(groups):
            links.partition(groups)
        case Heal():
            links.heal()
        case Cut(source, to):
            links.cut(source, to)
        case Uncut(source, to):
            links.uncut(source, to)
        case Clog(source, to, delay_us):
            links.clog(source, to, delay_us)
        case Unclog(source, to):
            world.network.unclog(world.now, source, to)
        case Burst(loss, duration_us):
            links.begin_burst(loss)
            world.at(world.now + duration_us, lambda: links.end_burst(loss))
        case Send(node, names, size, guarantee):
            for name in each_name(names):
                world.submit(node, size, guarantee, name)
        case _:
            raise TypeError(f"{action!r} is no action")


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
    verb = type(action).__name__.lower()
    match action:
        case Crash(node, int(k)):
            return f"crash {name(node)} after {k} effects"
        case Restart(node, False):
            return f"restart {name(node)} without disk"
        case Slow(node, cost_us):
            return f"slow {name(node)} {time_text(cost_us)}"
        case Partition(groups):
            return "partition " + " | ".join(" ".join(map(name, group)) for group in groups)
        case Clog(source, to, int(delay_us)):
            return f"clog {name(source)} -> {name(to)} by {time_text(delay_us)}"
        case Cut(source, to) | Uncut(source, to) | Clog(source, to) | Unclog(source, to):
            return f"{verb} {name(source)} -> {name(to)}"
        case Burst(loss, duration_us):
            return f"burst {loss} for {time_text(duration_us)}"
        case Crash(node) | Restart(node) | Pause(node) | Resume(node) | Unslow(node) | Leave(node):
            return f"{verb} {name(node)}"
        case Brake(node) | Unbrake(node):
            return f"{verb} {name(node)}"
        case Gone(node, to):
            return f"gone {name(node)} at {name(to)}"
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
        """As in a scenario file."""
        return f"at {time_text(self.at_us)} {action_text(self.do, name)}"

    def __str__(self) -> str:
        return self.text()


class When(msgspec.Struct, frozen=True, tag=True):
    """An action that follows when a machine enters a state for the n-th time. It happens once."""

    node: NodeId | None
    """Whose changes count; None is anybody's, counted together."""
    state: str
    do: Actions
    nth: int = 1
    delay_us: int = 0
    before_us: int | None = None
    """It does not happen at or after this time."""

    def text(self, name: Names = _plain_name) -> str:
        """As in a scenario file."""
        who = "any" if self.node is None else name(self.node)
        nth = "" if self.nth == 1 else f" ({_ordinal(self.nth)})"
        delay = "" if not self.delay_us else f" +{time_text(self.delay_us)}"
        before = "" if self.before_us is None else f" before {time_text(self.before_us)}"
        action = action_text(self.do, lambda node: "it" if node == IT else name(node))
        return f"when {who} enters {self.state}{nth}{before}{delay} {action}"

    def __str__(self) -> str:
        return self.text()


Actions: TypeAlias = (
    Crash
    | Restart
    | Pause
    | Resume
    | Slow
    | Unslow
    | Leave
    | Brake
    | Unbrake
    | Gone
    | Partition
    | Heal
    | Cut
    | Uncut
    | Clog
    | Unclog
    | Burst
    | Send
)
Fault: TypeAlias = At | When


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def parse_ordinal(text: str) -> int:
    """The number that ``1st``, ``2nd``, ``3rd``, … stand for."""
    match = re.fullmatch(r"(\d+)(?:st|nd|rd|th)", text)
    if match is None or int(match[1]) < 1:
        raise ValueError(f"expected 1st, 2nd, 3rd or so, found {text!r}")
    return int(match[1])


def schedule(world: World, faults: Iterable[Fault]) -> None:
    """Let these faults happen to a world."""
    for fault in faults:
        if isinstance(fault, At):
            world.at(fault.at_us, partial(apply, world, fault.do))
        else:
            world.watch(_Trigger(world, fault))


class _Trigger:
    """Waits for the change of state that a `When` names."""

    def __init__(self, world: World, fault: When) -> None:
        self._world = world
        self._fault = fault
        self._left = fault.nth

    def __call__(self, node: NodeId, state: str) -> None:
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


# --- reading ---------------------------------------------------------------------------------------


def parse_action(words: Sequence[str], nodes: Mapping[str, NodeId]) -> Actions:
    """Read an action from the words of its text. Says what was expected if it cannot."""
    if len(words) > 1 and words[1] == "sends":
        return _parse_send(node_called(words[0], nodes), " ".join(words[2:]))
    verb = words[0] if words else ""
    if verb not in _FORMS:
        raise ValueError(f"expected an action ({', '.join(_FORMS)}, or p sends a), found {verb!r}")
    pattern, make = _FORMS[verb]
    match = re.fullmatch(pattern, " ".join(words[1:]))
    if match is None:
        raise ValueError(f"expected {verb!r} to be written like {_EXAMPLE[verb]!r}")
    return make(lambda name: node_called(name, nodes), *match.groups())


def _parse_send(node: NodeId, text: str) -> Send:
    match = re.fullmatch(r"(.+?)(?: size (\d+))?(?: (safe|k=[1-7]))?", text)
    if match is None:
        raise ValueError("expected the names of messages, as in: p sends a b x*50 size 1000 safe")
    names = tuple(match[1].split())
    each_name(names)
    guarantee = Guarantee(match[3]) if match[3] else Guarantee.AGREED
    return Send(node, names, int(match[2]) if match[2] else 100, guarantee)


def node_called(name: str, nodes: Mapping[str, NodeId]) -> NodeId:
    """The node of that name."""
    if name not in nodes:
        raise ValueError(f"no node is called {name!r}; there are {' '.join(nodes)}")
    return nodes[name]


_NODE = r"(\S+)"
_LINK = r"(\S+) -> (\S+)"
Find: TypeAlias = Callable[[str], NodeId]


def _partition(find: Find, text: str) -> Partition:
    groups = tuple(tuple(map(find, group.split())) for group in text.split("|"))
    members = [node for group in groups for node in group]
    if len(set(members)) != len(members) or not all(groups):
        raise ValueError("expected groups that are not empty and share no node")
    return Partition(groups)


_FORMS: dict[str, tuple[str, Callable[..., Actions]]] = {
    "crash": (
        _NODE + r"(?: after (\d+) effects)?",
        lambda find, node, k: Crash(find(node), None if k is None else int(k)),
    ),
    "restart": (_NODE + "( without disk)?", lambda find, node, lost: Restart(find(node), lost is None)),
    "pause": (_NODE, lambda find, node: Pause(find(node))),
    "resume": (_NODE, lambda find, node: Resume(find(node))),
    "slow": (_NODE + r" (\S+)", lambda find, node, cost: Slow(find(node), parse_time(cost))),
    "unslow": (_NODE, lambda find, node: Unslow(find(node))),
    "partition": ("(.+)", _partition),
    "heal": ("", lambda find: Heal()),
    "cut": (_LINK, lambda find, a, b: Cut(find(a), find(b))),
    "uncut": (_LINK, lambda find, a, b: Uncut(find(a), find(b))),
    "clog": (
        _LINK + r"(?: by (\S+))?",
        lambda find, a, b, by: Clog(find(a), find(b), None if by is None else parse_time(by)),
    ),
    "unclog": (_LINK, lambda find, a, b: Unclog(find(a), find(b))),
    "burst": (r"(0(?:\.\d+)?|1(?:\.0)?) for (\S+)", lambda find, p, d: Burst(float(p), parse_time(d))),
    "leave": (_NODE, lambda find, node: Leave(find(node))),
    "brake": (_NODE, lambda find, node: Brake(find(node))),
    "unbrake": (_NODE, lambda find, node: Unbrake(find(node))),
    "gone": (r"(\S+) at (\S+)", lambda find, node, to: Gone(find(node), find(to))),
}
"""How each action is written behind its verb, and what makes it of the parts."""

_EXAMPLE = {
    "crash": "crash p, or crash p after 3 effects",
    "restart": "restart p, or restart p without disk",
    "slow": "slow p 500us",
    "partition": "partition p q | r s",
    "heal": "heal",
    "clog": "clog p -> q, or clog p -> q by 5ms",
    "burst": "burst 0.3 for 20ms",
    "gone": "gone p at q",
    **{verb: f"{verb} p" for verb in ("pause", "resume", "unslow", "leave", "brake", "unbrake")},
    **{verb: f"{verb} p -> q" for verb in ("cut", "uncut", "unclog")},
}

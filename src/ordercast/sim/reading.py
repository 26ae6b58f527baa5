"""How faults are read: times, ordinals, names, and the actions of `ordercast.sim.faults` from their text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

import msgspec

from ordercast.core.identity import Guarantee, NodeId
from ordercast.sim.faults import (
    Actions,
    Begin,
    Brake,
    Burst,
    Clock,
    Clog,
    Crash,
    Cut,
    Distance,
    Drift,
    Gone,
    Heal,
    Leave,
    Lose,
    OnNetwork,
    Partition,
    Pause,
    Restart,
    Resume,
    Send,
    Slow,
    Unbrake,
    Unclog,
    Uncut,
    Unslow,
    each_name,
)

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


def parse_ordinal(text: str) -> int:
    """The number that ``1st``, ``2nd``, ``3rd``, … stand for."""
    match = re.fullmatch(r"(\d+)(?:st|nd|rd|th)", text)
    if match is None or int(match[1]) < 1:
        raise ValueError(f"expected 1st, 2nd, 3rd or so, found {text!r}")
    return int(match[1])


def parse_action(words: Sequence[str], nodes: Mapping[str, NodeId]) -> Actions:
    """Read an action from the words of its text. Says what was expected if it cannot."""
    if len(words) > 1 and words[1] == "sends":
        return _parse_send(node_called(words[0], nodes), " ".join(words[2:]))
    verb = words[0] if words else ""
    if verb not in _FORMS:
        raise ValueError(f"expected an action ({', '.join(_FORMS)}, or p sends a), found {verb!r}")
    words, network = _on_network(words)
    pattern, make = _FORMS[verb]
    match = re.fullmatch(pattern, " ".join(words[1:]))
    if match is None:
        raise ValueError(f"expected {verb!r} to be written like {_EXAMPLE[verb]!r}")
    action = make(lambda name: node_called(name, nodes), *match.groups())
    if network is None:
        return action
    if not isinstance(action, OnNetwork):
        raise ValueError(f"{verb!r} concerns the node, not one of its networks: leave out 'on {network}'")
    return msgspec.structs.replace(action, network=network)


def _on_network(words: Sequence[str]) -> tuple[Sequence[str], int | None]:
    """The words of an action without ``on 2`` at their end, and the network that this names."""
    if len(words) > 2 and words[-2] == "on" and words[-1].isdecimal():
        return words[:-2], int(words[-1])
    return words, None


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
    "begin": (_NODE, lambda find, node: Begin(find(node))),
    "clock": (_NODE + r" ahead (\S+)", lambda find, node, ahead: Clock(find(node), parse_time(ahead))),
    "drift": (_NODE + r" (-?\d+)ppm", lambda find, node, ppm: Drift(find(node), int(ppm))),
    "restart": (
        _NODE + r"(?:( without disk)| with disk of (\d+) writes ago)?",
        lambda find, node, lost, ago: Restart(find(node), lost is None, int(ago or 0)),
    ),
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
    "lose": (
        _LINK + r" (\S+)(?: \((\w+)\))?",
        lambda find, a, b, kind, nth: Lose(find(a), find(b), kind, parse_ordinal(nth) if nth else 1),
    ),
    "burst": (r"(0(?:\.\d+)?|1(?:\.0)?) for (\S+)", lambda find, p, d: Burst(float(p), parse_time(d))),
    "leave": (_NODE, lambda find, node: Leave(find(node))),
    "brake": (_NODE, lambda find, node: Brake(find(node))),
    "unbrake": (_NODE, lambda find, node: Unbrake(find(node))),
    "gone": (r"(\S+) at (\S+)", lambda find, node, to: Gone(find(node), find(to))),
    "distance": (_NODE + r" (\S+)", lambda find, node, trip: Distance(find(node), parse_time(trip))),
}
"""How each action is written behind its verb, and what makes it of the parts."""

_EXAMPLE = {
    "crash": "crash p, or crash p after 3 effects",
    "restart": "restart p, or restart p without disk",
    "drift": "drift p 200ppm, or drift p -200ppm",
    "slow": "slow p 500us",
    "partition": "partition p q | r s, or partition p on 2",
    "heal": "heal, or heal on 2",
    "clog": "clog p -> q, or clog p -> q by 5ms",
    "lose": "lose p -> q ack, or lose p -> q ack (2nd)",
    "burst": "burst 0.3 for 20ms",
    "gone": "gone p at q",
    "distance": "distance p 30ms",
    **{verb: f"{verb} p" for verb in ("pause", "resume", "unslow", "leave", "brake", "unbrake")},
    **{verb: f"{verb} p -> q" for verb in ("cut", "uncut", "unclog")},
}

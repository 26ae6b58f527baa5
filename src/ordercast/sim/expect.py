"""What a scenario expects, how it is written, and whether it came true.

The grammar is in `ordercast.sim.scenario`. Expectations speak of memberships and named messages, never
of identifiers, and of times only as bounds, so they can be written from the paper before the protocol
exists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

from ordercast.core.identity import NodeId
from ordercast.sim.faults import each_name
from ordercast.sim.reading import node_called, parse_ordinal, parse_time
from ordercast.sim.run_record import ALWAYS, RESTARTED, Entered, Membership, RunRecord, Span

# --- the expectations ------------------------------------------------------------------------------


class Installs(NamedTuple):
    """Configurations that follow each other; None stands for any number of others."""

    nodes: tuple[NodeId, ...]
    pattern: tuple[Membership | None, ...]
    span: Span = ALWAYS


class InstallsAtMost(NamedTuple):
    """No more than so many configurations, transitional ones included."""

    nodes: tuple[NodeId, ...]
    most: int
    span: Span = ALWAYS


class EndsIn(NamedTuple):
    """The configuration installed last."""

    nodes: tuple[NodeId, ...]
    last: Membership


class Delivers(NamedTuple):
    """Messages delivered in this order, and perhaps where."""

    nodes: tuple[NodeId, ...]
    names: tuple[str, ...]
    where: Membership | None
    span: Span = ALWAYS


class NeverDelivers(NamedTuple):
    """Messages delivered nowhere in the run of these nodes."""

    nodes: tuple[NodeId, ...]
    names: tuple[str, ...]


class Enters(NamedTuple):
    """A state entered at least so often; perhaps from a certain one, perhaps for a certain reason."""

    nodes: tuple[NodeId, ...]
    state: str
    times: int
    since: str | None = None
    because: str | None = None


class Halts(NamedTuple):
    """The machine ended its own life; or never did."""

    nodes: tuple[NodeId, ...]
    ever: bool = True


class Crashes(NamedTuple):
    """The node crashed while it was in this state."""

    nodes: tuple[NodeId, ...]
    state: str


class Packets(NamedTuple):
    """Packets of a kind, sent or received at least so often; 0 is never."""

    nodes: tuple[NodeId, ...]
    event: str
    """As in a trace."""
    kind: str
    times: int
    span: Span = ALWAYS


class SameOrder(NamedTuple):
    """Any two of the nodes deliver what both deliver in the same order."""

    nodes: tuple[NodeId, ...]


class Timestamps(NamedTuple):
    """Messages were originated with timestamps that compare so."""

    names: tuple[str, ...]
    signs: tuple[str, ...]
    """Between each and the next: ``<`` or ``=``."""


class Clean(NamedTuple):
    """The auditor finds nothing."""


OfNodes: TypeAlias = (
    Installs | InstallsAtMost | EndsIn | Delivers | NeverDelivers | Enters | Halts | Crashes | Packets
)


class OfAny(NamedTuple):
    """What is expected of at least one of all nodes."""

    what: OfNodes


Expected: TypeAlias = OfNodes | OfAny | SameOrder | Timestamps | Clean


class Expectation(NamedTuple):
    """An expectation and where it is written."""

    line: int
    text: str
    what: Expected


class Outcome(NamedTuple):
    """Whether an expectation came true, and if not, what happened instead."""

    expectation: Expectation
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the expectation came true."""
        return not self.problems

    def __str__(self) -> str:
        head = f"line {self.expectation.line}: {self.expectation.text}"
        return head if self.ok else "\n  ".join((head, *self.problems))


# --- reading ---------------------------------------------------------------------------------------


def parse_expectation(text: str, nodes: Mapping[str, NodeId]) -> Expected:
    """Read what follows ``expect``. Says what was expected there if it cannot."""
    if text == "clean":
        return Clean()
    if text.startswith("same-order "):
        return SameOrder(_nodes(text.removeprefix("same-order "), nodes))
    if text.startswith("timestamps "):
        return _timestamps(text.removeprefix("timestamps "))
    match = re.fullmatch(rf"(.+?) (never )?({'|'.join(_VERBS)})(?: (.+))?", text)
    if match is None or (match[2] and match[3] not in _NEGATED):
        raise ValueError(
            "expected one of: clean, same-order p q, timestamps a < b, p installs …, p ends in …,"
            " p delivers …, p enters …, p halts, p crashes in …, p sends …, p receives …; or p never "
            f"{', '.join(_NEGATED)}; or any in place of p"
        )
    if match[1] == "any":
        return OfAny(_of_nodes(tuple(nodes.values()), bool(match[2]), match[3], match[4] or "", nodes))
    return _of_nodes(_nodes(match[1], nodes), bool(match[2]), match[3], match[4] or "", nodes)


_VERBS = ("installs", "ends in", "delivers", "enters", "halts", "crashes in", "sends", "receives")
_NEGATED = ("delivers", "halts", "sends", "receives")


def _of_nodes(
    who: tuple[NodeId, ...], never: bool, verb: str, rest: str, nodes: Mapping[str, NodeId]
) -> OfNodes:
    if verb == "halts":
        return Halts(who, not never)
    if not rest:
        raise ValueError(f"expected something behind {verb!r}")
    if verb == "installs":
        rest, span = _span(rest)
        if most := re.fullmatch(r"at most (\d+)", rest):
            return InstallsAtMost(who, int(most[1]), span)
        return Installs(who, tuple(_element(part.strip(), nodes) for part in rest.split(",")), span)
    if verb == "ends in":
        return EndsIn(who, _membership(rest, nodes))
    if verb in ("sends", "receives"):
        return _packets(who, never, "packet_sent" if verb == "sends" else "packet_received", rest)
    if never:
        return NeverDelivers(who, tuple(each_name(rest.split())))
    if verb == "enters":
        return _enters(who, rest)
    if verb == "crashes in":
        return Crashes(who, rest)
    rest, span = _span(rest)
    names, _, where = rest.partition(" in ")
    return Delivers(who, tuple(each_name(names.split())), _membership(where, nodes) if where else None, span)


def _span(text: str) -> tuple[str, Span]:
    """What stands before ``after 1s before 2s``, and the time that this leaves."""
    match = re.fullmatch(r"(.+?)(?: after (\S+))?(?: before (\S+))?", text)
    assert match is not None
    after, before = match[2], match[3]
    return match[1], Span(parse_time(after) if after else 0, parse_time(before) if before else None)


def _packets(who: tuple[NodeId, ...], never: bool, event: str, text: str) -> Packets:
    text, span = _span(text)
    match = re.fullmatch(r"(\S+)(?: \((\w+)\))?", text)
    if match is None or (never and match[2]):
        raise ValueError("expected it to be written like: p sends ack (2nd), or p never sends ack")
    return Packets(who, event, match[1], 0 if never else parse_ordinal(match[2]) if match[2] else 1, span)


def _timestamps(text: str) -> Timestamps:
    if re.fullmatch(r"\w+( [<=] \w+)+", text) is None:
        raise ValueError("expected it to be written like: timestamps a < b = c")
    words = text.split()
    return Timestamps(tuple(words[::2]), tuple(words[1::2]))


def _enters(who: tuple[NodeId, ...], text: str) -> Enters:
    match = re.fullmatch(r"(\S+)(?: from (\S+))?(?: because (.+?))?(?: \((\w+)\))?", text)
    if match is None:
        raise ValueError(
            "expected it to be written like: p enters gather from commit because token lost (2nd)"
        )
    state, since, because, nth = match.groups()
    return Enters(who, state, parse_ordinal(nth) if nth else 1, since, because)


def _nodes(text: str, nodes: Mapping[str, NodeId]) -> tuple[NodeId, ...]:
    return tuple(node_called(name, nodes) for name in text.split())


def _element(text: str, nodes: Mapping[str, NodeId]) -> Membership | None:
    return None if text == "..." else _membership(text, nodes)


def _membership(text: str, nodes: Mapping[str, NodeId]) -> Membership:
    inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    words: Sequence[str] = inner.split()
    if len(words) == 1 and words[0] not in nodes and all(len(name) == 1 for name in nodes):
        words = tuple(words[0])
    if not words:
        raise ValueError("expected a membership such as pqr, p q r or (pq)")
    members = tuple(sorted(node_called(name, nodes) for name in words))
    if len(set(members)) != len(members):
        raise ValueError(f"a node is twice in {text!r}")
    return Membership(inner != text, members)


# --- judging ---------------------------------------------------------------------------------------


def judge(
    expected: Expected, story: RunRecord, name: Mapping[NodeId, str], audit: Sequence[str]
) -> list[str]:
    """What contradicts an expectation: a sentence a problem, none if it came true."""
    match expected:
        case Clean():
            return list(audit)
        case SameOrder(nodes):
            pairs = combinations(nodes, 2)
            return [problem for p, q in pairs for problem in _same_order(story, name, p, q)]
        case Timestamps():
            return _compare_timestamps(expected, story)
    of_all = expected.what if isinstance(expected, OfAny) else expected
    told = ((node, _judge_node(of_all, story, name, node)) for node in of_all.nodes)
    problems = [f"{name[node]} {problem}" for node, problem in told if problem is not None]
    return [] if isinstance(expected, OfAny) and len(problems) < len(of_all.nodes) else problems


def _judge_node(expected: OfNodes, story: RunRecord, name: Mapping[NodeId, str], node: NodeId) -> str | None:
    installs = story.installs.get(node, [])
    match expected:
        case Installs(_, pattern, span):
            seen = [what for time_us, what in installs if time_us in span]
            if not _contains(seen, pattern):
                return "installed " + _list(seen, name)
        case InstallsAtMost(_, most, span):
            seen = [what for time_us, what in installs if time_us in span and what != RESTARTED]
            if len(seen) > most:
                return f"installed {len(seen)}: {_list(seen[: most + 1], name)}, …"
        case EndsIn(_, last):
            if not installs or installs[-1].what != last:
                return "ended in " + (_show(installs[-1].what, name) if installs else "no configuration")
        case Delivers(_, names, where, span):
            return _delivers(story.named(node, span), names, where, name)
        case NeverDelivers(_, names):
            unwanted = [message for message, _ in story.named(node) if message in names]
            if unwanted:
                return f"delivered {' '.join(unwanted)}"
        case Enters():
            return _judge_enters(expected, story.entered.get(node, []))
        case Halts(_, ever):
            if bool(story.halted[node]) is not ever:
                return "did not halt" if ever else f"halted {story.halted[node]} times"
        case Packets(_, event, kind, times, span):
            count = sum(time_us in span for time_us in story.packets[node, event, kind])
            if count < times or (count and not times):
                return f"{event.removeprefix('packet_')} {kind} {count} times"
        case Crashes(_, state):
            if state not in story.crashed.get(node, []):
                return "crashed in " + (", ".join(story.crashed.get(node, [])) or "no state")
    return None


def _judge_enters(expected: Enters, entered: Sequence[Entered]) -> str | None:
    there = [each for each in entered if each.state == expected.state]
    fitting = [
        each
        for each in there
        if expected.since in (None, each.since) and expected.because in (None, each.because)
    ]
    if len(fitting) >= expected.times:
        return None
    if expected.since is None and expected.because is None:
        return f"entered {expected.state} {len(fitting)} times"
    ways = Counter(f"from {each.since or 'nothing'} because {each.because}" for each in there)
    told = ", ".join(f"{way} ({count})" for way, count in ways.items()) or "not at all"
    return f"entered {expected.state} so {len(fitting)} times; it did {told}"


def _list(seen: Sequence[Membership], name: Mapping[NodeId, str]) -> str:
    return ", ".join(_show(each, name) for each in seen) or "nothing"


def _contains(seen: Sequence[Membership], pattern: Sequence[Membership | None]) -> bool:
    """Whether the pattern matches somewhere; its elements directly after each other but for None."""
    return any(_matches(seen[start:], pattern) for start in range(len(seen) + 1))


def _matches(seen: Sequence[Membership], pattern: Sequence[Membership | None]) -> bool:
    if not pattern:
        return True
    if pattern[0] is None:
        return any(_matches(seen[skip:], pattern[1:]) for skip in range(len(seen) + 1))
    return bool(seen) and seen[0] == pattern[0] and _matches(seen[1:], pattern[1:])


def _delivers(
    delivered: Sequence[tuple[str, Membership]],
    names: Sequence[str],
    where: Membership | None,
    name: Mapping[NodeId, str],
) -> str | None:
    order = [message for message, _ in delivered]
    missing = [message for message in names if message not in order]
    if missing:
        return f"never delivered {' '.join(missing)}"
    wanted = iter(order)
    if not all(message in wanted for message in names):
        return f"delivered in another order: {' '.join(m for m in order if m in names)}"
    if where is not None:
        for message, seen in delivered:
            if message in names and seen != where:
                return f"delivered {message} in {_show(seen, name)}"
    return None


def _compare_timestamps(expected: Timestamps, story: RunRecord) -> list[str]:
    found = {name: story.timestamps.get(message) for message, name in story.names.items()}
    given = [(name, found.get(name)) for name in expected.names]
    told = ", ".join(f"{name} has {'none' if time is None else time}" for name, time in given)
    for (_, one), (_, other), sign in zip(given, given[1:], expected.signs, strict=False):
        if one is None or other is None or not (one < other if sign == "<" else one == other):
            return [f"of the timestamps, {told}"]
    return []


def _same_order(story: RunRecord, name: Mapping[NodeId, str], p: NodeId, q: NodeId) -> Iterable[str]:
    at_p = [delivered.message for delivered in story.delivers.get(p, [])]
    at_q = [delivered.message for delivered in story.delivers.get(q, [])]
    both = set(at_p) & set(at_q)
    pairs = zip((m for m in at_p if m in both), (m for m in at_q if m in both), strict=False)
    for a, b in pairs:
        if a != b:
            first, second = (story.names.get(m, str(m)) for m in (a, b))
            return [f"{name[p]} delivered {first} where {name[q]} delivered {second}"]
    return []


def _show(membership: Membership, name: Mapping[NodeId, str]) -> str:
    if membership == RESTARTED:
        return "restart"
    names = [name[node] for node in membership.members]
    text = ("" if all(len(each) == 1 for each in name.values()) else " ").join(names)
    return f"({text})" if membership.transitional else text

"""What an audit answers with: never a boolean, but what was broken, by whom, and how, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ordercast.audit.history import Message, Odd, Stay
from ordercast.core.identity import ConfigurationId, MessageId, NodeId

KEPT = 20
"""Violations of one property that a report tells; it counts them all."""

NAMED = 20
"""Messages that one violation names."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach of one property."""

    property: str
    """The property's code."""
    nodes: tuple[NodeId, ...]
    messages: tuple[MessageId, ...]
    configurations: tuple[ConfigurationId, ...]
    sentence: str
    """What happened, for a person."""
    run: str = ""
    """The run it happened in, where several were audited."""
    culprit: NodeId | None = None
    """The node that is told of with it: see `told_once`."""
    times: int = 1
    """How often that node is concerned in a breach of the property; this is the first of them."""

    def __str__(self) -> str:
        return f"{self.property}: {self.told()}"

    def told(self) -> str:
        """What happened, and how often."""
        if self.times == 1:
            return self.sentence
        return f"{self.sentence} (And {self.times - 1:,} more that concern node {self.culprit}.)"

    def as_dict(self) -> dict[str, Any]:
        """The violation or report as a dictionary for JSON."""
        found: dict[str, Any] = {
            "property": self.property,
            "nodes": list(self.nodes),
            "messages": [message._asdict() for message in self.messages],
            "configurations": [configuration._asdict() for configuration in self.configurations],
            "sentence": self.sentence,
            "culprit": self.culprit,
            "times": self.times,
        }
        return {"run": self.run, **found} if self.run else found


def violation(
    code: str,
    sentence: str,
    nodes: Iterable[NodeId],
    messages: Iterable[Message] = (),
    *configurations: ConfigurationId,
) -> Violation:
    """One breach, everyone and everything named once."""
    identities = tuple(message.id for message in messages)
    return Violation(
        code, tuple(dict.fromkeys(nodes)), identities, tuple(dict.fromkeys(configurations)), sentence
    )


def odd_violation(property: str, sentence: str, odd: Odd, *configurations: ConfigurationId) -> Violation:
    """A breach that one row shows; of the configuration that its node is in, and of others."""
    here = () if odd.here is None else (odd.here,)
    return violation(property, sentence, [odd.node], [odd.message], *here, *configurations)


def told_once(found: Sequence[Violation]) -> list[Violation]:
    """The first breach of each culprit, with how often it is concerned; at most `KEPT`, the worst first.

    What one node did wrong shows in many messages, and beside many other nodes. So the node that is named
    most often is a culprit, and all that name it are told as one; and so on with what is left.
    """
    left = list(found)
    told: list[Violation] = []
    while left and len(told) < KEPT:
        named = Counter(node for each in left for node in each.nodes)
        if not named:
            return [*told, *left][:KEPT]
        culprit, times = named.most_common(1)[0]  # of several, the one that is named first
        first = next(each for each in left if culprit in each.nodes)
        told.append(replace(first, culprit=culprit, times=times))
        left = [each for each in left if culprit not in each.nodes]
    return told


@dataclass(frozen=True, slots=True)
class Report:
    """What an audit found."""

    events: int = 0
    """Rows looked at."""
    properties: dict[str, int] = field(default_factory=dict)
    """How often each property was broken."""
    violations: tuple[Violation, ...] = ()
    """Of each property the first violation of each culprit, `KEPT` at most: see `told_once`."""
    unchecked: tuple[str, ...] = ()
    """Properties that could not be judged: 0 above says nothing about them."""
    promises: tuple[str, ...] = ()
    """The sets of properties that runs were judged by; most often one."""
    runs: int = 1
    notes: tuple[str, ...] = ()
    """What to know of how this came about, where it did not by looking at every row in turn."""

    @property
    def clean(self) -> bool:
        """Whether nothing was broken, as far as it was checked."""
        return not any(self.properties.values())

    def as_dict(self) -> dict[str, Any]:
        """The violation or report as a dictionary for JSON."""
        return {
            "promises": ", ".join(self.promises),
            "events": self.events,
            "clean": self.clean,
            "properties": dict(self.properties),
            "unchecked": list(self.unchecked),
            "violations": [violation.as_dict() for violation in self.violations],
            **({"notes": list(self.notes)} if self.notes else {}),
        }

    def of_run(self, run: str) -> Report:
        """The same report, its violations marked with the run they come from."""
        return replace(self, violations=tuple(replace(found, run=run) for found in self.violations))


def merge(reports: Iterable[Report]) -> Report:
    """One report of several runs. A property is unchecked if it was so in any of them."""
    events = runs = 0
    counts: dict[str, int] = {}
    kept: dict[str, list[Violation]] = {}
    unchecked: dict[str, None] = {}
    promises: dict[str, None] = {}
    notes: list[str] = []
    for report in reports:
        events += report.events
        runs += report.runs
        for code, count in report.properties.items():
            counts[code] = counts.get(code, 0) + count
        for violation in report.violations:
            kept.setdefault(violation.property, []).append(violation)
        unchecked |= dict.fromkeys(report.unchecked)
        promises |= dict.fromkeys(report.promises)
        notes += report.notes
    first = (violation for code in counts for violation in kept.get(code, ())[:KEPT])
    return Report(events, counts, tuple(first), tuple(unchecked), tuple(sorted(promises)), runs, tuple(notes))


# --- words -------------------------------------------------------------------------------------


def a_message(message: Message) -> str:
    """``message 7 of node 2``, with the life if it was not the first."""
    life = f" (life {message.incarnation})" if message.incarnation else ""
    return f"message {message.number} of node {message.origin}{life}"


def with_position(message: Message) -> str:
    """The message and where it stands in its configuration's order, if it has a place there."""
    if message.seq is None:
        return a_message(message)
    return f"{a_message(message)} at position {message.seq}/{message.slot}"


def delivered_elsewhere(odd: Odd, what: str, said: str | None) -> str:
    """A delivery that says to be in another configuration, or view (`what`), than its node is in; `said` is
    of which kind the one is that it names."""
    here = f"no {what}" if odd.here is None else f"{what} {odd.here}"
    says = "none" if odd.says is None else f"{said} {odd.says}"
    return (
        f"node {odd.node} delivered {with_position(odd.message)} in {here}, by what it installed, and in "
        f"{says}, by what the delivery says."
    )


def a_configuration(stay: Stay) -> str:
    """``regular configuration 8.1 {1, 2, 3}``."""
    kind = "regular" if stay.regular else "transitional"
    return f"{kind} configuration {stay.id} {members(stay.members)}"


def a_view(stay: Stay) -> str:
    """``view 8.1 {1, 2, 3}``."""
    return f"view {stay.id} {members(stay.members)}"


def a_life(stay: Stay) -> str:
    """``node 3``, with the life if it was not the first."""
    return f"node {stay.node} (life {stay.incarnation})" if stay.incarnation else f"node {stay.node}"


def delivered_by_one(one: Stay, other: Stay, message: Callable[[int], Message]) -> tuple[list[int], str]:
    """The numbers of the messages that one of two stays delivered and the other not, and some in words."""
    if one.delivered == other.delivered:
        return [], ""
    ones = set(one.delivered)
    numbers = sorted(ones.symmetric_difference(other.delivered))
    alone = {number: one.node if number in ones else other.node for number in numbers}
    return numbers, some([f"{a_message(message(n))} by node {alone[n]} alone" for n in numbers])


def members(nodes: Iterable[NodeId]) -> str:
    """Nodes as text: ``{1, 2, 3}``."""
    return f"{{{', '.join(map(str, sorted(nodes)))}}}"


def some(things: Sequence[str], most: int = 3) -> str:
    """The first few of many, and how many more there are."""
    shown = ", ".join(things[:most])
    return f"{shown} and {len(things) - most} more" if len(things) > most else shown

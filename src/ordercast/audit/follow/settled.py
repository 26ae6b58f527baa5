"""What of a history may be forgotten, because nothing that is still to come can show it to be wrong.

Up to the *cut* of a configuration everybody who is in it, and everybody who may still come to it, has
delivered the same beginning of its order. Who left it, or failed, owes what it had then, which its rows have
told. So all rows of all messages below the cut can go together: leaving some messages out of a run invents no
violation. A configuration that nobody is in, and nobody can come to any more, can go as a whole.

Some rows stay: of each stay the last message that it delivered (and of transitional ones the first), so that
order and places are held against what follows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain

from ordercast.audit.followers import FollowedViews
from ordercast.audit.history import History, Identity, Stay
from ordercast.audit.views import Views
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.trace.columns import message_of

Place = tuple[int, int]


@dataclass
class Settled:
    """What may be forgotten of a history."""

    messages: set[Identity] = field(default_factory=set)
    cuts: dict[ConfigurationId, Place] = field(default_factory=dict)
    """Of each configuration that goes on, the place of the last message that all have."""
    closed: set[ConfigurationId] = field(default_factory=set)
    """Regular configurations that are over."""
    waited_for: dict[NodeId, ConfigurationId] = field(default_factory=dict)
    """Nodes that hold a configuration open, which others have left or gone on in."""


def settled(
    history: History,
    left_behind: Collection[NodeId],
    given_up: Collection[ConfigurationId],
    spoilt: Collection[ConfigurationId],
) -> Settled:
    """What may be forgotten, if nothing waits for the nodes that are `left_behind`.

    Members that have not come to a configuration that is `given_up` are not going to. In configurations that
    are `spoilt`, what all have delivered is settled in whatever order each delivered it.
    """
    open_ = {
        configuration: _open(history, configuration, left_behind, configuration in given_up)
        for configuration, stays in history.installs.items()
        if stays[0].regular
    }
    over = {configuration for configuration, nodes in open_.items() if not nodes}
    if isinstance(history, FollowedViews):
        over -= _sent_before(history) - set(given_up)
    result = Settled(closed=_closed(history, over))
    for configuration, nodes in open_.items():
        span = history.spans.get(configuration, range(0))
        if configuration in result.closed:
            result.messages.update(history.messages[number][:3] for number in span)
        else:
            _cut(history, configuration, nodes, configuration in spoilt, result)
    return result


# --- who is waited for -------------------------------------------------------------------------


def _open(
    history: History, configuration: ConfigurationId, left_behind: Collection[NodeId], given_up: bool
) -> dict[NodeId, Stay | None]:
    """Nodes that may still deliver messages of a configuration, with their stay in it if they have one."""
    stays = history.installs[configuration]
    there = {stay.node: stay for stay in stays}
    expected = {node for stay in stays for node in stay.members}
    if isinstance(history, FollowedViews):
        for node, its in history.following.items():
            there.update((node, stay) for stay in its if stay.id == configuration)
            if history.alive[node] is not None and all(stay.id.seq < configuration.seq for stay in its):
                expected.add(node)
    open_: dict[NodeId, Stay | None] = {}
    for node in sorted((expected | there.keys()).difference(left_behind)):
        stay = there.get(node)
        if stay is None and not given_up:
            open_[node] = None
        elif stay is not None and not _left(history, stay):
            open_[node] = stay
    return open_


def _left(history: History, stay: Stay) -> bool:
    """Whether a life is over, or has gone on to another regular configuration."""
    _, gone_on = stay.until_next_regular()
    return gone_on or history.alive.get(stay.node) != stay.incarnation


def _sent_before(history: FollowedViews) -> set[ConfigurationId]:
    """Views in which a follower sent what is ordered in a later one, or nowhere yet."""
    found: set[ConfigurationId] = set()
    for stay in chain.from_iterable(history.following.values()):
        span = history.spans.get(stay.id, range(0))
        if any(history.number.get(message_of(row), -1) not in span for row in stay.originations):
            found.add(stay.id)
    return found


def _closed(history: History, over: set[ConfigurationId]) -> set[ConfigurationId]:
    """Of the configurations that are over those whose nodes have nothing before them that is not."""
    closed = set(over)
    while True:
        waiting: set[ConfigurationId] = set()
        for stays in _by_node(history):
            goes_on = False
            for stay in stays:
                goes_on |= stay.regular and stay.id not in closed
                if goes_on and stay.id in closed:
                    waiting.add(stay.id)
        if not waiting:
            return closed
        closed -= waiting


def _by_node(history: History) -> Iterator[list[Stay]]:
    yield from history.stays.values()
    if isinstance(history, FollowedViews):
        yield from history.following.values()


# --- how far it is settled ---------------------------------------------------------------------


def _cut(
    history: History,
    configuration: ConfigurationId,
    nodes: dict[NodeId, Stay | None],
    spoilt: bool,
    result: Settled,
) -> None:
    """Settle what all who are still in a configuration have delivered; all of it if nobody is."""
    stays = history.installs[configuration]
    span = history.spans.get(configuration, range(0))
    tops = {node: _top(stay, span) for node, stay in nodes.items()}
    cut = min(tops.values(), default=span.stop - 1)
    highest = max((_top(stay, span) for stay in stays), default=cut)
    result.waited_for.update((node, configuration) for node, top in tops.items() if top == cut < highest)
    if not spoilt:
        cut = min(cut, _right_up_to(history, stays, span))
    if cut < span.start:
        return
    anchors = {cut}
    for stay in _sharing(history, stays):
        its = [number for number in stay.delivered if number in span]
        if its:
            anchors |= {max(its)} if stay.regular else {min(its), max(its)}
    below = range(span.start, cut)
    result.messages.update(history.messages[number][:3] for number in below if number not in anchors)
    facts = history.messages[cut]
    result.cuts[configuration] = (facts[5] or 0, facts[6] or 0)


def _top(stay: Stay | None, span: range) -> int:
    """The highest number of the span that a node has delivered, also in the transitional stay behind it."""
    if stay is None:
        return span.start - 1
    stays, _ = stay.until_next_regular()
    return max(
        (number for each in stays for number in each.delivered if number in span), default=span.start - 1
    )


def _right_up_to(history: History, stays: list[Stay], span: range) -> int:
    """Up to which number all is as it should be: everyone delivered what was originated, in order."""
    wrong = [number for number in history.unoriginated if number in span]
    if isinstance(history, Views):
        wrong += [number for number, _ in history.misquoted if number in span]
    wrong += [_first_wrong(stay, span) for stay in stays if not stay.tidy]
    return min(wrong, default=span.stop) - 1


def _first_wrong(stay: Stay, span: range) -> int:
    """The first number that a stay should have delivered and did not, when it did."""
    for due, number in enumerate(stay.delivered, span.start):
        if number != due:
            return min(due, number) if number in span else due
    return span.stop


def _sharing(history: History, stays: list[Stay]) -> Iterator[Stay]:
    """Stays in which messages of a regular configuration are delivered."""
    for stay in stays:
        yield stay
        if not isinstance(history, Views):
            behind, _ = stay.until_next_regular()
            yield from behind[1:]

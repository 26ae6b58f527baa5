"""Nodes that follow the order of views that they are no members of (004 §3.3.2, TRMP's lower levels).

A *follower* is told the views' messages, has no part in agreeing on them, and may begin in the middle of a
view. What the members of views promise each other is judged without it; what it is promised is judged here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ordercast.audit.explain import Violation, a_life, a_message, a_view, some, violation, with_position
from ordercast.audit.history import Expectation, Message, Stay
from ordercast.audit.views import Copy, Views
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.trace.columns import INCARNATION, NODE, message_of
from ordercast.trace.schema import Row


class FollowedViews(Views):
    """A run in which some nodes follow: their stays are apart from those of members."""

    following: dict[NodeId, list[Stay]]
    """Each follower's stays, over all its lives."""
    submitted_below: list[Row]
    """What followers took from their applications."""
    expected_below: frozenset[NodeId]
    """Followers of which something is expected at the end: those with whom there is a node that orders.

    What they are told and what becomes of their messages comes from such a node alone (004 §3.3.2). When
    all of these have left, or failed, followers stay where they are until one is back."""

    def _arrange(self) -> None:
        self._put_followers_apart()
        super()._arrange()
        for stay in (stay for stays in self.following.values() for stay in stays):
            stay.delivered = [self.number.get(message_of(row), -1) for row in stay.deliveries]

    def stays_of(self, node: NodeId) -> list[Stay]:
        """A node's stays, over all its lives."""
        return self.following.get(node) or super().stays_of(node)

    def every_stay(self) -> Iterator[Stay]:
        """Those of members, and then those of followers."""
        yield from self.all_stays()
        for stays in self.following.values():
            yield from stays

    def _put_followers_apart(self) -> None:
        below = {
            node for node, stays in self.stays.items() if any(node not in stay.members for stay in stays)
        }
        self.following = {node: self.stays.pop(node) for node in sorted(below)}
        self.submitted_below = [row for row in self.submitted if row[NODE] in below]
        self.submitted = [row for row in self.submitted if row[NODE] not in below]
        self.expected_below = frozenset()
        if self.expectation is not None:
            old = self.expectation
            groups = [frozenset(group) for group in old.components if not below.issuperset(group)]
            self.expected_below = frozenset(below).intersection(frozenset().union(*groups))
            above = [group - below for group in groups]
            self.expectation = Expectation(above, old.quiet_since_us, old.bound_us)

    def _gather_originations(self) -> None:
        """Followers' messages, too: each is broadcast once, though it may be ordered in a later view."""
        super()._gather_originations()
        for stays in self.following.values():
            for copy in (Copy._make(row[9:19]) for stay in stays for row in stay.originations):
                first = self.originated.setdefault(copy[:3], copy)
                if first is not copy:
                    self.originated_again.append((copy.message, first.message))

    def _compare_with_originations(self) -> None:
        for copy in self._copies:
            first = self.originated.get(copy[:3])
            if first is not None and copy[0] in self.following:
                self.originated[copy[:3]] = first._replace(config_seq=copy[3], config_rep=copy[4])
        super()._compare_with_originations()


# --- what followers are promised -------------------------------------------------------------------


def follower_order(views: FollowedViews) -> list[Violation]:
    """A life of a follower delivers a part of the members' order without a gap, in the views that it is of.

    It begins anywhere in its first view; it leaves a view only with all of it, for the one that follows. What
    it delivers is as the members delivered it.
    """
    found: list[Violation] = []
    for stays in views.following.values() if views.whole else ():
        for stay in stays:
            found += [*_astray(views, stay), *_broken(views, stay), *_changed(views, stay)]
    return found


def _order(views: FollowedViews, stay: Stay) -> Sequence[int]:
    """The messages of the view in order, by the member that delivered most.

    Of a view that was left that is one that did not fail in it: what was delivered by others only may be in
    another place, or in none. In a view that nobody has left each place has one message, and who failed may
    have delivered most: it knew that all have what it hands down (004 §3.2.2), and who is left has it, too,
    but does not know that all do, and may be too few to agree on a next view.
    """
    its = views.installs.get(stay.id, [])
    left = stay.id in views.departures
    best = min(its, key=lambda each: (left and views.failed(each), -len(each.delivered)), default=None)
    return () if best is None else best.delivered


def _astray(views: FollowedViews, stay: Stay) -> list[Violation]:
    """Views that no member installed, other members than they have, or another one behind a view."""
    its = views.installs.get(stay.id)
    if its is None:
        sentence = f"{a_life(stay)} follows {a_view(stay)}, which none of its members installed."
        return [_violation(sentence, stay, [])]
    if its[0].members != stay.members:
        sentence = f"{a_life(stay)} was told {a_view(stay)}, and {a_life(its[0])} {a_view(its[0])}."
        return [_violation(sentence, stay, [])]
    ways = views.departures.get(stay.id)
    if stay.next is None or ways is None or ways[0][0].next is None or ways[0][0].next.id == stay.next.id:
        return []
    sentence = (
        f"{a_life(stay)} went on from {a_view(stay)} to view {stay.next.id}, and its members to view "
        f"{ways[0][0].next.id}."
    )
    return [_violation(sentence, stay, [])]


def _broken(views: FollowedViews, stay: Stay) -> list[Violation]:
    """Deliveries that are no part of the view's order without a gap, or, in a view that was left, its end."""
    order, numbers = list(_order(views, stay)), list(stay.delivered)
    first = 0 if stay.previous is not None else len(order)
    if first and numbers:
        first = order.index(numbers[0]) if numbers[0] in order else 0
    due = order[first:] if stay.next is not None else order[first : first + len(numbers)]
    if numbers == due:
        return []
    missing = [views.message(number) for number in due if number not in set(numbers)]
    odd = [
        Message._make(row[9:17])
        for number, row in zip(numbers, stay.deliveries, strict=True)
        if number not in set(due)
    ]
    told = [
        *([f"lacks {some([with_position(message) for message in missing])}"] if missing else []),
        *([f"has besides {some([a_message(message) for message in odd])}"] if odd else []),
    ]
    how = " and ".join(told) or "has messages in another order, or more than once"
    sentence = f"{a_life(stay)} followed {a_view(stay)}, and of its order it {how}."
    return [_violation(sentence, stay, [*missing, *odd])]


def _changed(views: FollowedViews, stay: Stay) -> list[Violation]:
    found = []
    for number, row in zip(stay.delivered, stay.deliveries, strict=True):
        said = Copy._make(row[9:19])
        if number >= 0 and said != views.copy(number):
            known = views.copy(number).message
            sentence = (
                f"{a_life(stay)} was told {with_position(said.message)} ({said.guarantee}, {said.size} "
                f"bytes); for the members it is {with_position(known)} ({known.guarantee})."
            )
            found.append(_violation(sentence, stay, [known]))
    return found


def live_followers(views: FollowedViews) -> list[Violation]:
    """At the end, followers that live are in the last view, with all of it, and all that they sent.

    Where no node that orders is up any more, nothing is expected of them.
    """
    if not views.expected_below:
        return []
    found = []
    last = max(views.installs, default=None)
    for node in sorted(views.expected_below):
        stay = views.following[node][-1]
        if stay.incarnation != views.alive[node] or stay.id != last:
            sentence = f"node {node} lives and follows {a_view(stay)}; the last view was {last}."
            found.append(_violation(sentence, stay, [], "live-followers"))
            continue
        order = list(_order(views, stay))
        behind = order.index(stay.delivered[-1]) + 1 if stay.delivered and stay.delivered[-1] in order else 0
        if behind < len(order) and (stay.delivered or stay.previous is not None):
            missing = [views.message(number) for number in order[behind:]]
            told = some([with_position(message) for message in missing])
            sentence = f"{a_life(stay)} follows {a_view(stay)} to its end and did not deliver {told}."
            found.append(_violation(sentence, stay, missing, "live-followers"))
        found += _unsent(views, node, stay)
    return found


def _unsent(views: FollowedViews, node: NodeId, last: Stay) -> list[Violation]:
    life = [stay for stay in views.following[node] if stay.incarnation == last.incarnation]
    delivered = {message_of(row) for stay in life for row in stay.deliveries}
    missing = [
        message_of(row)
        for row in views.submitted_below
        if row[NODE] == node and row[INCARNATION] == last.incarnation and message_of(row) not in delivered
    ]
    if not missing:
        return []
    told = some([f"message {number}" for _, _, number in missing])
    sentence = (
        f"{a_life(last)} lived to the end, and what it had accepted was not put into the order: {told}."
    )
    return [_violation(sentence, last, [], "live-followers")]


def _violation(
    sentence: str, stay: Stay, messages: Sequence[Message], code: str = "follower-order"
) -> Violation:
    view: ConfigurationId = stay.id
    return violation(code, sentence, [stay.node], messages[:3], view)

"""What must hold of messages in views, at nodes that fail as at those that do not (004 §2.1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import eq, itemgetter, lt

from ordercast.audit.explain import (
    NAMED,
    Violation,
    a_life,
    a_message,
    a_view,
    some,
    violation,
    with_position,
)
from ordercast.audit.history import Message, Stay
from ordercast.audit.order import firsts, two_orders
from ordercast.audit.views import Copy, Views
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.trace.columns import facts_of, origin_configuration_of

_place = itemgetter(5, 6)


# --- agreement ---------------------------------------------------------------------------------


def uniform_agreement(views: Views) -> list[Violation]:
    """004 §2.1, "Uniform Agreement": what anyone delivers in a view, all correct members deliver.

    Correct is who goes on to the next view; it has delivered by then. Who is in the view at the end owes it
    too, where an expectation says that all is done. A level of k binds while fewer than k members fail in the
    view (§3.2.2); total resiliency always.
    """
    found = []
    for view, stays in views.installs.items():
        debtors = [stay for stay in stays if stay.next is not None or views.lasts(stay)]
        if not debtors or _alike(stays, debtors):
            continue
        due = _due(views, view, stays)
        for stay in debtors:
            missing = _not_delivered(stay, due)
            if missing:
                found.append(_owed(views, stay, missing, due))
    return found


def _alike(stays: list[Stay], debtors: list[Stay]) -> bool:
    """Whether no stay has more of the view's order than any of the debtors."""
    if not all(stay.tidy for stay in stays):
        return False
    return max(len(stay.delivered) for stay in stays) == min(len(stay.delivered) for stay in debtors)


def _due(views: Views, view: ConfigurationId, stays: list[Stay]) -> dict[int, Stay]:
    """The view's messages that a node delivered in it, and that are not excused, each with one such node."""
    due: dict[int, Stay] = {}
    excused: dict[str, bool] = {}
    for stay in stays:
        for number in stay.delivered:
            message = views.messages[number]
            if number in due or message[3:5] != view:
                continue
            level = message[7]
            if level not in excused:
                excused[level] = views.excused(stay, level)
            if not excused[level]:
                due[number] = stay
    return due


def _not_delivered(stay: Stay, due: Iterable[int]) -> list[int]:
    """What of it a life had not delivered when it left the view."""
    missing = sorted(set(due).difference(stay.delivered))
    earlier = stay.previous
    while missing and earlier is not None:
        missing = sorted(set(missing).difference(earlier.delivered))
        earlier = earlier.previous
    return missing


def _owed(views: Views, stay: Stay, missing: list[int], due: dict[int, Stay]) -> Violation:
    if stay.next is None:
        how = "stayed in it to the end"
    else:
        how = f"went on to view {stay.next.id}"
    told = some(
        [
            f"{with_position(views.message(number))} ({views.messages[number][7]}, by {a_life(due[number])})"
            for number in missing
        ]
    )
    sentence = (
        f"in {a_view(stay)} messages were delivered that its member {a_life(stay)}, which {how}, did not "
        f"deliver: {told}."
    )
    nodes = (stay.node, *(due[number].node for number in missing[:3]))
    return violation("uniform-agreement", sentence, nodes, _named(views, missing), stay.id)


# --- integrity ---------------------------------------------------------------------------------


def uniform_integrity(views: Views) -> list[Violation]:
    """004 §2.1, "Uniform Integrity": at most once, and only what its sender has broadcast, as it was.

    Once means over all lives of a node. A sender broadcasts its own messages, in the life they name.
    """
    return [*_again(views), *_out_of_nothing(views), *_by_others(views), *_changed(views)]


def _again(views: Views) -> list[Violation]:
    found = []
    for first, again, number in views.delivered_again():
        message = views.message(number)
        sentence = (
            f"{a_life(first)} delivered {with_position(message)} in {a_view(first)}, and "
            f"{a_life(again)} again in {a_view(again)}."
        )
        found.append(violation("uniform-integrity", sentence, [again.node], [message], first.id, again.id))
    return found


def _out_of_nothing(views: Views) -> list[Violation]:
    outside = {odd.message[:3] for odd in views.originations_astray}  # `sending_view` speaks of them
    wanted = {number for number in views.unoriginated if views.messages[number][:3] not in outside}
    nodes: defaultdict[int, list[NodeId]] = defaultdict(list)
    for stay in views.all_stays() if wanted else ():
        for number in wanted.intersection(stay.delivered):
            nodes[number].append(stay.node)
    found = []
    for number in sorted(wanted):
        message = views.message(number)
        if message.origin in views.absent:
            continue  # `members_traced` speaks of it
        sentence = (
            f"{some([f'node {node}' for node in nodes[number]])} delivered {with_position(message)} of view "
            f"{message.configuration}, which node {message.origin} never broadcast."
        )
        found.append(
            violation("uniform-integrity", sentence, nodes[number], [message], message.configuration)
        )
    return found


def _by_others(views: Views) -> list[Violation]:
    found = []
    for odd in views.originations_astray:
        if (odd.node, odd.incarnation) == odd.message[:2]:
            continue
        sentence = (
            f"node {odd.node} broadcast {a_message(odd.message)} in its life {odd.incarnation}: only node "
            f"{odd.message.origin} may, in its life {odd.message.incarnation}."
        )
        found.append(
            violation("uniform-integrity", sentence, [odd.node], [odd.message], odd.message.configuration)
        )
    return found


def _changed(views: Views) -> list[Violation]:
    """Deliveries of something else than what was broadcast: another guarantee, group or size."""
    pairs = [(f"node {stay.node}", [stay.node], said, known) for stay, said, known in views.differing]
    pairs += [("every node", [], views.copy(number), known) for number, known in views.misquoted]
    found = []
    for who, nodes, said, known in pairs:
        if said[7:] == known[7:]:
            continue
        message = known.message
        sentence = (
            f"{who} delivered {a_message(message)} as {_contents(said)}; it is {_contents(known)} where it "
            f"was {'delivered elsewhere' if nodes else 'broadcast'}, by node {message.origin} in view "
            f"{message.configuration}."
        )
        found.append(
            violation(
                "uniform-integrity", sentence, [*nodes, message.origin], [message], message.configuration
            )
        )
    return found


def _contents(copy: Copy) -> str:
    group = f" for group {copy.group!r}" if copy.group is not None else ""
    return f"{copy.guarantee} with {copy.size} bytes{group}"


# --- order -------------------------------------------------------------------------------------


def uniform_order(views: Views) -> list[Violation]:
    """004 §2.1, "Uniform Total Order": no two nodes, failed ones included, deliver in different orders.

    And the places tell that order: "for each sequence number corresponds a single message", the same at all
    nodes, and nobody goes back. What a failed life delivered and nobody is bound by (`Views.excused`) does
    not count: such a life may have given its places to other messages than those that went on.
    """
    orders: dict[NodeId, dict[int, int]] = {}
    ascending: set[NodeId] = set()
    for node, stays in views.stays.items():
        if node in views.ascending:
            ascending.add(node)
            continue
        orders[node] = firsts(views.counted(stay) for stay in stays)
        if all(map(lt, orders[node], list(orders[node])[1:])):
            ascending.add(node)
    found = []
    if len(ascending) < len(views.stays):
        for node in views.stays.keys() - orders.keys():
            orders[node] = firsts(stay.delivered for stay in views.stays[node])
        found = two_orders(views, "uniform-order", dict(sorted(orders.items())), ascending)
    return [*found, *_going_back(views), *_two_places(views), *_shared_places(views)]


def _going_back(views: Views) -> list[Violation]:
    found = []
    for stay in views.all_stays():
        if stay.tidy:
            continue
        counted = set(views.counted(stay))
        first: dict[int, Message] = {}
        for number, row in zip(stay.delivered, stay.deliveries, strict=True):
            if number in counted and origin_configuration_of(row) == stay.id:
                first.setdefault(number, Message._make(facts_of(row)))
        for n, m in pairwise(first.values()):
            if _place(n) < _place(m):
                continue
            told = f"delivered {with_position(m)} in {a_view(stay)} only after {with_position(n)}"
            found.append(violation("uniform-order", f"{a_life(stay)} {told}.", [stay.node], [m, n], stay.id))
    return found


def _two_places(views: Views) -> list[Violation]:
    found = []
    for stay, said, known in views.differing:
        if said[3:5] != known[3:5] or said[5:7] == known[5:7]:
            continue
        if views.failed(stay) and views.excused(stay, known.guarantee):
            continue
        message = known.message
        sentence = (
            f"{a_life(stay)} delivered {a_message(message)} as position {said.seq}/{said.slot} of view "
            f"{message.configuration}; elsewhere it is {known.seq}/{known.slot}."
        )
        found.append(violation("uniform-order", sentence, [stay.node], [message], message.configuration))
    return found


def _shared_places(views: Views) -> list[Violation]:
    found = []
    for view, span in views.spans.items():
        places = sorted(facts[5:7] for facts in views.messages[span.start : span.stop])
        if not any(map(eq, places, places[1:])):
            continue
        counted = {
            number for stay in views.installs[ConfigurationId._make(view)] for number in views.counted(stay)
        }
        taken: dict[tuple[int, int], int] = {}
        for number in span:
            if number not in counted:
                continue
            first = taken.setdefault(views.messages[number][5:7], number)
            if first != number:
                one, other = views.message(first), views.message(number)
                sentence = (
                    f"{a_message(one)} and {a_message(other)} were both delivered as position "
                    f"{one.seq}/{one.slot} of view {one.configuration}."
                )
                nodes = [one.origin, other.origin]
                found.append(violation("uniform-order", sentence, nodes, [one, other], one.configuration))
    return found


# --- words -------------------------------------------------------------------------------------


def _named(views: Views, numbers: Sequence[int]) -> list[Message]:
    return [views.message(number) for number in numbers[:NAMED]]

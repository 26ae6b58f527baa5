"""What must hold of views, and of messages that are tied to them (004 §4.3.2)."""

from __future__ import annotations

from ordercast.audit.explain import (
    NAMED,
    Violation,
    a_configuration,
    a_life,
    a_message,
    a_view,
    delivered_by_one,
    delivered_elsewhere,
    odd_violation,
    some,
    violation,
    with_position,
)
from ordercast.audit.history import Odd, Stay
from ordercast.audit.liveness import unsent
from ordercast.audit.views import Views
from ordercast.core.identity import ConfigurationId


def view_synchrony(views: Views) -> list[Violation]:
    """004 §4.3.2, "View Synchrony": who goes from one view to the next together, delivered the same there."""
    found = []
    together: dict[tuple[ConfigurationId, ConfigurationId], Stay] = {}
    for stay in views.all_stays():
        if stay.next is None:
            continue
        other = together.setdefault((stay.id, stay.next.id), stay)
        differing, told = delivered_by_one(other, stay, views.message)
        if not differing:
            continue
        sentence = (
            f"nodes {other.node} and {stay.node} went together from {a_view(stay)} to view {stay.next.id} "
            f"and delivered different messages before that: {told}."
        )
        messages = [views.message(number) for number in differing[:NAMED]]
        found.append(
            violation("view-synchrony", sentence, [other.node, stay.node], messages, stay.id, stay.next.id)
        )
    return found


# --- where a message belongs -------------------------------------------------------------------


def sending_view(views: Views) -> list[Violation]:
    """004 §4.3.2, "Sending View Delivery": in the view it was broadcast in, or not at all.

    A message is broadcast for the first time once, and in the view that its sender is in.
    """
    return [*_sent_astray(views), *_sent_again(views), *_delivered_astray(views), *_elsewhere(views)]


def _sent_astray(views: Views) -> list[Violation]:
    found = []
    for odd in views.originations_astray:
        if (odd.node, odd.incarnation) != odd.message[:2]:
            continue  # `uniform_integrity` speaks of it
        here = "in no view" if odd.here is None else f"in view {odd.here}"
        sentence = (
            f"node {odd.node} broadcast {a_message(odd.message)} {here}, as a message of view "
            f"{odd.message.configuration}."
        )
        found.append(_sending_violation(sentence, odd))
    return found


def _sent_again(views: Views) -> list[Violation]:
    found = []
    for again, first in views.originated_again:
        sentence = (
            f"node {again.origin} broadcast {a_message(first)} in view {first.configuration}, and as if for "
            f"the first time again in view {again.configuration}."
        )
        found.append(
            violation(
                "sending-view", sentence, [again.origin], [first], first.configuration, again.configuration
            )
        )
    return found


def _delivered_astray(views: Views) -> list[Violation]:
    found = []
    for odd in views.deliveries_astray:
        found.append(_sending_violation(delivered_elsewhere(odd, "view", "view"), odd))
    return found


def _elsewhere(views: Views) -> list[Violation]:
    """Deliveries in another view than the origination's, or than they say themselves."""
    found = []
    claims = {(id(stay), said[:3]): said.message.configuration for stay, said, _ in views.differing}
    for stay in views.all_stays():
        if stay.tidy and not views.misquoted:
            continue
        for number in stay.delivered:
            message = views.message(number)
            first = views.originated.get(message[:3])
            sent_in = message.configuration if first is None else first.message.configuration
            said = claims.get((id(stay), message[:3]), message.configuration)
            if stay.id == sent_in == said:
                continue
            sentence = (
                f"{a_life(stay)} delivered {with_position(message)} in {a_view(stay)}, as a message of view "
                f"{said}: it was broadcast in view {sent_in}."
            )
            found.append(violation("sending-view", sentence, [stay.node], [message], sent_in, stay.id, said))
    return found


def validity(views: Views) -> list[Violation]:
    """004 §4.3.2, "Validity": a correct node delivers what it broadcast, and before the view is over.

    And where an expectation says that all is done, who lives has delivered all that it broadcast and all that
    it took from its application.
    """
    found = []
    for stay in views.all_stays():
        if not stay.own or not (stay.next is not None or views.lasts(stay)):
            continue
        if isinstance(stay.delivered, range) and max(stay.own) < stay.delivered.stop:
            continue
        missing = set(stay.own).difference(stay.delivered)
        earlier = stay.previous
        while missing and earlier is not None:
            missing.difference_update(earlier.delivered)
            earlier = earlier.previous
        if missing:
            found.append(_own_left(views, stay, sorted(missing)))
    return [*found, *unsent(views, "validity", views.lasting)]


def _own_left(views: Views, stay: Stay, missing: list[int]) -> Violation:
    told = some([with_position(views.message(number)) for number in missing])
    after = "stayed there to the end" if stay.next is None else f"went on to view {stay.next.id}"
    sentence = f"{a_life(stay)} broadcast {told} in {a_view(stay)}, {after} and did not deliver it."
    messages = [views.message(number) for number in missing[:NAMED]]
    return violation("validity", sentence, [stay.node], messages, stay.id)


# --- views -------------------------------------------------------------------------------------


def view_agreement(views: Views) -> list[Violation]:
    """004 §4.3.2: all nodes install the same views in the same sequence; §4.3.4: who is excluded halts.

    An identifier means one membership, and is shown to its members. View numbers grow at a node, over all its
    lives. A view has one successor, whoever goes on from it; it may have several predecessors (003, "Future
    Improvements": groups merge). A life that its view's successor leaves out installs nothing any more.
    """
    return [
        *_one_membership(views),
        *_numbers_grow(views),
        *_one_successor(views),
        *_one_end(views),
    ]


def _one_membership(views: Views) -> list[Violation]:
    found = []
    for stays in views.installs.values():
        first = stays[0]
        for stay in stays:
            if stay.members != first.members:
                sentence = (
                    f"{a_life(first)} installed {a_view(first)} and {a_life(stay)} {a_view(stay)}: one "
                    "identifier, two views."
                )
                found.append(_view_violation(sentence, first, stay))
            if stay.node not in stay.members:
                sentence = f"{a_life(stay)} installed {a_view(stay)}, of which it is no member."
                found.append(_view_violation(sentence, stay))
            if not stay.regular:
                sentence = f"{a_life(stay)} installed {a_configuration(stay)}: a view is a regular one."
                found.append(_view_violation(sentence, stay))
    return found


def _numbers_grow(views: Views) -> list[Violation]:
    found = []
    for stays in views.stays.values():
        highest: Stay | None = None
        for stay in stays:
            if highest is not None and stay.id.seq <= highest.id.seq:
                sentence = (
                    f"{a_life(stay)} installed {a_view(stay)} after {a_life(highest)} had installed "
                    f"{a_view(highest)}: the numbers of views have to grow."
                )
                found.append(_view_violation(sentence, highest, stay))
            else:
                highest = stay
    for stay in views.risen:
        sentence = f"{a_life(stay)} installed {a_view(stay)} after that life had ended."
        found.append(_view_violation(sentence, stay))
    return found


def _one_successor(views: Views) -> list[Violation]:
    return [
        _parted(right[0], stay)
        for right, *others in views.departures.values()
        for way in others
        for stay in way
    ]


def _parted(right: Stay, wrong: Stay) -> Violation:
    """Two lives left one view for different ones."""
    successor, other = right.next, wrong.next
    assert successor is not None, "it is one that left"
    assert other is not None, "it is one that left"
    if wrong.node not in successor.members:
        verdict = f"{a_life(wrong)}, which is not in it and should have halted,"
    else:
        verdict = a_life(wrong)
    sentence = (
        f"from {a_view(right)} {a_life(right)} went on to {a_view(successor)}, and {verdict} to "
        f"{a_view(other)}: a view has one successor."
    )
    return _view_violation(sentence, right, wrong, successor, other)


def _one_end(views: Views) -> list[Violation]:
    """Where all is done, those who live are in one sequence of views: what follows theirs is the same."""
    if not views.lasting:
        return []
    follows = {stay.id: stay.next.id for stay in views.all_stays() if stay.next is not None}
    ends: dict[ConfigurationId, Stay] = {}
    for node, stays in views.stays.items():
        if stays and stays[-1].incarnation == views.alive[node]:
            ends.setdefault(_end_of(follows, stays[-1].id), stays[-1])
    if len(ends) < 2:
        return []
    told = [f"{a_life(stay)} in {a_view(stay)}" for stay in ends.values()]
    sentence = (
        f"those who lived to the end were in views of which none follows the other: {some(told, len(told))}."
    )
    return [_view_violation(sentence, *ends.values())]


def _end_of(follows: dict[ConfigurationId, ConfigurationId], view: ConfigurationId) -> ConfigurationId:
    """The last view of a sequence. A circle, which `_numbers_grow` speaks of, ends anywhere."""
    seen = set()
    while view in follows and view not in seen:
        seen.add(view)
        view = follows[view]
    return view


# --- words -------------------------------------------------------------------------------------


def _sending_violation(sentence: str, odd: Odd) -> Violation:
    return odd_violation("sending-view", sentence, odd, odd.message.configuration)


def _view_violation(sentence: str, *stays: Stay) -> Violation:
    nodes = [stay.node for stay in stays]
    return violation("view-agreement", sentence, nodes, (), *(stay.id for stay in stays))

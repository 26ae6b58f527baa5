"""What must have come about once faults stop. A trace does not tell when that is: an `Expectation` does."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ordercast.audit.explain import NAMED, Violation, a_configuration, members, some, with_position
from ordercast.audit.history import Expectation, History, Stay
from ordercast.core.identity import MessageId, NodeId
from ordercast.trace.columns import INCARNATION, NODE, message_of


def live_membership(history: History) -> list[Violation]:
    """000 §4.1, "Termination": nodes that reach each other end up in one regular configuration."""
    expected = history.expectation
    if expected is None:
        return []
    found = []
    for component in expected.components:
        last = {node: _last(history, node) for node in sorted(component)}
        there = [stay for stay in last.values() if stay and stay.regular and set(stay.members) == component]
        if len(there) == len(component) and len({stay.id for stay in there}) == 1:
            late = [stay for stay in there if _late(expected, stay)]
            if late:
                nodes = tuple(stay.node for stay in late)
                sentence = (
                    f"{a_configuration(late[0])} was installed by nodes {members(nodes)} as late as "
                    f"{max(stay.time_us for stay in late)} µs: faults stopped at "
                    f"{expected.quiet_since_us} µs and {expected.bound_us} µs were allowed."
                )
                found.append(Violation("live-membership", nodes, (), (late[0].id,), sentence))
            continue
        told = [
            f"node {node} in {a_configuration(stay)}" if stay else f"node {node} in none"
            for node, stay in last.items()
        ]
        sentence = (
            f"nodes {members(component)} reach each other and should have ended in one regular "
            f"configuration; they ended apart: {some(told, most=len(told))}."
        )
        configurations = tuple(dict.fromkeys(stay.id for stay in last.values() if stay))
        found.append(Violation("live-membership", tuple(last), (), configurations, sentence))
    return found


def live_delivery(history: History) -> list[Violation]:
    """000 §4.2, "Reliable Delivery": in a lasting configuration all deliver all that was originated.

    And whoever lives to the end has originated, and itself delivered, all it took from its application.
    """
    expected = history.expectation
    if expected is None:
        return []
    lasting = sorted(node for component in expected.components for node in component)
    return [
        *(found for node in lasting if (found := _undelivered(history, node))),
        *unsent(history, "live-delivery", set(lasting)),
    ]


def _undelivered(history: History, node: NodeId) -> Violation | None:
    stay = _last(history, node)
    if stay is None or not stay.regular:
        return None  # live-membership has said so
    span = history.spans.get(stay.id, range(0))
    if stay.delivered == span:
        return None
    missing = sorted(set(span) - set(stay.delivered))
    if not missing:
        return None
    told = some([with_position(history.message(number)) for number in missing])
    return Violation(
        "live-delivery",
        (node,),
        tuple(history.message(number).id for number in missing[:NAMED]),
        (stay.id,),
        f"node {node} stayed in {a_configuration(stay)} to the end and did not deliver {told}.",
    )


def unsent(history: History, code: str, lasting: Set[NodeId]) -> list[Violation]:
    """Messages accepted by a life that lasted and not delivered by it, one violation a node."""
    delivered: dict[NodeId, set[int]] = {}
    missing: dict[NodeId, list[tuple[MessageId, bool]]] = {}
    for row in history.submitted:
        node: NodeId = row[NODE]
        identity: tuple[Any, ...] = message_of(row)
        if node not in lasting or row[INCARNATION] != history.alive.get(node):
            continue
        if node not in delivered:
            stays = history.stays[node]
            delivered[node] = {
                number for stay in stays for number in stay.delivered if stay.incarnation == row[INCARNATION]
            }
        number = history.number.get(identity)
        if number is None or number not in delivered[node]:
            missing.setdefault(node, []).append((MessageId._make(identity), number is not None))
    found = []
    for node, messages in missing.items():
        told = some(
            [
                f"message {message.number} of node {node} (not {'delivered' if originated else 'originated'})"
                for message, originated in messages
            ]
        )
        sentence = f"node {node} lived to the end and left unfinished what it had accepted: {told}."
        found.append(Violation(code, (node,), tuple(m for m, _ in messages[:NAMED]), (), sentence))
    return found


def _last(history: History, node: NodeId) -> Stay | None:
    """Where a node is at the end: the last stay of a life that lasts."""
    stays = history.stays.get(node)
    alive = history.alive.get(node)
    if not stays or alive is None or stays[-1].incarnation != alive:
        return None
    return stays[-1]


def _late(expected: Expectation, stay: Stay) -> bool:
    if expected.quiet_since_us is None or expected.bound_us is None:
        return False
    return stay.time_us > expected.quiet_since_us + expected.bound_us

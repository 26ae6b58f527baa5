"""What must hold of single messages: where they come from, where and how often they are delivered."""

from __future__ import annotations

from operator import eq

from ordercast.audit.explain import (
    Violation,
    a_configuration,
    a_message,
    delivered_elsewhere,
    odd_violation,
    some,
    violation,
    with_position,
)
from ordercast.audit.history import History
from ordercast.core.identity import NodeId


def deliver_once(history: History) -> list[Violation]:
    """000 §4.2, "Reliable Delivery": a node delivers a message once only, over all its lives."""
    found = []
    for first, again, number in history.delivered_again():
        message = history.message(number)
        sentence = (
            f"node {again.node} delivered {with_position(message)} in {a_configuration(first)} and again in "
            f"{a_configuration(again)}."
        )
        found.append(violation("deliver-once", sentence, [again.node], [message], first.id, again.id))
    return found


def deliver_originated(history: History) -> list[Violation]:
    """000 §3: a message is tied to a configuration by its origination, its first broadcast, by one node.

    Broken by a delivery without an origination; by one that names another configuration or guarantee
    than the origination; by an origination by another node or life than the message's, or in another
    configuration than the regular one that is installed; and by a second origination.
    """
    found = []
    for number, nodes in sorted(_deliverers(history, history.unoriginated).items()):
        message = history.message(number)
        if message.origin in history.absent:
            continue  # `members_traced` speaks of it
        sentence = (
            f"{some([f'node {node}' for node in nodes])} delivered {with_position(message)} of "
            f"configuration {message.configuration}, which node {message.origin} never originated."
        )
        found.append(violation("deliver-originated", sentence, nodes, [message], message.configuration))
    for odd in history.originations_astray:
        here = "outside any configuration" if odd.here is None else f"in configuration {odd.here}"
        sentence = (
            f"node {odd.node} originated {with_position(odd.message)} {here}, "
            f"as a message of configuration {odd.message.configuration}: only node {odd.message.origin} "
            f"may, in its life {odd.message.incarnation} and in that regular configuration."
        )
        found.append(odd_violation("deliver-originated", sentence, odd, odd.message.configuration))
    for again, first in history.originated_again:
        sentence = (
            f"node {again.origin} originated {with_position(first)} of configuration {first.configuration} "
            f"a second time, at position {again.seq}/{again.slot} of configuration {again.configuration}."
        )
        found.append(
            violation(
                "deliver-originated",
                sentence,
                [again.origin],
                [first],
                first.configuration,
                again.configuration,
            )
        )
    for stay, said, known in history.claims:
        if (said.configuration, said.guarantee) == (known.configuration, known.guarantee):
            continue
        sentence = (
            f"node {stay.node} delivered {a_message(said)} as {said.guarantee} and of configuration "
            f"{said.configuration}; node {known.origin} originated it as {known.guarantee} in "
            f"{known.configuration}."
        )
        nodes = [stay.node, known.origin]
        configurations = (said.configuration, known.configuration)
        found.append(violation("deliver-originated", sentence, nodes, [known], *configurations))
    return found


def _deliverers(history: History, numbers: set[int]) -> dict[int, list[NodeId]]:
    """By message number, the nodes that delivered the message."""
    nodes: dict[int, list[NodeId]] = {}
    for stay in history.all_stays() if numbers else ():
        for number in numbers.intersection(stay.delivered):
            nodes.setdefault(number, []).append(stay.node)
    return nodes


def deliver_place(history: History) -> list[Violation]:
    """000 §4.2, "Reliable Delivery": in C by who installed C, or in the transitional one right after."""
    found = []
    for odd in history.deliveries_astray:
        sentence = delivered_elsewhere(odd, "configuration", odd.kind)
        found.append(odd_violation("deliver-place", sentence, odd, *([odd.says] if odd.says else [])))
    for stay in history.all_stays():
        if stay.tidy:
            continue
        span = history.deliverable(stay)
        for number in stay.delivered:
            if number in span:
                continue
            message = history.message(number)
            sentence = (
                f"node {stay.node} delivered {with_position(message)} in {a_configuration(stay)}: it belongs "
                f"in configuration {message.configuration} or in the transitional one directly after."
            )
            found.append(
                violation("deliver-place", sentence, [stay.node], [message], message.configuration, stay.id)
            )
    return found


def seq_unique(history: History) -> list[Violation]:
    """000 §5: one sequence of positions for all nodes of a configuration, each taken once."""
    found = []
    places = [facts[3:7] for facts in history.messages]
    if any(map(eq, places, places[1:])):
        for number in range(1, len(places)):
            if places[number - 1] != places[number]:
                continue
            one, other = history.message(number - 1), history.message(number)
            sentence = (
                f"{a_message(one)} and {a_message(other)} both have the position {one.seq}/{one.slot} "
                f"of configuration {one.configuration}."
            )
            nodes = [one.origin, other.origin]
            found.append(violation("seq-unique", sentence, nodes, [one, other], one.configuration))
    for again, first in history.originated_again:
        if again.configuration == first.configuration and again.position != first.position:
            sentence = (
                f"node {again.origin} originated {with_position(first)} of configuration "
                f"{first.configuration}, and also at position {again.seq}/{again.slot}."
            )
            found.append(violation("seq-unique", sentence, [again.origin], [first], first.configuration))
    for stay, said, known in history.claims:
        if said.configuration == known.configuration and said.position != known.position:
            sentence = (
                f"node {stay.node} delivered {a_message(said)} as position {said.seq}/{said.slot} of "
                f"configuration {known.configuration}; elsewhere it is {known.seq}/{known.slot}."
            )
            nodes = [stay.node, known.origin]
            found.append(violation("seq-unique", sentence, nodes, [known], known.configuration))
    return found

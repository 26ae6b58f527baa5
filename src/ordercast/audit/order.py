"""What must hold of the order of deliveries over all nodes (000 §3, §4.2; 001, "Message Ordering")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from graphlib import CycleError, TopologicalSorter
from itertools import chain, combinations, pairwise

from ordercast.audit.explain import Violation, a_message, violation, with_position
from ordercast.audit.history import History, Identity, Message, Stay
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.trace.columns import TIMESTAMP, Two, birth_of, facts_of, message_of
from ordercast.trace.schema import Row

Event = int | ConfigurationId
"""What a node tells its application: a message, by number, or a configuration."""


def total_order(history: History) -> list[Violation]:
    """000 §4.2, "Extended Virtual Synchrony": no two nodes deliver two messages in different orders.

    For each two nodes one violation for each place where the one's order falls back in the other's.
    """
    if len(history.ascending) == len(history.stays):
        return []  # everyone follows one order
    orders = {node: firsts(stay.delivered for stay in stays) for node, stays in history.stays.items()}
    return two_orders(history, "total-order", orders, history.ascending)


def two_orders(
    history: History, code: str, orders: Mapping[NodeId, Mapping[int, int]], ascending: Set[NodeId]
) -> list[Violation]:
    """What any two nodes deliver in different orders; those in `ascending` follow the messages' numbers."""
    found = []
    for (one, its), (other, others) in combinations(orders.items(), 2):
        if one in ascending and other in ascending:
            continue
        common = [number for number in its if number in others]
        for before, after in pairwise(common):
            if others[before] < others[after]:
                continue
            m, n = history.message(before), history.message(after)
            sentence = (
                f"node {one} delivered {with_position(m)} before {with_position(n)}; "
                f"node {other} delivered them the other way round."
            )
            configurations = tuple(dict.fromkeys((m.configuration, n.configuration)))
            found.append(Violation(code, (one, other), (m.id, n.id), configurations, sentence))
    return found


def firsts(delivered: Iterable[Sequence[int]]) -> dict[int, int]:
    """Each message a node delivered, in its order, and its place in it."""
    order: dict[int, int] = {}
    for numbers in delivered:
        for number in numbers:
            order.setdefault(number, len(order))
    return order


def global_order(history: History) -> list[Violation]:
    """000 §3, "Global Delivery Order", and its footnote 4: no cycle, of any length.

    A node's order runs on over its lives: a node that comes back has stored its ring's number (000 §3),
    so that nothing it does then can come before what it did earlier. One cycle is reported, if there
    is any: others may be consequences of it.
    """
    return [] if _follows_the_numbers(history) else _cycle(history)


def _cycle(history: History) -> list[Violation]:
    """Search the orders of all nodes for a cycle."""
    orders = {node: _events(stays) for node, stays in history.stays.items()}
    graph: TopologicalSorter[Event] = TopologicalSorter()
    for order in orders.values():
        for before, after in pairwise(order):
            graph.add(after, before)
    try:
        graph.prepare()
    except CycleError as error:
        cycle: list[Event] = error.args[1]
        return [_explain(history, orders, cycle)]
    return []


def _follows_the_numbers(history: History) -> bool:
    """Whether one order of all events is at hand that every node follows.

    Such an order: the messages by number, that is by configuration and position; a regular
    configuration before its messages; a transitional one where the nodes that install it stop
    delivering in the regular one, if all stop at the same message. Nothing is said against a run
    that does not fit; then the cycle has to be looked for.
    """
    if len(history.ascending) != len(history.stays):
        return False
    stops: dict[ConfigurationId, tuple[ConfigurationId, int]] = {}
    for stays in history.stays.values():
        last: ConfigurationId | None = None
        for stay in stays:
            if stay.regular:
                if not stay.tidy or (last is not None and stay.id <= last) or stay.id in stops:
                    return False
                last = stay.id
                continue
            before = stay.previous
            if before is None or not before.regular or not isinstance(before.delivered, range):
                return False
            span = history.spans.get(before.id, range(0))
            if any(number not in span for number in stay.delivered):
                return False
            stop = (before.id, len(before.delivered))
            if stops.setdefault(stay.id, stop) != stop or history.installs[stay.id][0].regular:
                return False
    return True


def _events(stays: list[Stay]) -> list[Event]:
    """What a node tells its application, in its order; what it repeats is counted once."""
    order: dict[Event, None] = {}
    for stay in stays:
        order.setdefault(stay.id)
        for number in stay.delivered:
            order.setdefault(number)
    return list(order)


def _explain(history: History, orders: dict[NodeId, list[Event]], cycle: list[Event]) -> Violation:
    """Put a cycle into words, each node's part of it as one step."""
    wanted = set(pairwise(cycle))
    owners: dict[tuple[Event, Event], list[NodeId]] = {}
    for node, order in orders.items():
        for step in pairwise(order):
            if step in wanted:
                owners.setdefault(step, []).append(node)
    parts: list[tuple[NodeId, Event, Event]] = []
    for before, after in pairwise(cycle):
        nodes = owners[before, after]
        if parts and parts[-1][0] in nodes:
            node, start, _ = parts.pop()
        else:
            node, start = nodes[0], before
        parts.append((node, start, after))
    told = "; ".join(
        f"node {node} has {_event(history, start)} before {_event(history, end)}"
        for node, start, end in parts
    )
    turns = [start for _, start, _ in parts]
    messages = [history.message(event) for event in turns if isinstance(event, int)]
    configurations = [event for event in turns if isinstance(event, ConfigurationId)]
    configurations += [message.configuration for message in messages]
    return Violation(
        "global-order",
        tuple(dict.fromkeys(node for node, _, _ in parts)),
        tuple(message.id for message in messages),
        tuple(dict.fromkeys(configurations)),
        f"the orders of delivery go round in a circle: {told}.",
    )


def _event(history: History, event: Event) -> str:
    return a_message(history.message(event)) if isinstance(event, int) else f"configuration {event}"


# --- timestamps ------------------------------------------------------------------------------------


def born_ordered(history: History) -> list[Violation]:
    """001, "Message Ordering": messages are delivered by timestamp, then by source ring.

    "The relative order of any two messages is determined directly from the messages, as broadcast by their
    sources": all nodes say of a message the timestamp and the ring that its origination says; and in each
    life of a node, over all its configurations, deliveries never fall back in them. What is equal in both has
    its order by its place (`total_order`). Nothing is asked where messages have no timestamps.
    """
    stays = list(history.all_stays())
    told = chain.from_iterable((*stay.originations, *stay.deliveries) for stay in stays)
    if all(row[TIMESTAMP] is None for row in told):
        return []
    found = []
    births: dict[Identity, Row] = {}
    for stay in stays:
        for row in stay.originations:
            births.setdefault(message_of(row), row)
    last: Row | None = None
    before: Stay | None = None
    for stay in stays:
        if before is None or (stay.node, stay.incarnation) != (before.node, before.incarnation):
            last = None
        before = stay
        for row in stay.deliveries:
            known = births.setdefault(message_of(row), row)
            if birth_of(known) != birth_of(row):
                found.append(_born_twice(stay, row, known))
            if row[TIMESTAMP] is None:
                continue
            if last is not None and _born(row) < _born(last):
                found.append(_born_earlier(stay, row, last))
            last = row
    return found


def _born(row: Row) -> tuple[int, int]:
    timestamp, ring = birth_of(row)
    return timestamp or 0, ring or 0


def _born_twice(stay: Stay, row: Row, known: Row) -> Violation:
    said, other = Message._make(facts_of(row)), Message._make(facts_of(known))
    sentence = (
        f"node {stay.node} delivered {a_message(said)} with {_birth(birth_of(row))}; "
        f"elsewhere it has {_birth(birth_of(known))}."
    )
    nodes = list(dict.fromkeys((stay.node, said.origin)))
    return violation("born-ordered", sentence, nodes, [said], said.configuration, other.configuration)


def _born_earlier(stay: Stay, row: Row, last: Row) -> Violation:
    message, earlier = Message._make(facts_of(row)), Message._make(facts_of(last))
    sentence = (
        f"node {stay.node} delivered {a_message(message)} with {_birth(birth_of(row))} behind "
        f"{a_message(earlier)} with {_birth(birth_of(last))}."
    )
    configurations = (earlier.configuration, message.configuration)
    return violation("born-ordered", sentence, [stay.node], [earlier, message], *configurations)


def _birth(birth: Two) -> str:
    timestamp, ring = birth
    return "no timestamp" if timestamp is None else f"timestamp {timestamp} of ring {ring}"

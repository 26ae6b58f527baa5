"""What must hold of what messages carry: it is the same at all nodes."""

from __future__ import annotations

from operator import eq, itemgetter

from ordercast.audit.explain import Violation, violation, with_position
from ordercast.audit.history import History, Message
from ordercast.trace.columns import CHECKSUM, facts_of, message_of
from ordercast.trace.schema import Row

_checksum = itemgetter(CHECKSUM)


def same_contents(history: History) -> list[Violation]:
    """000 §3: what is delivered is the message that was originated: all nodes say its checksum.

    Of a message without a known origination the first delivery tells it. Nothing is asked of rows that have
    none: of older traces, and of nodes that contents were withheld from.
    """
    known = _known(history)
    if not any(known):
        return []
    found = []
    for stay in history.every_stay():
        numbers = stay.delivered
        if isinstance(numbers, range) and all(
            map(eq, map(_checksum, stay.deliveries), known[numbers.start : numbers.stop])
        ):
            continue
        for row in stay.deliveries:
            said = row[CHECKSUM]
            message = Message._make(facts_of(row))
            number = history.number.get(message[:3])
            if said is None or number is None or said == known[number]:
                continue
            sentence = (
                f"node {stay.node} delivered {with_position(message)} with contents of checksum {said:08x}; "
                f"elsewhere they have {known[number]:08x}."
            )
            found.append(
                violation("same-contents", sentence, [stay.node, message.origin], [message], stay.id)
            )
    return found


def _known(history: History) -> list[int | None]:
    """The checksum of each message, by number; None where nobody says one."""
    known: list[int | None] = [None] * len(history.messages)
    for stay in history.every_stay():
        _learn(history, known, stay.originations)
    for stay in history.every_stay():
        numbers = stay.delivered
        if not isinstance(numbers, range) or None in known[numbers.start : numbers.stop]:
            _learn(history, known, stay.deliveries)
    return known


def _learn(history: History, known: list[int | None], rows: list[Row]) -> None:
    for row in rows:
        number = history.number.get(message_of(row))
        if number is not None and known[number] is None:
            known[number] = row[CHECKSUM]

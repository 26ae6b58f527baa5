"""Rows of process groups in a trace that is being written: which are kept, and what is compared early."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

from ordercast.audit.explain import Violation
from ordercast.audit.history import History, Identity
from ordercast.audit.process_groups import different_between, gets
from ordercast.audit.process_stories import GoneEvent, Process, ReceivedEvent, ViewEvent, ViewKey
from ordercast.core.identity import MessageId
from ordercast.trace.columns import EVENT, GROUP, INCARNATION, NUMBER
from ordercast.trace.schema import GROUP_EVENTS, Row

_OF_MEMBERS = frozenset(GROUP_EVENTS) - {"group_deliver"}


def same_so_far(history: History, settled: Set[Identity]) -> list[Violation]:
    """Processes of one view of a group have received the same of the messages that are going to be forgotten.

    ``group-synchrony`` asks for it once they go to the next view together, which may be days later. Their
    nodes have all delivered these messages, in one configuration: they must have received the same already.
    """
    if not settled or not history.group_rows:
        return []
    here: defaultdict[Process, dict[str, tuple[ViewKey, list[MessageId]]]] = defaultdict(dict)
    received: dict[tuple[Process, ViewKey], list[MessageId]] = {}
    for event in history.processes.all_events():
        match event:
            case ViewEvent(process, key):
                received[process, key] = []
                here[process][key.group] = (key, received[process, key])
            case GoneEvent(process, None):
                for key, _ in here.pop(process, {}).values():
                    received.pop((process, key), None)
            case GoneEvent(process, str(group)):
                gone = here[process].pop(group, None)
                if gone is not None:
                    received.pop((process, gone[0]), None)
            case ReceivedEvent(message, groups, to, None) if message in settled:
                for process in to:
                    for group, (_, messages) in here[process].items():
                        if gets(group, groups):
                            messages.append(message)
    found = []
    first: dict[ViewKey, tuple[Process, list[MessageId]]] = {}
    for (process, key), messages in received.items():
        if history.alive.get(process[0]) != process[1]:
            continue
        other, theirs = first.setdefault(key, (process, messages))
        if theirs != messages:
            found.append(different_between(key, None, (other, theirs), (process, messages)))
    return found


def of_members(row: Row) -> bool:
    """Whether a row tells who is in which group."""
    return row[EVENT] in _OF_MEMBERS


def current_views(rows: list[Row], upto: int) -> set[int]:
    """The places, below one, of the rows that tell the views which processes have at that place."""
    current: dict[tuple[int | None, str | None], int] = {}
    life = rows[upto - 1][INCARNATION] if upto else None
    for at in range(upto):
        row = rows[at]
        event = row[EVENT]
        if event not in _OF_MEMBERS or row[INCARNATION] != life:
            continue
        who = (row[NUMBER], row[GROUP])
        if event == "group_view":
            current[who] = at
        elif event == "group_left":
            current.pop(who, None)
        elif event == "process_end":
            for other in [other for other in current if other[0] == row[NUMBER]]:
                del current[other]
    return set(current.values())

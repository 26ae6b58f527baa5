"""What must hold of process groups (001, "The Totem Process Group Interface"), over any ordering protocol."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from ordercast.audit.explain import NAMED, Violation, some
from ordercast.audit.history import History
from ordercast.audit.process_stories import (
    AskedEvent,
    GoneEvent,
    OrderedEvent,
    Process,
    ReceivedEvent,
    ViewEvent,
    ViewKey,
)
from ordercast.core.identity import ConfigurationId, MessageId, NodeId
from ordercast.core.subjects import described, matches, read_subscription


def group_views(history: History) -> list[Violation]:
    """Group views agree: who installs one of an identifier has the same members, and installs it once."""
    found = []
    first: dict[ViewKey, ViewEvent] = {}
    installed: set[tuple[Process, ViewKey]] = set()
    for event in history.processes.all_events():
        if not isinstance(event, ViewEvent):
            continue
        known = first.setdefault(event.key, event)
        if known.members != event.members:
            sentence = (
                f"{_a_process(known.process)} and {_a_process(event.process)} installed view {event.key} "
                f"with different members: {_processes(known.members)} and {_processes(event.members)}."
            )
            found.append(_violation("group-views", sentence, (known.process, event.process), view=event.key))
        if (event.process, event.key) in installed:
            sentence = f"{_a_process(event.process)} installed view {event.key} twice."
            found.append(_violation("group-views", sentence, (event.process,), view=event.key))
        installed.add((event.process, event.key))
    return found


def group_self_inclusion(history: History) -> list[Violation]:
    """A process is in every view that it installs."""
    return [
        _violation(
            "group-self-inclusion",
            f"{_a_process(event.process)} installed view {event.key}, and is not in it: "
            f"{_processes(event.members)}.",
            (event.process,),
            view=event.key,
        )
        for event in history.processes.all_events()
        if isinstance(event, ViewEvent) and event.process not in event.members
    ]


def group_receivers(history: History) -> list[Violation]:
    """Only a process that is in one of the groups addressed receives a message, as its own views tell."""
    found = []
    member: defaultdict[Process, set[str]] = defaultdict(set)
    for event in history.processes.all_events():
        match event:
            case ViewEvent(process, key):
                member[process].add(key.group)
            case GoneEvent(process, None):
                member[process].clear()
            case GoneEvent(process, str(group)):
                member[process].discard(group)
            case ReceivedEvent(message, groups, to, queue):
                for process in to:
                    if not any(gets(group, groups, queue) for group in member[process]):
                        sentence = (
                            f"{_a_process(process)} received {_a_message(message)}, which is addressed to "
                            f"{_a_list(groups)}, and was in none of these groups."
                        )
                        found.append(_violation("group-receivers", sentence, (process,), (message,)))
    return found


def group_once(history: History) -> list[Violation]:
    """A process in several of the groups addressed receives a message once."""
    found = []
    seen: set[tuple[Process, MessageId, str | None]] = set()
    for event in history.processes.all_events():
        if isinstance(event, ReceivedEvent):
            for process in event.to:
                if (process, event.message, event.queue) in seen:
                    sentence = f"{_a_process(process)} received {_a_message(event.message)} more than once."
                    found.append(_violation("group-once", sentence, (process,), (event.message,)))
                seen.add((process, event.message, event.queue))
    return found


def group_order(history: History) -> list[Violation]:
    """Over all groups, processes receive messages in the one order in which their nodes deliver them.

    With `total-order`, or `uniform-order`, of the nodes' deliveries that is one order over all groups.
    """
    found = []
    place: dict[tuple[NodeId, int, MessageId], int] = {}
    last: dict[Process, tuple[int, MessageId]] = {}
    for at, event in enumerate(history.processes.all_events()):
        if isinstance(event, OrderedEvent):
            place.setdefault((*event.life, event.message), at)
        elif isinstance(event, ReceivedEvent):
            for process in event.to:
                here = place.get((*process[:2], event.message))
                before = last.get(process)
                if here is None:
                    sentence = (
                        f"{_a_process(process)} received {_a_message(event.message)}, which its node had "
                        "not delivered."
                    )
                    found.append(_violation("group-order", sentence, (process,), (event.message,)))
                    continue
                if before is not None and here < before[0]:
                    sentence = (
                        f"{_a_process(process)} received {_a_message(before[1])} before "
                        f"{_a_message(event.message)}; its node delivered them the other way round."
                    )
                    found.append(_violation("group-order", sentence, (process,), (before[1], event.message)))
                last[process] = (here, event.message)
    return found


def group_synchrony(history: History) -> list[Violation]:
    """Processes that go from one view of a group to the next together received the same messages between."""
    found = []
    here: defaultdict[Process, dict[str, tuple[ViewKey, list[MessageId]]]] = defaultdict(dict)
    between: dict[tuple[ViewKey, ViewKey], tuple[Process, list[MessageId]]] = {}
    for event in history.processes.all_events():
        match event:
            case ViewEvent(process, key):
                was = here[process].get(key.group)
                here[process][key.group] = (key, [])
                if was is None:
                    continue
                other, theirs = between.setdefault((was[0], key), (process, was[1]))
                if theirs != was[1]:
                    found.append(different_between(was[0], key, (other, theirs), (process, was[1])))
            case GoneEvent(process, str(group)):
                here[process].pop(group, None)
            case ReceivedEvent(message, groups, to, None):
                for process in to:
                    for group, (_, messages) in here[process].items():
                        if gets(group, groups):
                            messages.append(message)
    return found


def different_between(
    before: ViewKey,
    after: ViewKey | None,
    one: tuple[Process, list[MessageId]],
    other: tuple[Process, list[MessageId]],
) -> Violation:
    """Two processes received different messages between two views; or so far, if there is no next one."""
    alone = [f"{_a_message(m)} by {_a_process(one[0])} alone" for m in one[1] if m not in set(other[1])]
    alone += [f"{_a_message(m)} by {_a_process(other[0])} alone" for m in other[1] if m not in set(one[1])]
    messages = sorted(set(one[1]) ^ set(other[1]))[:NAMED]
    told = some(alone) or "the same in different orders"
    way = f"are in view {before}" if after is None else f"went together from view {before} to view {after}"
    where = "in it" if after is None else "between them"
    both = f"{_a_process(one[0])} and {_a_process(other[0])}"
    sentence = f"{both} {way} and received different messages {where}: {told}."
    return _violation("group-synchrony", sentence, (one[0], other[0]), messages, before)


def group_one_view(history: History) -> list[Violation]:
    """Of a group's regular views, a message is received in one; else in transitional ones."""
    found = []
    where: dict[tuple[MessageId, str], tuple[Process, ViewKey]] = {}
    for received, process, views in _receivers(history):
        message = received.message
        for group, here in views.items():
            if here.part is not None or not gets(group, received.groups, received.queue):
                continue
            other, known = where.setdefault((message, group), (process, here))
            if known != here:
                sentence = (
                    f"{_a_message(message)} was received by {_a_process(other)} in view {known} "
                    f"and by {_a_process(process)} in view {here}."
                )
                found.append(_violation("group-one-view", sentence, (other, process), (message,), here))
    return found


def group_queue(history: History) -> list[Violation]:
    """Of the members of a queue one receives a message, in the view that they have of the queue."""
    found = []
    first: dict[tuple[MessageId, ViewKey], Process] = {}
    for received, process, views in _receivers(history):
        if received.queue is None or received.queue not in views:
            continue
        message, view = received.message, views[received.queue]
        other = first.setdefault((message, view), process)
        if other != process:
            sentence = (
                f"{_a_process(other)} and {_a_process(process)} both received {_a_message(message)} over one "
                f"queue, in view {view}."
            )
            found.append(_violation("group-queue", sentence, (other, process), (message,), view))
    return found


def _receivers(history: History) -> Iterator[tuple[ReceivedEvent, Process, Mapping[str, ViewKey]]]:
    """Every message that was received, each process that received it, and the views of its groups there."""
    here: defaultdict[Process, dict[str, ViewKey]] = defaultdict(dict)
    for event in history.processes.all_events():
        match event:
            case ViewEvent(process, key):
                here[process][key.group] = key
            case GoneEvent(process, str(group)):
                here[process].pop(group, None)
            case ReceivedEvent():
                for process in event.to:
                    yield event, process, here[process]


# --- what must have come about once faults stop --------------------------------------------------------


def live_groups(history: History) -> list[Violation]:
    """In the end, all members of a group have one regular view, of all who asked for it and still do."""
    found: list[Violation] = []
    if history.expectation is None:
        return found
    wanted, last = _in_the_end(history)
    for component in history.expectation.components:
        groups: defaultdict[str, set[Process]] = defaultdict(set)
        for process, its in wanted.items():
            if process[0] in component and history.alive.get(process[0]) == process[1]:
                for group in its:
                    groups[group].add(process)
        for group, processes in sorted(groups.items()):
            views = {process: last.get((process, group)) for process in sorted(processes)}
            keys = {None if view is None else view.key for view in views.values()}
            only = next(iter(views.values()))
            whole = only is not None and only.key.part is None and set(only.members) == processes
            if len(keys) > 1 or not whole:
                told = [
                    f"{_a_process(process)} " + ("in no view" if view is None else f"in view {view.key}")
                    for process, view in views.items()
                ]
                sentence = (
                    f"processes {_processes(sorted(processes))} should have ended in one regular view of "
                    f"{described(group)}; they ended: {some(told)}."
                )
                found.append(_violation("live-groups", sentence, tuple(views)))
    return found


def _in_the_end(
    history: History,
) -> tuple[dict[Process, set[str]], dict[tuple[Process, str], ViewEvent]]:
    """The groups that each process wants to be in, and the last view that it has of a group, at the end."""
    wanted: defaultdict[Process, set[str]] = defaultdict(set)
    last: dict[tuple[Process, str], ViewEvent] = {}
    for event in history.processes.all_events():
        match event:
            case AskedEvent(process, group, joins):
                (wanted[process].add if joins else wanted[process].discard)(group)
            case GoneEvent(process, None):
                wanted[process].clear()
            case GoneEvent(process, str(group)):
                last.pop((process, group), None)
            case ViewEvent(process, key):
                last[process, key.group] = event
    return wanted, last


def live_group_delivery(history: History) -> list[Violation]:
    """In the end, a process has received all that its node delivered while it was in a group addressed; and
    of a queue that it was in, some member has."""
    found: list[Violation] = []
    if history.expectation is None:
        return found
    over_queues = {
        (event.repeats or event.message, event.queue)
        for event in history.processes.all_events()
        if isinstance(event, ReceivedEvent) and event.queue is not None
    }
    for component in history.expectation.components:
        for node in sorted(component):
            found += _missed(history, node, over_queues)
    return found


def _lost_to_queue(
    queue: str, process: Process, event: OrderedEvent, received: set[tuple[MessageId, str]]
) -> list[Violation]:
    """Whether no member of a queue received a message that is for one of them."""
    if not gets(queue, event.groups, queue) or (event.message, queue) in received:
        return []
    sentence = (
        f"nobody received {_a_message(event.message)} over {described(queue)}, though the node of "
        f"{_a_process(process)} delivered it while that was a member of the queue."
    )
    return [_violation("live-group-delivery", sentence, (process,), (event.message,))]


def _missed(history: History, node: NodeId, over_queues: set[tuple[MessageId, str]]) -> list[Violation]:
    life = history.alive.get(node)
    since: dict[tuple[Process, str], int] = {}
    ordered: list[tuple[int, OrderedEvent]] = []
    received: set[tuple[Process, MessageId]] = set()
    ended: set[Process] = set()
    for at, event in enumerate(history.processes.events.get(node, ())):
        match event:
            case ViewEvent(process, key) if process[1] == life:
                since.setdefault((process, key.group), at)
            case GoneEvent(process, None):
                ended.add(process)
            case GoneEvent(process, str(group)):
                since.pop((process, group), None)
            case OrderedEvent((_, incarnation)) if incarnation == life:
                ordered.append((at, event))
            case ReceivedEvent(message, _, to, None):
                received.update((process, message) for process in to)
    by_group: defaultdict[str, list[tuple[Process, int]]] = defaultdict(list)
    for (process, group), at in since.items():
        if process not in ended:
            by_group[group].append((process, at))
    found = []
    for at, event in ordered:
        for group, members in by_group.items():
            if not gets(group, event.groups):
                if _queue_of(group) and any(joined < at for _, joined in members):
                    found += _lost_to_queue(group, members[0][0], event, over_queues)
                continue
            for process, joined in members:
                if joined < at and (process, event.message) not in received:
                    sentence = (
                        f"{_a_process(process)} never received {_a_message(event.message)}, which its node "
                        f"delivered while it was in {described(group)}."
                    )
                    found.append(_violation("live-group-delivery", sentence, (process,), (event.message,)))
    return found


# --- patterns and queues -----------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def gets(group: str, addressed: tuple[str, ...], queue: str | None = None) -> bool:
    """Whether members of a group get what is addressed to these: all of them, or one of a `queue`."""
    pattern = read_subscription(group)
    if queue is not None and group != queue:
        return False
    if pattern is None:
        return group in addressed
    if pattern[1] is not None and queue is None:
        return False
    return any(matches(pattern[0], each) for each in addressed)


def _queue_of(group: str) -> bool:
    pattern = read_subscription(group)
    return pattern is not None and pattern[1] is not None


# --- words -------------------------------------------------------------------------------------------


def _violation(
    code: str,
    sentence: str,
    processes: Sequence[Process],
    messages: Iterable[MessageId] = (),
    view: ViewKey | None = None,
) -> Violation:
    nodes = tuple(dict.fromkeys(process[0] for process in processes))
    configurations: tuple[ConfigurationId, ...] = () if view is None else (view.configuration,)
    return Violation(code, nodes, tuple(messages), configurations, sentence[0].upper() + sentence[1:])


def _a_process(process: Process) -> str:
    node, incarnation, number = process
    return f"process {number} of node {node}" + (f" (life {incarnation})" if incarnation else "")


def _a_message(message: MessageId) -> str:
    life = f" (life {message.incarnation})" if message.incarnation else ""
    return f"message {message.number} of node {message.origin}{life}"


def _processes(processes: Iterable[Process]) -> str:
    return f"{{{', '.join('.'.join(map(str, process)) for process in processes)}}}"


def _a_list(groups: Sequence[str]) -> str:
    return ", ".join(groups)

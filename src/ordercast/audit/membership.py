"""What must hold of configurations and of the changes between them (000 §4.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ordercast.audit.explain import Violation, a_configuration, members
from ordercast.audit.history import History, Stay
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.trace.columns import GUARANTEE

Places: TypeAlias = Callable[[Stay], tuple[int, int] | None]
"""The lowest and the highest sequence number that was delivered in a stay: see `Stay.places`."""


def config_unique(history: History) -> list[Violation]:
    """000 §4.1, "Uniqueness of Configurations": an identifier means one configuration, once a node."""
    found = []
    for stays in history.installs.values():
        first = stays[0]
        seen: dict[NodeId, Stay] = {}
        for stay in stays:
            if (stay.regular, stay.members) != (first.regular, first.members):
                sentence = (
                    f"node {first.node} installed {a_configuration(first)} and node {stay.node} "
                    f"{a_configuration(stay)}: one identifier, two configurations."
                )
                found.append(_violation("config-unique", sentence, first, stay))
            if stay.node in seen:
                sentence = (
                    f"node {stay.node} installed {a_configuration(stay)} twice: in its life "
                    f"{seen[stay.node].incarnation} and in its life {stay.incarnation}."
                )
                found.append(_violation("config-unique", sentence, stay))
            seen.setdefault(stay.node, stay)
    return found


def config_member(history: History) -> list[Violation]:
    """000 §3: a configuration is a membership, shown to its members and to nobody else."""
    return [
        _violation(
            "config-member",
            f"node {stay.node} installed {a_configuration(stay)}, of which it is no member.",
            stay,
        )
        for stay in history.all_stays()
        if stay.node not in stay.members
    ]


def config_chain(history: History) -> list[Violation]:
    """000 §4.2, §7.2: regular, transitional with fewer members or as many, regular with these members.

    The first configuration of a life follows nothing; it has to be a regular one.
    """
    found = []
    for stay in history.all_stays():
        before = stay.previous
        wrong = _wrong_step(before, stay)
        if wrong is None:
            continue
        if before is None:
            sentence = (
                f"node {stay.node} began its life {stay.incarnation} with {a_configuration(stay)}: {wrong}"
            )
            found.append(_violation("config-chain", sentence, stay))
        else:
            sentence = (
                f"node {stay.node} installed {a_configuration(stay)} directly after "
                f"{a_configuration(before)}: {wrong}"
            )
            found.append(_violation("config-chain", sentence, before, stay))
    return found


def _wrong_step(before: Stay | None, stay: Stay) -> str | None:
    """What is wrong with installing one directly after the other, if something is."""
    if before is None:
        return None if stay.regular else "it has to be a regular one."
    if before.regular == stay.regular:
        return "regular and transitional ones have to take turns."
    if stay.regular:
        lost = set(before.members).difference(stay.members)
        return f"{members(lost)} came along and are not in it." if lost else None
    strange = set(stay.members).difference(before.members)
    return f"{members(strange)} were not in the regular one." if strange else None


def config_consistent(history: History) -> list[Violation]:
    """000 §4.1, "Configuration Change Consistency": who makes the same change is told of the same one."""
    found = []
    between: dict[tuple[ConfigurationId, ConfigurationId], Stay] = {}
    for stay in history.all_stays():
        old, new = stay.previous, stay.next
        if stay.regular or old is None or new is None or not (old.regular and new.regular):
            continue
        other = between.setdefault((old.id, new.id), stay)
        if (other.id, other.members) != (stay.id, stay.members):
            sentence = (
                f"nodes {other.node} and {stay.node} both went from {old.id} to {new.id}, "
                f"node {other.node} through {a_configuration(other)} and node {stay.node} through "
                f"{a_configuration(stay)}."
            )
            found.append(_violation("config-consistent", sentence, other, stay))
    return found


def members_traced(history: History) -> list[Violation]:
    """What others tell of a member can be held against its own rows: there are some.

    Of a member without a row nothing else is judged. It breaks nothing where nothing is told of it: it may
    have ended before it did anything.
    """
    found = []
    for node, stay in history.absent.items():
        delivered = sum(history.messages[number][0] == node for number in history.unoriginated)
        owed = sum(
            node in stays[0].members and _has_safe(stays)
            for stays in history.installs.values()
            if history.safe_binds_members
        )
        if not delivered and not owed:
            continue
        sentence = (
            f"node {node} is a member of {a_configuration(stay)} and has no row: others delivered "
            f"{delivered:,} of its messages, and safe ones in {owed:,} of its configurations, which cannot "
            "be judged without its rows. Add its files to the trace."
        )
        found.append(Violation("members-traced", (node,), (), (stay.id,), sentence))
    return found


def _has_safe(stays: Iterable[Stay]) -> bool:
    return any(row[GUARANTEE] == "safe" for stay in stays for row in stay.deliveries)


def config_ends(history: History) -> list[Violation]:
    """000 §4.1, "Termination", and §6.1: a change names what it ends, and the place at which it ended.

    For an install that follows another in the same life:

    1. it names the configuration that its node was in;
    2. the place is that of the last message that was delivered before the change, in the order of the regular
       configuration that ends or has ended: no delivery in what ended lies beyond it, and one lies at it,
       unless it is 0 and there was none;
    3. what is delivered of that order in the configuration that it begins lies beyond it;
    4. all who go from one configuration to the same next one name the same place: they "deliver the same
       Configuration Change message", of which the place is a part (Configuration Change Consistency).

    The first install of a life ends nothing. A life of which no install names anything was written by a
    version that did not, and is not judged. Where rows are missing (`History.whole`), 2 asks for no message
    at the place, and a node's first install may be a later one.
    """
    return ends_misnamed(history, Stay.places)


def ends_misnamed(history: History, places: Places) -> list[Violation]:
    """Changes that misname what they end, where messages are elsewhere: `places` tells what was delivered in
    a stay."""
    naming = {(stay.node, stay.incarnation) for stay in history.all_stays() if stay.ended is not None}
    together: dict[tuple[ConfigurationId, ConfigurationId], tuple[Stay, int]] = {}
    found = []
    for stay in history.all_stays():
        if (stay.node, stay.incarnation) not in naming:
            continue
        before, ended = stay.previous, stay.ended
        first = history.whole and (stay.node, stay.incarnation) not in history.begun
        wrong = _wrong_end(stay, places, history.whole, first)
        if wrong is not None:
            sentence = f"node {stay.node} installed {a_configuration(stay)} {wrong}"
            found.append(_violation("config-ends", sentence, *([before] if before else []), stay))
        if before is None or ended is None:
            continue
        other, place = together.setdefault((before.id, stay.id), (stay, ended.place))
        if place != ended.place:
            sentence = (
                f"nodes {other.node} and {stay.node} both went from {before.id} to {stay.id}; node "
                f"{other.node} says that {before.id} ended at place {place} of its order, and node "
                f"{stay.node} at {ended.place}."
            )
            found.append(_violation("config-ends", sentence, other, before, stay))
    return found


def _wrong_end(stay: Stay, places: Places, whole: bool, first: bool) -> str | None:
    """What is wrong with what an install says that it ends, if something is.

    `first` says that a stay that follows none is the first one of its life.
    """
    before, ended = stay.previous, stay.ended
    if before is None:
        return f"to end {ended}: it is the first of its life." if ended is not None and first else None
    if ended is None:
        return f"after {before.id}, without a word of where that ended."
    if ended.configuration != before.id:
        return f"to end {ended}: it was in {before.id}."
    last = _last_place(before, places)
    if ended.place < last:
        return f"to end {ended}: it had delivered a message at place {last} before."
    if ended.place > last and whole:
        return f"to end {ended}: the last message that it had delivered before is at place {last}."
    following = None if stay.regular or not ended.place else places(stay)
    if following is not None and following[0] <= ended.place:
        return f"to end {ended}, and delivered a message at place {following[0]} in it."
    return None


def _last_place(stay: Stay, places: Places) -> int:
    """The place of the last message delivered up to the end of a stay, in its regular one's order."""
    found = places(stay)
    if found is not None:
        return found[1]
    before = stay.previous
    return 0 if stay.regular or before is None or not before.regular else _last_place(before, places)


def _violation(code: str, sentence: str, *stays: Stay) -> Violation:
    nodes = tuple(dict.fromkeys(stay.node for stay in stays))
    return Violation(code, nodes, (), tuple(dict.fromkeys(stay.id for stay in stays)), sentence)

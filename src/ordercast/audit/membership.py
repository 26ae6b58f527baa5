"""What must hold of configurations alone (000 §4.1)."""

from __future__ import annotations

from ordercast.audit.explain import Violation, a_configuration, members
from ordercast.audit.history import History, Stay
from ordercast.core.identity import ConfigurationId, NodeId


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


def _violation(code: str, sentence: str, *stays: Stay) -> Violation:
    nodes = tuple(dict.fromkeys(stay.node for stay in stays))
    return Violation(code, nodes, (), tuple(dict.fromkeys(stay.id for stay in stays)), sentence)

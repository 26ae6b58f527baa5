"""What of keys and elements stays when the histories of several partitions are merged.

Each has the identifier of the command that put it there (`Replicated.call_id`). A history that has this
command, or a later one of its caller, and has no such key, has taken it away; one that does not have the
command has never seen it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from ordercast.replicated.command import CallId
from ordercast.replicated.replicated import Replicated

K = TypeVar("K")


class Put(NamedTuple):
    """Where a key is found."""

    state: int
    """Which of the states has it so."""
    by: CallId


def survivors(states: Sequence[Replicated], puts: Sequence[Mapping[K, CallId]]) -> dict[K, list[Put]]:
    """The keys that stay, in the order in which they are found, and as what: there is a choice where several
    partitions have put the key. `puts`: of each state, by what command each key was put."""
    found: dict[K, list[Put]] = {}
    for at, own in enumerate(puts):
        for key, by in own.items():
            if any(key not in other and states[of].knows(by) for of, other in enumerate(puts)):
                continue  # it was taken away
            known = found.setdefault(key, [])
            if all(by != each.by for each in known):
                known.append(Put(at, by))
    for choice in found.values():
        latest = [
            each
            for each in choice
            if not any(
                states[other.state].knows(each.by) and not states[each.state].knows(other.by)
                for other in choice
            )
        ]
        choice[:] = latest or choice
    return found

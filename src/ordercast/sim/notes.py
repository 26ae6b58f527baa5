"""The faults of a run in words and with their times, for whoever draws or tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from ordercast.core.identity import NodeId
from ordercast.sim.faults import IT, At, Fault, When, action_text
from ordercast.sim.world import Change

Note = tuple[int, str]
"""When, and what."""


def notes(faults: Iterable[Fault], changes: Iterable[Change]) -> list[Note]:
    """When which faults happened, those of one instant together.

    A fault that waits for a change of state is looked up among `changes`.
    """
    known = tuple(changes)
    each = sorted((note for fault in faults for note in _note(fault, known)), key=itemgetter(0))
    return [
        (when_us, ", ".join(text for _, text in together))
        for when_us, together in groupby(each, key=itemgetter(0))
    ]


def _note(fault: Fault, changes: tuple[Change, ...]) -> Iterator[Note]:
    if isinstance(fault, At):
        yield fault.at_us, action_text(fault.do)
        return
    change = _trigger(fault, changes)
    if change is None:
        return
    when_us = change.time_us + fault.delay_us
    if fault.before_us is None or when_us < fault.before_us:
        entered = change.node

        def name(node: NodeId) -> str:
            return str(entered if node == IT else node)

        yield when_us, f"{action_text(fault.do, name)} ({entered} entered {fault.state})"


def _trigger(fault: When, changes: tuple[Change, ...]) -> Change | None:
    """The change of state that a fault waits for, if it came."""
    fitting = [
        change for change in changes if change.state == fault.state and fault.node in (None, change.node)
    ]
    return fitting[fault.nth - 1] if len(fitting) >= fault.nth else None

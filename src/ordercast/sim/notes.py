"""The faults of a run in words and with their times, for whoever draws or tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from ordercast.core.identity import NodeId
from ordercast.sim.faults import IT, At, Fault, When, action_text
from ordercast.sim.world import Change
from ordercast.trace.columns import EVENT, NODE, PACKET, TIME_US
from ordercast.trace.schema import Row

Note = tuple[int, str]
"""When, and what."""


def notes(faults: Iterable[Fault], changes: Iterable[Change], rows: Iterable[Row] = ()) -> list[Note]:
    """When which faults happened, those of one instant together.

    A fault that waits for a change of state is looked up among `changes`, one that waits for a packet among
    the packets that `rows` tell of.
    """
    sent = [
        Change(row[TIME_US], row[NODE], str(row[PACKET]), "") for row in rows if row[EVENT] == "packet_sent"
    ]
    known = {"enters": tuple(changes), "sends": sent}
    each = sorted((note for fault in faults for note in _note(fault, known)), key=itemgetter(0))
    return [
        (when_us, ", ".join(text for _, text in together))
        for when_us, together in groupby(each, key=itemgetter(0))
    ]


def _note(fault: Fault, known: Mapping[str, Sequence[Change]]) -> Iterator[Note]:
    if isinstance(fault, At):
        yield fault.at_us, action_text(fault.do)
        return
    change = _trigger(fault, known[fault.event])
    if change is None:
        return
    when_us = change.time_us + fault.delay_us
    if fault.before_us is None or when_us < fault.before_us:
        who = change.node
        did = "entered" if fault.event == "enters" else "sent"

        def name(node: NodeId) -> str:
            return str(who if node == IT else node)

        yield when_us, f"{action_text(fault.do, name)} ({who} {did} {fault.state})"


def _trigger(fault: When, changes: Sequence[Change]) -> Change | None:
    """What a fault waits for, if it came."""
    fitting = [
        change for change in changes if change.state == fault.state and fault.node in (None, change.node)
    ]
    return fitting[fault.nth - 1] if len(fitting) >= fault.nth else None

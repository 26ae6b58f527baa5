"""What processes do and are told, as the columns of a trace from ``members`` to ``packet``.

`ordercast.trace.schema.GROUP_EVENTS` says what they mean; `Recorder.group_event` makes rows of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ordercast.core.identity import GROUPS_BETWEEN
from ordercast.process_groups.views import Declared, Installed, Left, Numbered, Output, Recounted, Unheard

Message: TypeAlias = tuple[
    int | None, int | None, int | None, int | None, int | None, int | None, int | None, str | None
]
Columns: TypeAlias = tuple[str, tuple[int, ...] | None, Message, str | None, int | None, str | None]
"""The event, ``members``, ``origin`` to ``guarantee``, ``group``, ``size``, ``packet``."""


def of_process(event: str, process: int, group: str | None, words: str | None = None) -> Columns:
    """A process, by number, does something (``group_join``, ``group_leave``, ``process_end``), or leaves."""
    return event, None, (None, None, process, None, None, None, None, None), group, None, words


def of_output(output: Output) -> Iterator[Columns]:
    """Processes are told something: a row for each of them, or for each message."""
    if isinstance(output, Installed):
        view = output.view
        members = tuple(part for member in view.members for part in member.process)
        (seq, rep), number, part = view.id
        node, life = part or (None, None)
        for process in output.to:
            columns = (node, life, process, seq, rep, number, None, None)
            yield "group_view", members, columns, view.group, None, str(view.cause)
    elif isinstance(output, Left):
        yield of_process("group_left", output.process, output.group, str(output.cause))
    elif not isinstance(output, Unheard | Numbered | Recounted | Declared):
        groups, batch = GROUPS_BETWEEN.join(output.groups), output.batch
        level = str(batch.guarantee.value)
        words = output.queue
        if words is not None and output.again is not None:
            words += GROUPS_BETWEEN + ".".join(map(str, output.again))
        for at, body in enumerate(batch.payloads):
            message = (batch.origin, batch.incarnation, batch.number + at)
            place = (*message, *batch.configuration, batch.seq, batch.slot + at, level)
            yield "group_deliver", output.to, place, groups, len(body), words

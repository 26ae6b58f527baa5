"""What a client publishes, as it is handed to the node: messages of one kind go together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ordercast.clients.parser import Operation, Publish
from ordercast.core.headers import write_head
from ordercast.core.identity import Guarantee

RUN_BYTES = 64 * 1024
"""Bytes of messages that are handed to the node together."""


class Run(NamedTuple):
    """Messages of one kind."""

    groups: tuple[str, ...]
    payloads: list[bytes]
    guarantee: Guarantee
    heads: list[bytes] | None
    """What is said beside each; None if nothing is beside any."""


def first_run(first: Publish, operations: Iterable[Operation], guarantee: Guarantee) -> Run:
    """The messages that come first among operations, as many as are of one kind; `first` is one of them."""
    subject = first.subject
    headed = first.reply is not None or first.headers > 0
    payloads: list[bytes] = []
    heads: list[bytes] = []
    size = 0
    for each in operations:
        if (
            not isinstance(each, Publish)
            or each.subject != subject
            or (each.reply is not None or each.headers > 0) != headed
            or (each.reply is None) != (first.reply is None)
            or size > RUN_BYTES
            or (payloads and each.headers and guarantee is Guarantee.SAFE)
        ):
            break
        payload = each.payload
        size += len(payload)
        if headed:
            heads.append(write_head(each.reply, payload[: each.headers]))
            payload = payload[each.headers :]
        payloads.append(payload)
    return Run((subject,), payloads, guarantee, heads if headed else None)

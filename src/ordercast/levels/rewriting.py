"""A packet with something in it changed, as `ordercast.sequencers.rewriting`, and those between levels."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from ordercast.levels.packets import FIRST_LEVEL_KIND, decode, encode_body
from ordercast.sequencers.rewriting import Carried
from ordercast.sequencers.rewriting import rewrite as rewrite_of_ring
from ordercast.viewsync.header import header, read_header


def rewrite(data: bytes, change: Callable[[Any], Any]) -> bytes:
    """The packet as `change` leaves it; raises what `ordercast.sequencers.rewriting.rewrite` does."""
    head = read_header(data)
    if head.kind < FIRST_LEVEL_KIND:
        return rewrite_of_ring(data, change)
    packet = decode(data)
    kind = type(packet)
    fields = namedtuple(kind.__name__, kind.__struct_fields__)  # type: ignore[misc]
    values = fields(*(getattr(packet, name) for name in kind.__struct_fields__))
    changed: Carried = change(Carried(head, values))
    return header(*changed.header) + encode_body(kind(*changed.packet))

"""What every packet of the family begins with: its kind, the view it belongs to, and who sent it."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.wire import MAX_PACKET, Malformed, check_count, check_node, kind_of, prefix

_HEADER = struct.Struct("<4sqiii")
HEADER_SIZE = _HEADER.size
NO_VIEW = ConfigurationId(0, 0)
"""Stands in for the view in packets of a node that is in none."""
FIRST_ORDER_KIND = 64
"""Kinds from here on are the orderer's."""


class Header(NamedTuple):
    """What every packet of the family begins with."""

    kind: int
    view: ConfigurationId
    sender: NodeId
    incarnation: int


def header(kind: int, view: ConfigurationId, sender: NodeId, incarnation: int) -> bytes:
    """The beginning of a packet."""
    return _HEADER.pack(prefix(kind), view.seq, view.rep, sender, incarnation)


def read_header(data: bytes) -> Header:
    """The beginning of a packet, or why it is none."""
    if len(data) > MAX_PACKET:
        raise Malformed("too long")
    return _read(data[:HEADER_SIZE])


@lru_cache(maxsize=4096)  # a member's packets of one kind and view all begin alike
def _read(beginning: bytes) -> Header:
    kind = kind_of(beginning)
    if len(beginning) < HEADER_SIZE:
        raise Malformed("too short")
    _, seq, rep, sender, incarnation = _HEADER.unpack(beginning)
    if (seq, rep) != NO_VIEW:
        check_count(seq, 1)
        check_node(rep)
    return Header(kind, ConfigurationId(seq, rep), check_node(sender), check_count(incarnation))

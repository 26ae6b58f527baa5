"""The end of a view: what one member tells of its order, and what all make of what they told together.

All who go on to the next view hold the same union of items, and what they do with it depends on nothing else:
first what has a place, up to the first gap; then everything else, packet by packet, in the order of sender
and lsn. So they deliver the same messages in the same order before the view ends (004 Figs 29 to 32), and
whatever one of them had broadcast is among them.
"""

from __future__ import annotations

import struct

from ordercast.core.contract import Effect
from ordercast.core.identity import NodeId
from ordercast.core.wire import Malformed
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import NOBODY, MessageKey, Msg, Placed, decode_body
from ordercast.viewsync.contract import Items, Settled, Stream, Unsettled

MESSAGES, PLACES = 1, 2
"""Kinds of stream: a member's packets by lsn; and, by place, what is there."""
ORDER = Stream(PLACES, NOBODY, 0)

_PLACED = struct.Struct("<iqi")


def unsettled(order: Order) -> Unsettled:
    """What a member may lack of a view's order."""
    items: dict[Stream, dict[int, bytes]] = {}
    if order.places:
        items[ORDER] = {place: _PLACED.pack(*placed) for place, placed in sorted(order.places.items())}
    for key in sorted(order.BUF):
        stream = items.setdefault(Stream(MESSAGES, key[0], order.incarnations[key[0]]), {})
        stream[key[1]] = order.BUF[key].body
    return Unsettled(order.floor, order.hgsn, items)


def settle(order: Order, settled: Settled, effects: list[Effect]) -> bool:
    """Deliver in the old view what is left of it. False if what others had reached cannot be had here.

    Then nothing behind the gap is delivered: the others deliver it later in their order.
    """
    told = _messages(order, settled.items)
    places = _places(settled.items)
    sequenced = _delivered(order)
    reached = order.delivered
    while (placed := places.get(reached + 1) or _own(order, reached + 1, settled.upto)) is not None:
        key = node, lsn = placed.node, placed.lsn
        if node != NOBODY and lsn > sequenced.get(node, lsn):
            msg = told.get(key) or order.BUF.get(key)
            if lsn != sequenced[node] + 1 or msg is None:
                break
            sequenced[node] = lsn
            order.hand_over(reached + 1, msg, effects)
        reached += 1
    if reached < settled.upto:
        return False
    for node, lsn in sorted(told):
        if lsn == sequenced[node] + 1:
            sequenced[node] = lsn
            reached += 1
            order.hand_over(reached, told[node, lsn], effects)
    return True


def _delivered(order: Order) -> dict[NodeId, int]:
    """The lsn of each member's last message that was delivered here."""
    sequenced = dict(order.sequenced)
    for place in range(order.hgsn, order.delivered, -1):
        node, lsn, _ = order.places[place]
        if node != NOBODY:
            sequenced[node] = lsn - 1
    return sequenced


def _own(order: Order, place: int, upto: int) -> Placed | None:
    """What this member knows of a place that nobody needed to be told of."""
    return order.places.get(place) if place <= upto else None


def _places(items: Items) -> dict[int, Placed]:
    """What is in each place."""
    told = items.get(ORDER, {}).items()
    return {place: Placed(*_PLACED.unpack(data)) for place, data in told if len(data) == _PLACED.size}


def _messages(order: Order, items: Items) -> dict[MessageKey, Msg]:
    """The messages that members told of. What cannot be read is left out, at all members alike."""
    messages: dict[MessageKey, Msg] = {}
    for stream, packets in items.items():
        if stream.kind == MESSAGES and order.incarnations.get(stream.node) == stream.incarnation:
            for lsn, data in packets.items():
                key = (stream.node, lsn)
                msg = order.BUF.get(key) or _read(data)
                if msg is not None and msg.key == key:
                    messages[key] = msg
    return messages


def _read(data: bytes) -> Msg | None:
    try:
        return decode_body(data, 0)
    except Malformed:
        return None

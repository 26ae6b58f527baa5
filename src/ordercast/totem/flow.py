"""Flow control (000 §8): how many packets this node may broadcast at this visit of the token."""

from __future__ import annotations

from ordercast.totem.config import TotemConfig
from ordercast.totem.packets import Token


class FlowControl:
    """One node's account with the token's `fcc` and `backlog` fields.

    Departures from 000 §8.2, because its rules let whoever holds the window keep it, while the last on the
    ring sends nothing (docs/decisions/flow-control.md):

    - `backlog` sums what waited when the token *arrived* at each node, the demand, instead of what was
      left when it departed: a node that sends all it has is still seen to want its share;
    - every member has one packet of the window for itself, and only the rest is shared by demand;
    - retransmissions count towards the window, but not towards the share of who happens to answer.
    """

    def __init__(self, config: TotemConfig, members: int) -> None:
        self._window_size = config.window_size
        self._max_messages = config.max_messages
        self._max_outstanding = config.max_outstanding
        self._members = members
        self._shared = max(0, config.window_size - members)
        self._trc = 0
        """Packets broadcast on the last visit (my_trc of the last rotation)."""
        self._pbl = 0
        """Packets that waited when the token came last (my_pbl)."""

    def retransmissions(self, token: Token) -> int:
        """How many requests may be answered now: they count towards the window, but one always may."""
        return max(1, min(self._max_messages, self._window_size - (token.fcc - self._trc)))

    def new_packets(self, token: Token, retransmitted: int, tbl: int) -> int:
        """How many new packets may be broadcast now; about ``tbl`` wait (000 §8.2, the three constraints).

        A fourth keeps buffers bounded: while some member lags, so that `seq` is far ahead of `aru`, the room
        that is left is shared by all.
        """
        if tbl == 0:
            return 0
        room = self._max_outstanding - (token.seq - token.aru)
        if room <= 0:
            return 0
        demand = max(tbl, token.backlog + tbl - self._pbl)
        share = 1 + self._shared * tbl // demand
        window = self._window_size - (token.fcc - self._trc)
        return max(
            0,
            min(
                self._max_messages - retransmitted,
                window - retransmitted,
                share,
                max(1, room // self._members),
            ),
        )

    def settle(self, token: Token, broadcast: int, tbl: int) -> None:
        """Enter this visit's packets and demand into the token in place of the last visit's."""
        if broadcast != self._trc:
            token.fcc = max(0, token.fcc - self._trc + broadcast)
            self._trc = broadcast
        if tbl != self._pbl:
            token.backlog = max(0, token.backlog - self._pbl + tbl)
            self._pbl = tbl

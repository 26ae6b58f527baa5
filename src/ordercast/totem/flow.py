"""Flow control (000 §8): how many packets this node may broadcast at this visit of the token."""

from __future__ import annotations

from ordercast.totem.config import TotemConfig
from ordercast.totem.packets import Token


class FlowControl:
    """One node's account with the token's `fcc` and `backlog` fields."""

    def __init__(self, config: TotemConfig) -> None:
        self._window_size = config.window_size
        self._max_messages = config.max_messages
        self._max_outstanding = config.max_outstanding
        self._trc = 0
        """Packets broadcast on the last visit (my_trc of the last rotation)."""
        self._pbl = 0
        """Packets that waited when the token was forwarded last (my_pbl)."""

    def retransmissions(self) -> int:
        """How many requests may be answered at one visit."""
        return self._max_messages

    def new_packets(self, token: Token, retransmitted: int, tbl: int) -> int:
        """How many new packets may be broadcast now; ``tbl`` wait (000 §8.2, the three constraints).

        A fourth keeps buffers bounded: nothing new while `seq` is far ahead of `aru`.
        """
        if tbl == 0:
            return 0
        others = token.fcc - self._trc
        share = self._window_size * tbl // max(1, token.backlog + tbl - self._pbl)
        allowed = min(self._max_messages, self._window_size - others, max(1, share)) - retransmitted
        return max(0, min(allowed, tbl, self._max_outstanding - (token.seq - token.aru)))

    def settle(self, token: Token, broadcast: int, tbl: int) -> None:
        """Enter this visit's packets and the backlog that is left into the token."""
        token.fcc = max(0, token.fcc - self._trc + broadcast)
        token.backlog = max(0, token.backlog - self._pbl + tbl)
        self._trc = broadcast
        self._pbl = tbl

"""Flow control (000 §8): how much this node may broadcast at this visit of the token.

Everything is counted in datagrams, which is what fills input buffers: a packet of several counts as several.
"""

from __future__ import annotations

from ordercast.totem.config import TotemConfig
from ordercast.totem.limits import Limits
from ordercast.totem.packets import Token


class FlowControl:
    """One node's account with the token's `fcc`, `backlog` and `entitled` fields.

    Departures from 000 §8.2, whose share by backlog leaves whoever holds the window in possession of it, or
    makes all pause in turn (docs/decisions/flow-control.md):

    - `backlog` sums what waited when the token *arrived* at each node, the demand, instead of what was
      left when it departed: a node that sends all it has is still seen to want its share;
    - every member is entitled to an equal part of the window; what some of them leave of theirs is shared
      among those who want more, by how much more they want: so none of the window is left unused;
    - retransmissions count towards the window, but not towards the share of who happens to answer.
    """

    def __init__(self, config: TotemConfig, members: int, limits: Limits) -> None:
        """`limits` are the smallest that any member has."""
        held = limits.datagrams
        # Between two visits a member's input buffer takes what the others broadcast in a rotation, and what
        # they had yet to send behind the token when it was last emptied. With these parts of the buffer,
        # each member may send its equal part of the window late, all of it.
        self.accelerated = min(config.accelerated_window, held // (2 * members - 1))
        """Datagrams that may leave behind the token."""
        late = (members - 1) * self.accelerated
        self.window = max(members, min(config.window_size, held - late))
        """Datagrams that all members together may broadcast in a rotation."""
        self._max_messages = config.max_messages
        self._max_outstanding = config.max_outstanding
        self._members = members
        self._equal = self.window // members
        self._trc = 0
        """Broadcast on the last visit (my_trc of the last rotation)."""
        self._pbl = 0
        """What waited when the token came last (my_pbl)."""

    def retransmissions(self, token: Token) -> int:
        """How much may be sent again now: it counts towards the window, but one datagram always may."""
        return max(1, min(self._max_messages, self.window - (token.fcc - self._trc)))

    def new_packets(self, token: Token) -> int:
        """How many new *packets* may be numbered now, to keep what everybody has to keep bounded.

        While some member lags, so that `seq` is far ahead of `aru`, the room that is left is shared by all.
        """
        room = self._max_outstanding - (token.seq - token.aru)
        return max(1, room // self._members) if room > 0 else 0

    def new_datagrams(self, token: Token, retransmitted: int, tbl: int) -> int:
        """How many new datagrams may be broadcast now; about ``tbl`` wait (000 §8.2, the three
        constraints)."""
        if tbl == 0:
            return 0
        window = self.window - (token.fcc - self._trc)
        return max(
            0, min(self._max_messages, window, retransmitted + self._share(token, tbl)) - retransmitted
        )

    def _share(self, token: Token, tbl: int) -> int:
        """Packets of the window that this node may send: its share by demand."""
        demand = max(tbl, token.backlog + tbl - self._pbl)
        if demand <= self.window:
            return tbl
        mine = min(tbl, self._equal)
        entitled = max(mine, token.entitled + mine - min(self._pbl, self._equal))
        if mine == tbl:
            return mine
        left = max(0, self.window - entitled)
        return mine + left * (tbl - mine) // max(1, tbl - mine, demand - entitled)

    def recount(self, token: Token) -> None:
        """Nobody has broadcast anything for a rotation, though all could: what the token says of others is 0.

        Each member only ever enters how its own part has changed: a wrong sum, once on the token, would stay.
        """
        token.fcc = min(token.fcc, self._trc)
        token.backlog = min(token.backlog, self._pbl)
        token.entitled = min(token.entitled, self._pbl, self._equal)

    def settle(self, token: Token, broadcast: int, tbl: int) -> None:
        """Enter this visit's datagrams and demand into the token in place of the last visit's."""
        if broadcast != self._trc:
            token.fcc = max(0, token.fcc - self._trc + broadcast)
            self._trc = broadcast
        if tbl != self._pbl:
            equal = self._equal
            token.backlog = max(0, token.backlog - self._pbl + tbl)
            token.entitled = max(0, token.entitled - min(self._pbl, equal) + min(tbl, equal))
            self._pbl = tbl

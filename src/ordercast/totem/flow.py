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
        """Broadcast on the last visit (my_trc of the last rotation); of several visits in a cycle, on the one
        a cycle ago."""
        self._other = self._other_fresh = 0
        """Broadcast on the others of the last cycle, in all and of new datagrams."""
        self._visits: list[tuple[int, int, bool]] = []
        """Of each visit in a cycle, both numbers, and whether the window was full when the token left, where
        there are several."""
        self._other_full = False
        self._visit = self._carried = 0
        self._pbl = 0
        """What waited when the token came last (my_pbl)."""
        self._left_full = False
        """The whole window was broadcast in the rotation before the token left here last."""

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
        earlier = self._other_fresh
        window = self.window - (token.fcc - self._trc)
        return max(
            0,
            min(self._max_messages, window, retransmitted + self._share(token, earlier + tbl) - earlier)
            - retransmitted,
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
        """Nobody has broadcast anything since this node forwarded the token last.

        Each member only ever enters how its own part has changed: a wrong sum, once on the token, would stay.
        So what the others broadcast was 0; and they want nothing, unless the window was full when the token
        left here, so that they could not.
        """
        token.fcc = min(token.fcc, self._trc + self._other)
        if not (self._left_full or self._other_full):
            token.backlog = min(token.backlog, self._pbl)
            token.entitled = min(token.entitled, self._pbl, self._equal)

    def begin_cycle(self, visits: int) -> None:
        """From this visit on, the token visits this node so often in a cycle.

        What it broadcast in the last cycle counts until a whole one of the new kind has passed.
        """
        self._carried = self._trc + self._other
        self._visits = [(0, 0, False)] * visits
        self._trc = self._other = self._other_fresh = self._visit = 0
        self._other_full = self._left_full

    def begin_visit(self, number: int) -> None:
        """The token is here for that visit of a cycle."""
        self._visit = number
        self._trc = self._visits[number][0]
        rest = self._visits[:number] + self._visits[number + 1 :]
        self._other = sum(broadcast for broadcast, _, _ in rest)
        self._other_fresh = sum(fresh for _, fresh, _ in rest)
        self._other_full = any(full for _, _, full in rest)

    def settle(self, token: Token, broadcast: int, tbl: int, fresh: int = 0) -> None:
        """Enter this visit's datagrams and demand into the token in place of the last visit's.

        Of several visits in a cycle, in place of the one a cycle ago; and the `fresh` datagrams of the others
        were demanded in this cycle, too.
        """
        tbl += self._other_fresh
        if broadcast != self._trc:
            token.fcc = max(0, token.fcc - self._trc + broadcast)
            self._trc = broadcast
        if tbl != self._pbl:
            equal = self._equal
            token.backlog = max(0, token.backlog - self._pbl + tbl)
            token.entitled = max(0, token.entitled - min(self._pbl, equal) + min(tbl, equal))
            self._pbl = tbl
        self._left_full = token.fcc >= self.window
        if self._visits:
            self._trc += self._carried
            self._carried = 0
            self._visits[self._visit] = (self._trc, fresh, self._left_full)

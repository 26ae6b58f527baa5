"""Timeouts and windows of a Totem ring: one validated object, the same at every member."""

from __future__ import annotations

import msgspec

from ordercast.core.settings import check_settings
from ordercast.core.wire import MAX_PACKET
from ordercast.totem.limits import LEAST_DATAGRAM, Limits
from ordercast.totem.packets import (
    DATA_HEADER,
    MAX_MEMBERS,
    MAX_REQUESTS,
    RECOVERED_HEADER,
)
from ordercast.totem.visits import Rule


class TotemConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every field has a default that suits a local network; times are microseconds.

    Wrong combinations raise `ValueError` with what to change.
    """

    token_loss_us: int = 200_000
    """Without a token for this long, the ring is given up and a new one formed (000 §6.2.1). Longer, up to
    ten times as long, on a ring whose members let the token wait, and where packets are being lost."""

    token_retransmission_us: int = 30_000
    """Without a sign that the token moved on, it is sent again (000 §5.2): after this long at most, and
    sooner on a ring where such signs come sooner."""

    least_retransmission_us: int = 30_000
    """The token is never sent again sooner than this."""

    forming_loss_us: int = 0
    """How long the token may stay away while a ring is being formed, when nobody knows yet how slow its
    members are; 0: as long as on a formed ring (`token_loss_us`)."""

    round_trip_us: int = 0
    """The round trip that the timeouts are made for. Where longer ones are measured, the timeouts are longer
    by as many of the difference as each one has to outlast; see `profile`."""

    join_us: int = 1_500
    """How often a Join is repeated while a ring is being formed (000 §6.2.1)."""

    consensus_us: int = 4_000
    """Who has not agreed on the membership by then is regarded as failed (000 §6.2.1)."""

    consensus_member_us: int = 500
    """Added to that for every node considered: each one's Join has to be heard by all."""

    fail_to_receive: int = 50
    """Token visits without progress of `aru` after which who holds it up is excluded (000 §6.2.2), if these
    took longer than the Token Loss timeout too: while packets are being lost, but some arrive, nobody is."""

    max_attempts: int = 3
    """Failed attempts at one membership before a further failure is forced (000 §6.2.2, termination)."""

    window_size: int = 128
    """Datagrams that all members together may broadcast in one token rotation (000 §8.1): fewer where the
    smallest `input_buffer` of the ring holds fewer. A packet counts as the datagrams that carry it. Each
    member may always answer one request, when it is full, too."""

    max_messages: int = 128
    """Datagrams that one member may broadcast in one visit of the token (000 §8.1). Members may differ in
    it."""

    visits: Rule = "equal"
    """How often the token visits members that send more than others, where this node represents the ring:
    `equal`, all once in a rotation; `square-root`, in proportion to the square root of the rate at which
    each broadcasts, by which messages wait least for the token (000 §8); `proportional` to that rate, to
    compare. Safe delivery waits for the longer cycles. Rings of one or two, and those whose members send
    alike, have none."""

    visits_us: int = 1_000_000
    """Over how long those rates are measured, after which the order of visits may change."""

    input_buffer: int = 1024 * 1024
    """Bytes that the input buffer of this node holds. All members tell theirs when a ring is formed, and the
    smallest one limits what they broadcast in a rotation: it cannot overflow (000 §8)."""

    datagram_size: int = 1_400
    """Bytes of a packet that the network carries in one datagram. What is larger travels in several, and is
    sent again in parts of this size."""

    max_outstanding: int = 1024
    """Packets that may be broadcast beyond `aru`: bounds what every member keeps for retransmission."""

    max_requests: int = 128
    """Most retransmission requests on a token."""

    eager_requests: bool = False
    """Ask for a gap at the first token that shows it, as the paper does; else only at the second, when a
    late packet has had a whole rotation to arrive (no storms of needless retransmissions). An accelerated
    ring never asks eagerly: there packets behind the token are no gap."""

    accelerated_window: int = 0
    """Datagrams a member may send after it has passed the token on; 0 is the paper's protocol. Fewer where
    the smallest input buffer of the ring would not hold them beside a window."""

    idle_rotations: int = 3
    """Rotations with nothing new, once all know that all have everything, after which the representative
    holds the token; see `hold_us`. While it alone sends, it holds it at once."""

    hold_us: int = 10_000
    """How long it holds it before the next rotation of an idle ring; 0 turns holding off."""

    long_hold_us: int = 0
    """How long it holds it instead, if that is longer, once the ring has been idle for eight rotations. The
    token counts as lost later by the difference."""

    announce_us: int = 100_000
    """How often a ring shows itself to strangers, so that healed partitions find each other."""

    packet_size: int = 1_400
    """Largest packet of messages, in bytes. One that the network splits is lost with any of its parts, so
    packets are filled less while some are being lost, down to what any network carries whole. Tokens are
    smaller, except a Commit token of more than twenty-five members, and one with very many requests."""

    packing: bool = True
    """Whether messages that are small share a packet; else each has its own (001 Fig. 6)."""

    max_message_size: int = 16 * 1024 * 1024
    """Largest application message, in bytes."""

    send_queue: int = 32 * 1024 * 1024
    """Bytes of accepted messages that may wait to be broadcast; beyond that the submitter waits."""

    max_members: int = 128
    """Most nodes in a ring; strangers beyond that are not let in."""

    def stretched(self, round_trip_us: int) -> TotemConfig:
        """The same, with timeouts that are long enough where a packet and its answer take so long.

        A rotation takes half a round trip a hop, so that ten members' takes five; consensus takes a round
        trip where all agree at once, and another for each change of mind.
        """

        def at_least(name: str, round_trips: float) -> int:
            own_us: int = getattr(self, name)
            slack_us = max(0, own_us - int(round_trips * self.round_trip_us))
            return max(own_us, slack_us // 2 + int(round_trips * round_trip_us))

        return msgspec.structs.replace(
            self,
            token_loss_us=at_least("token_loss_us", 8),
            forming_loss_us=at_least("forming_loss_us", 12) if self.forming_loss_us else 0,
            token_retransmission_us=at_least("token_retransmission_us", 6),
            join_us=at_least("join_us", 0.25),
            consensus_us=at_least("consensus_us", 3),
            announce_us=at_least("announce_us", 1),
        )

    @property
    def ring_limit(self) -> int:
        """Most nodes in a ring: every member has at least a datagram of the window for itself."""
        return min(self.max_members, self.window_size, max(1, self.limits.datagrams))

    @property
    def limits(self) -> Limits:
        """What the others must know of this node."""
        return Limits(self.input_buffer, self.packet_size, self.datagram_size)

    @property
    def forming_us(self) -> int:
        """How long the Commit token, and the token of a ring that is being recovered, may stay away."""
        return max(self.forming_loss_us, self.token_loss_us)

    @property
    def heard_us(self) -> int:
        """How long a stranger counts as heard after its last announcement."""
        return 3 * self.announce_us

    @property
    def chunk_space(self) -> int:
        """Bytes of a packet that are left for chunks, with room for the envelope of a recovery."""
        return self.packet_size - DATA_HEADER - RECOVERED_HEADER

    def __post_init__(self) -> None:
        check_settings(self, _MAY_BE_ZERO, _ORDER, _RANGES)


_MAY_BE_ZERO = {
    *("accelerated_window", "consensus_member_us", "eager_requests", "forming_loss_us", "hold_us"),
    *("long_hold_us", "packing", "round_trip_us"),
}
_ORDER = (
    (
        "token_retransmission_us",
        "token_loss_us",
        "a lost token should be sent again before the ring is given up",
    ),
    ("join_us", "consensus_us", "a lost Join should be repeated before its sender is regarded as failed"),
    ("hold_us", "token_retransmission_us", "a held token must not look like a lost one"),
    ("max_message_size", "send_queue", "the largest message has to fit into the queue"),
)
_RANGES = (
    ("packet_size", 256, MAX_PACKET),
    ("max_requests", 1, MAX_REQUESTS),
    ("max_members", 1, MAX_MEMBERS),
    ("datagram_size", LEAST_DATAGRAM, MAX_PACKET),
    ("input_buffer", LEAST_DATAGRAM, 2**31 - 1),
)

"""Timeouts and windows of the sequencer family: one validated object, the same at every member."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from ordercast.core.settings import check_settings
from ordercast.core.wire import MAX_PACKET
from ordercast.viewsync.parts import LEAST_DATAGRAM

Detection = Literal["heartbeats", "attempts", "adaptive"]


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every field has a default that suits a local network; times are microseconds.

    Wrong combinations raise `ValueError` with what to change.
    """

    # --- ordering

    resilience: int = 0
    """How many members must be known to have an agreed message before it is delivered (004 §3.2.2); 0 is a
    majority, which no minority that was cut off can contradict. 1 delivers at once."""

    window: int = 8
    """Packets of its own that a member may have on the way without knowing their places. CM and DTP keep to
    one (002 §4.2, "Flow control")."""

    batch: int = 64
    """Packets to which one acknowledgement may give places; 1 is the paper's CM (004 §3.3.1)."""

    max_unstable: int = 1_024
    """Places that may be given out beyond what all members have: bounds what each keeps."""

    silence_us: int = 100_000
    """How long who orders waits for something to order before the token moves on without (T in 002 §4.2)."""

    hurry_us: int = 500
    """The same while something is not yet known to be with all: nobody should wait for a whole silence."""

    retry_us: int = 20_000
    """Without an answer for this long, a packet is sent again."""

    lossy_retry_us: int = 20_000
    """The same while packets are being lost, if that is sooner. Less than an answer takes would send again
    what was not lost, too."""

    max_requests: int = 64
    """Most packets that are asked for at a time."""

    keep_bytes: int = 16 * 1024 * 1024
    """How much of what all in the token list have is kept for externals (004 §4.4.3)."""

    packet_size: int = 1_400
    """Largest packet of messages, in bytes. Less is put into one while packets are being lost."""

    datagram_size: int = 1_400
    """Bytes of a packet that the network carries in one datagram. What is larger travels in several, and is
    sent again in parts of this size."""

    max_message_size: int = 16 * 1024 * 1024
    """Largest application message, in bytes."""

    send_queue: int = 32 * 1024 * 1024
    """Bytes of accepted messages that may wait to be broadcast; beyond that the submitter waits."""

    # --- membership

    heartbeat_us: int = 20_000
    """How often a member that sends nothing else shows that it lives."""

    aggressive_us: int = 60_000
    """After this long without a sign of life, a member that is waited for is suspected (004 §4.1, active)."""

    conservative_us: int = 200_000
    """After this long without a sign of life, any member is suspected (004 §4.1, passive)."""

    detector: Detection = "heartbeats"
    """How failures are detected while messages are ordered. "heartbeats": who is silent for `aggressive_us`
    or `conservative_us` is suspected (004 §4.1, §5). "attempts", as in RBP and for 002 §2: whoever a member
    waits for is suspected after `attempts` in a row without an answer, and anybody if the token stands still
    (004 §3.2.1); heartbeats are no answer. "adaptive", as in RMP: the same, with more attempts for a member
    that needed more lately (004 §3.3.1)."""

    attempts: int = 3
    """How often in a row one thing is sent to a member, or asked of it, without an answer, until it is
    suspected (A in 002 §2). They are `retry_us` apart, or `lossy_retry_us`, each pause longer than the last;
    all pauses together have to be longer than an answer takes."""

    change_us: int = 10_000
    """How often what belongs to a change of view is sent again until the change is over."""

    round_us: int = 40_000
    """How long a coordinator has before the next one tries; each round has longer (004 §4.3.2, consensus)."""

    join_us: int = 20_000
    """How often a node that is in no view asks to be let in."""

    founders: int = 0
    """How many nodes must agree to begin a new group, this one among them; 0: this one begins none, and waits
    for others to let it in. Not set, a node follows from what it was told: without `seeds` and `peers` it is
    the first, and begins a group alone; with `peers`, or with `seeds` that its own address is among, more
    than half of those listed begin it; with `seeds` of others only, it joins theirs. Set by hand, it has to
    be more than half of all nodes that it is set for."""

    found_us: int = 100_000
    """How long a node looks for a group before it begins one."""

    max_members: int = 128
    """Most nodes in a view."""

    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset({"resilience", "keep_bytes", "founders"})
    ORDER: ClassVar[tuple[tuple[str, str, str], ...]] = (
        (
            "heartbeat_us",
            "aggressive_us",
            "a heartbeat that is lost should be followed by another in time",
        ),
        ("aggressive_us", "conservative_us", "who is waited for is suspected before who is not"),
        ("change_us", "round_us", "what a coordinator lost should be sent again before the next one tries"),
        ("max_message_size", "send_queue", "the largest message has to fit into the queue"),
    )
    RANGES: ClassVar[tuple[tuple[str, int, int], ...]] = (
        ("packet_size", 256, MAX_PACKET),
        ("datagram_size", LEAST_DATAGRAM, MAX_PACKET),
        ("resilience", 0, 7),
        ("max_requests", 1, 1024),
        ("max_members", 1, 1024),
    )

    def __post_init__(self) -> None:
        check_settings(self, self.MAY_BE_ZERO, self.ORDER, self.RANGES)


class ServerConfig(GroupConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a group whose Reformations are led by servers."""

    servers: tuple[int, ...] = ()
    """The nodes that lead Reformations, the first of them that is a member; then the next one. All nodes have
    to be told the same. Behind these, or without any, members stand in in the order of their identifiers."""

"""The membership's packets: what they hold and how they look on the wire.

| kind | from 004 | travels |
|---|---|---|
| `Heartbeat` | heartbeat of the failure detectors (§4.1); also shows the group to strangers | multicast |
| `Join` | join (§4.3.2): a node without a view asks to be let in | multicast |
| `Summary` | the unstable messages of Fig. 29 and 32, by name; the ack of Fig. 34 | multicast |
| `Fetch`, `Item` | the unstable messages themselves, for who lacks them | to one |
| `Collect`, `Estimate`, `Propose`, `Accepted` | consensus: phases 1 to 3 | multicast / to one in turns |
| `Decide` | consensus: the decision | multicast, and again to who seems to have missed it |
| `Refuse`, `Abort` | Reformation (§3.2.3): a vote "No"; the originator gives up | to one; multicast |
| `Excluded` | tells a life that it is in no view any more (§4.3.4) | to one |
| `Knock`, `Answer` | whether an older group that was heard of is there, and answers us | to one |
| `Part` | not in the papers: a part of a packet larger than a datagram (`parts`) | as the packet |

All begin with the family's header, whose view is the one that is being changed (`NO_VIEW` while a group is
being founded). `decode` is total: it returns a packet within bounds or raises `Malformed`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.wire import MAX_COUNT, Malformed, Reader, check_count, check_node
from ordercast.viewsync.contract import Stream
from ordercast.viewsync.header import HEADER_SIZE, NO_VIEW, Header

HEARTBEAT, JOIN, SUMMARY, FETCH, ITEM, COLLECT, ESTIMATE, PROPOSE, ACCEPTED, DECIDE = range(1, 11)
EXCLUDED, REFUSE, ABORT, KNOCK, ANSWER = range(11, 16)
ENDED = 17

MAX_RANGES = 2_000
"""Most ranges in a list of items: 42 KB of them."""
MAX_ITEMS = 100_000
"""Most items that one packet names."""
MAX_MEMBERS = 1_024
MAX_TURN = 2**31
"""No view has nearly as many token lists one after the other."""

_GROUP = struct.Struct("<qiI")
_JOIN = struct.Struct("<qiIqBqiI")
_HEARTBEAT = struct.Struct("<qiIIB")
_SUMMARY = struct.Struct("<IBqq")
_ROUND = struct.Struct("<Iqi")
_ROUND_ALONE = struct.Struct("<qi")
_ESTIMATE = struct.Struct("<Iqiqi")
_RANGE = struct.Struct("<BiiqI")
_ITEM = struct.Struct("<IBiiq")
_DECISION = struct.Struct("<BqiIqiIqH")
_LIFE = struct.Struct("<iiB")
_TURN = struct.Struct("<I")
_ENDED = struct.Struct("<Ii")
_EXCLUDED = struct.Struct("<qiIii")
_NONCE = struct.Struct("<Q")
_KNOCK = struct.Struct("<qiIQ")


class Group(NamedTuple):
    """A group's origin, by which its descendants know each other: when it was founded, and by whom."""

    founded_us: int
    founder: NodeId
    mark: int = 0
    """32 bits that the founder drew: if its clock was set back, two groups may have the rest in common."""


NO_GROUP = Group(0, 0)


class Round(NamedTuple):
    """A round of the consensus: its number, and who coordinates it."""

    attempt: int
    coordinator: NodeId


NO_ROUND = Round(0, 0)


class Range(NamedTuple):
    """Consecutive items of one stream."""

    stream: Stream
    first: int
    length: int


class Heartbeat(NamedTuple):
    """I live, in this view."""

    group: Group
    turn: int
    braking: bool


class Join(NamedTuple):
    """I am in no view; let me in."""

    group: Group
    """The group that this node was in last; none if in none yet."""
    last: int
    """The highest number of a view that any life of this node installed."""
    bound: bool
    """An earlier life was a member of that view, and its vote counts."""
    ended: Group = NO_GROUP
    """A group that is over: nobody was in its last view."""
    founds: bool = False
    """Whether the node would take part in founding a group."""


class Summary(NamedTuple):
    """The view is about to change; this is what I have."""

    turn: int
    full: bool
    """Members may change, not the token list alone."""
    later_life: bool
    """A later life of a member: it has a vote, and nothing else."""
    leaving: bool
    floor: int
    upto: int
    ranges: tuple[Range, ...]


class Fetch(NamedTuple):
    """Asks a member for packets of the old view."""

    turn: int
    ranges: tuple[Range, ...]


class Item(NamedTuple):
    """One packet of the old view, for a member that asked for it."""

    turn: int
    stream: Stream
    number: int
    data: bytes


class Collect(NamedTuple):
    """A coordinator begins a round."""

    turn: int
    round: Round


class Estimate(NamedTuple):
    """The answer: from now on I take part in no earlier round, and this is what I accepted last."""

    turn: int
    round: Round
    accepted: Round
    value: bytes


class Propose(NamedTuple):
    """What the coordinator of a round proposes."""

    turn: int
    round: Round
    value: bytes


class Accepted(NamedTuple):
    """I have adopted the round's proposal, and hold all that it names."""

    turn: int
    round: Round


class Decide(NamedTuple):
    """What was decided."""

    turn: int
    value: bytes


class Refuse(NamedTuple):
    """Vote "No" in a Reformation: I belong to another list."""

    turn: int
    round: Round
    """What is refused."""
    joined: Round
    """The list I belong to."""


class Abort(NamedTuple):
    """A Reformation is given up by its originator."""

    turn: int
    round: Round


class HasEnded(NamedTuple):
    """I was told that this member's process has ended."""

    turn: int
    node: NodeId


class Excluded(NamedTuple):
    """Tells a life that it is not in the group's view any more."""

    group: Group
    node: NodeId
    incarnation: int


class Knock(NamedTuple):
    """I am in this group, and heard that you are in an older one: are you?"""

    group: Group
    nonce: int
    """What an answer has to repeat: who did not get the question cannot give one."""


class Answer(NamedTuple):
    """I am in a view of this group, which is older than yours."""

    group: Group
    nonce: int


MembershipPacket: TypeAlias = (
    Heartbeat
    | Join
    | Summary
    | Fetch
    | Item
    | Collect
    | Estimate
    | Propose
    | Accepted
    | Decide
    | Excluded
    | Refuse
    | Abort
    | HasEnded
    | Knock
    | Answer
)


class Member(NamedTuple):
    """A member of a view that is being decided on."""

    node: NodeId
    incarnation: int
    core: bool


class Decision(NamedTuple):
    """What a consensus is about: the next view, and what is settled of this one (004 Fig. 29)."""

    full: bool
    """A new view; else the same one with another token list."""
    group: Group
    view: ConfigurationId
    turn: int
    members: tuple[Member, ...]
    """Empty: all have left, and the group is over."""
    site: NodeId
    """Who holds the token first."""
    upto: int
    ranges: tuple[Range, ...]


# --- encoding ----------------------------------------------------------------------------------


def _pack_ranges(ranges: Sequence[Range]) -> bytes:
    return struct.pack("<H", len(ranges)) + b"".join(
        _RANGE.pack(*stream, first, count) for stream, first, count in ranges
    )


def encode(packet: MembershipPacket) -> tuple[int, bytes]:
    """The kind of a packet, and what follows its header."""
    match packet:
        case Heartbeat(group, turn, braking):
            return HEARTBEAT, _HEARTBEAT.pack(*group, turn, braking)
        case Join(group, last, bound, ended, founds):
            return JOIN, _JOIN.pack(*group, last, bound | founds << 1, *ended)
        case Summary(turn, full, later_life, leaving, floor, upto, ranges):
            flags = full | later_life << 1 | leaving << 2
            return SUMMARY, _SUMMARY.pack(turn, flags, floor, upto) + _pack_ranges(ranges)
        case Fetch(turn, ranges):
            return FETCH, _TURN.pack(turn) + _pack_ranges(ranges)
        case Item(turn, stream, number, data):
            return ITEM, _ITEM.pack(turn, *stream, number) + data
        case Collect(turn, round_):
            return COLLECT, _ROUND.pack(turn, *round_)
        case Estimate(turn, round_, accepted, value):
            return ESTIMATE, _ESTIMATE.pack(turn, *round_, *accepted) + value
        case Propose(turn, round_, value):
            return PROPOSE, _ROUND.pack(turn, *round_) + value
        case Accepted(turn, round_):
            return ACCEPTED, _ROUND.pack(turn, *round_)
        case Decide(turn, value):
            return DECIDE, _TURN.pack(turn) + value
        case Refuse(turn, round_, joined):
            return REFUSE, _ESTIMATE.pack(turn, *round_, *joined)
        case Abort(turn, round_):
            return ABORT, _ROUND.pack(turn, *round_)
        case HasEnded(turn, node):
            return ENDED, _ENDED.pack(turn, node)
        case Excluded(group, node, incarnation):
            return EXCLUDED, _EXCLUDED.pack(*group, node, incarnation)
        case Knock(group, nonce):
            return KNOCK, _KNOCK.pack(*group, nonce)
        case Answer(group, nonce):
            return ANSWER, _KNOCK.pack(*group, nonce)


def encode_decision(decision: Decision) -> bytes:
    """A decision, as the consensus carries it."""
    full, group, view, turn, members, site, upto, ranges = decision
    return (
        _DECISION.pack(full, *group, *view, turn, upto, len(members))
        + b"".join(_LIFE.pack(*member) for member in members)
        + struct.pack("<i", site)
        + _pack_ranges(ranges)
    )


# --- decoding ----------------------------------------------------------------------------------


class _Body(Reader):
    """Reads what follows the header."""

    def __init__(self, data: bytes, at: int) -> None:
        super().__init__(data)
        self._at = at

    def some(self, form: struct.Struct) -> tuple[int, ...]:
        """The fields of a struct."""
        return self._take(form)

    def u64(self) -> int:
        """An unsigned 64-bit integer."""
        return self._take(_NONCE)[0]

    def group(self) -> Group:
        """A group, or none."""
        group = Group(*self._take(_GROUP))
        if group != NO_GROUP:
            check_count(group.founded_us)
            check_node(group.founder)
        return group

    def round(self) -> Round:
        """A round, or none."""
        attempt, coordinator = self._take(_ROUND_ALONE)
        if (attempt, coordinator) != NO_ROUND:
            check_count(attempt, 1)
            check_node(coordinator)
        return Round(attempt, coordinator)

    def turn(self) -> int:
        """Which of a view's token lists is meant."""
        return _check_turn(self.u32())

    def ranges(self) -> tuple[Range, ...]:
        """A counted list of ranges."""
        count = self.u16()
        if count > MAX_RANGES:
            raise Malformed("too many ranges")
        found = []
        total = 0
        for _ in range(count):
            kind, node, incarnation, first, length = self._take(_RANGE)
            total += length
            if node < 0 or not length or total > MAX_ITEMS or first + length > MAX_COUNT:
                raise Malformed("bad range")
            found.append(Range(Stream(kind, node, check_count(incarnation)), check_count(first, 1), length))
        return tuple(found)


def _check_turn(turn: int) -> int:
    if turn >= MAX_TURN:
        raise Malformed("bad number")
    return turn


def decode(header: Header, data: bytes) -> MembershipPacket:
    """The packet behind a header; raises `Malformed`."""
    if header.kind == HEARTBEAT:
        return _heartbeat(data[HEADER_SIZE:])
    reader = _DECODERS.get(header.kind)
    if reader is None:
        raise Malformed("unknown kind")
    body = _Body(data, HEADER_SIZE)
    packet = reader(body)
    body.end()
    return packet


@lru_cache(maxsize=1024)  # most packets of a quiet group are these, and a member's are all alike
def _heartbeat(data: bytes) -> Heartbeat:
    body = _Body(data, 0)
    group, turn, braking = body.group(), body.turn(), bool(body.u8())
    body.end()
    if group == NO_GROUP:
        raise Malformed("no group")
    return Heartbeat(group, turn, braking)


def _join(body: _Body) -> Join:
    group, last, flags, ended = body.group(), body.count(), body.u8(), body.group()
    return Join(group, last, bool(flags & 1), ended, bool(flags & 2))


def _summary(body: _Body) -> Summary:
    turn, flags, floor, upto = body.some(_SUMMARY)
    if check_count(floor) > check_count(upto):
        raise Malformed("bad number")
    full, later_life, leaving = bool(flags & 1), bool(flags & 2), bool(flags & 4)
    return Summary(_check_turn(turn), full, later_life, leaving, floor, upto, body.ranges())


def _item(body: _Body) -> Item:
    turn, kind, node, incarnation, number = body.some(_ITEM)
    if node < 0:
        raise Malformed("bad range")
    return Item(
        _check_turn(turn), Stream(kind, node, check_count(incarnation)), check_count(number, 1), body.rest()
    )


def _has_ended(body: _Body) -> HasEnded:
    turn, node = body.some(_ENDED)
    return HasEnded(_check_turn(turn), check_node(node))


def _excluded(body: _Body) -> Excluded:
    founded_us, founder, mark, node, incarnation = body.some(_EXCLUDED)
    group = Group(check_count(founded_us), check_node(founder), mark)
    return Excluded(group, check_node(node), check_count(incarnation))


_DECODERS: Mapping[int, Callable[[_Body], MembershipPacket]] = {
    JOIN: _join,
    SUMMARY: _summary,
    FETCH: lambda body: Fetch(body.turn(), body.ranges()),
    ITEM: _item,
    COLLECT: lambda body: Collect(body.turn(), body.round()),
    ESTIMATE: lambda body: Estimate(body.turn(), body.round(), body.round(), body.rest()),
    PROPOSE: lambda body: Propose(body.turn(), body.round(), body.rest()),
    ACCEPTED: lambda body: Accepted(body.turn(), body.round()),
    DECIDE: lambda body: Decide(body.turn(), body.rest()),
    ENDED: _has_ended,
    EXCLUDED: _excluded,
    REFUSE: lambda body: Refuse(body.turn(), body.round(), body.round()),
    ABORT: lambda body: Abort(body.turn(), body.round()),
    KNOCK: lambda body: Knock(body.group(), body.u64()),
    ANSWER: lambda body: Answer(body.group(), body.u64()),
}


def decode_decision(value: bytes) -> Decision:
    """A decision off the wire or off the disk; raises `Malformed`."""
    body = _Body(value, 0)
    full, founded_us, founder, mark, seq, rep, turn, upto, count = body.some(_DECISION)
    if count > MAX_MEMBERS:
        raise Malformed("too many members")
    members = []
    previous = 0
    for _ in range(count):
        node, incarnation, core = body.some(_LIFE)
        if check_node(node) <= previous:
            raise Malformed("members not ascending")
        previous = node
        members.append(Member(node, check_count(incarnation), bool(core)))
    if members and not any(member.core for member in members):
        raise Malformed("no token list")
    (site,) = body.some(struct.Struct("<i"))
    ranges = body.ranges()
    body.end()
    view = ConfigurationId(seq, rep)
    if members:  # a view is named after its first member
        check_count(seq, 1)
        if rep != members[0].node:
            raise Malformed("bad view")
    elif view != NO_VIEW:
        raise Malformed("bad view")
    group = Group(check_count(founded_us), check_node(founder), mark)
    return Decision(
        bool(full), group, view, _check_turn(turn), tuple(members), site, check_count(upto), ranges
    )

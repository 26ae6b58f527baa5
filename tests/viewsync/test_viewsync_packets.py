"""The membership's packets on the wire: what is sent is what arrives, and nothing else gets in."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from viewsync_node import FIRST, decision, items, span, stream, summary

from ordercast.core.identity import MAX_NODE_ID, ConfigurationId
from ordercast.core.wire import MAX_COUNT, MAX_PACKET, Malformed, prefix
from ordercast.viewsync.contract import Stream
from ordercast.viewsync.declared import KINDS
from ordercast.viewsync.header import FIRST_ORDER_KIND, HEADER_SIZE, NO_VIEW, Header, header, read_header
from ordercast.viewsync.packets import (
    HEARTBEAT,
    MAX_MEMBERS,
    MAX_RANGES,
    NO_GROUP,
    NO_ROUND,
    Abort,
    Accepted,
    Answer,
    Collect,
    Decide,
    Decision,
    Estimate,
    Excluded,
    Fetch,
    Group,
    Heartbeat,
    Item,
    Join,
    Knock,
    Member,
    MembershipPacket,
    Propose,
    Range,
    Refuse,
    Round,
    Summary,
    decode,
    decode_decision,
    encode,
    encode_decision,
)
from ordercast.viewsync.ranges import names, ranges_of, union

# --- what there is --------------------------------------------------------------------------------

node_ids = st.integers(1, MAX_NODE_ID)
counts = st.integers(0, MAX_COUNT - 1)
places = st.integers(1, MAX_COUNT - 1)
lives = st.integers(0, 2**31 - 1)
turns = st.integers(0, 2**31 - 1)
marks = st.integers(0, 2**32 - 1)
groups = st.one_of(st.just(NO_GROUP), st.builds(Group, counts, node_ids, marks))
rounds = st.one_of(st.just(NO_ROUND), st.builds(Round, places, node_ids))
streams = st.builds(Stream, st.integers(0, 255), st.integers(0, MAX_NODE_ID), lives)
ranges = st.lists(
    st.builds(Range, streams, places.map(lambda first: max(1, first - 1_000)), st.integers(1, 1_000)),
    max_size=8,
).map(tuple)
views = st.builds(ConfigurationId, places, node_ids)
values = st.binary(max_size=60)

packets: st.SearchStrategy[MembershipPacket] = st.one_of(
    st.builds(Heartbeat, st.builds(Group, counts, node_ids, marks), turns, st.booleans()),
    st.builds(Join, groups, counts, st.booleans(), groups),
    st.builds(Summary, turns, st.booleans(), st.booleans(), st.booleans(), counts, counts, ranges).map(
        lambda told: told._replace(floor=min(told.floor, told.upto))
    ),
    st.builds(Fetch, turns, ranges),
    st.builds(Item, turns, streams, places, values),
    st.builds(Collect, turns, rounds),
    st.builds(Estimate, turns, rounds, rounds, values),
    st.builds(Propose, turns, rounds, values),
    st.builds(Accepted, turns, rounds),
    st.builds(Decide, turns, values),
    st.builds(Refuse, turns, rounds, rounds),
    st.builds(Abort, turns, rounds),
    st.builds(Excluded, st.builds(Group, lives, node_ids, marks), node_ids, lives),
    st.builds(Knock, st.builds(Group, lives, node_ids, marks), st.integers(0, 2**64 - 1)),
    st.builds(Answer, st.builds(Group, lives, node_ids, marks), st.integers(0, 2**64 - 1)),
)


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    nodes = sorted(draw(st.sets(node_ids, min_size=1, max_size=6)))
    members = [Member(node, draw(lives), draw(st.booleans())) for node in nodes]
    members[0] = members[0]._replace(core=True)
    group = Group(draw(counts), draw(node_ids), draw(marks))
    return Decision(
        draw(st.booleans()),
        group,
        draw(views)._replace(rep=nodes[0]),
        draw(turns),
        tuple(members),
        draw(st.sampled_from(nodes)),
        draw(counts),
        draw(ranges),
    )


def wire(packet: MembershipPacket, view: ConfigurationId = FIRST) -> bytes:
    kind, body = encode(packet)
    return header(kind, view, 3, 1) + body


def read(data: bytes) -> MembershipPacket:
    return decode(read_header(data), data)


# --- round trips ----------------------------------------------------------------------------------


@settings(deadline=None)
@given(packets)
def test_what_is_sent_is_what_arrives(packet: MembershipPacket) -> None:
    assert read(wire(packet)) == packet


@settings(deadline=None)
@given(decisions())
def test_a_decision_is_read_as_it_was_made(made: Decision) -> None:
    assert decode_decision(encode_decision(made)) == made


@settings(deadline=None)
@given(st.sampled_from(sorted(KINDS)), views, node_ids, lives)
def test_a_header_says_kind_view_sender_and_life(
    kind: int, view: ConfigurationId, sender: int, life: int
) -> None:
    data = header(kind, view, sender, life)
    assert len(data) == HEADER_SIZE
    assert read_header(data + b"whatever follows") == Header(kind, view, sender, life)


def test_a_node_in_no_view_says_so() -> None:
    assert read_header(header(HEARTBEAT, NO_VIEW, 3, 0)).view == NO_VIEW


def test_every_kind_has_a_name_and_is_the_memberships() -> None:
    assert len(set(KINDS.values())) == len(KINDS)
    assert max(KINDS) < FIRST_ORDER_KIND


# --- nothing else gets in -------------------------------------------------------------------------


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_malformed_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data)


@settings(deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=200))
def test_garbage_behind_a_right_header_is_malformed_or_a_packet(kind: int, body: bytes) -> None:
    data = header(kind, FIRST, 3, 0) + body
    try:
        packet = read(data)
    except Malformed:
        return
    assert read(wire(packet)) == packet


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_no_decision(value: bytes) -> None:
    try:
        made = decode_decision(value)
    except Malformed:
        return
    assert decode_decision(encode_decision(made)) == made


@settings(deadline=None)
@given(packets, st.data())
def test_a_packet_that_is_cut_short_or_goes_on_is_malformed(
    packet: MembershipPacket, data: st.DataObject
) -> None:
    whole = wire(packet)
    open_ended = isinstance(packet, Item | Estimate | Propose | Decide)
    if not open_ended:
        with pytest.raises(Malformed, match=r"^trailing bytes$"):
            read(whole + b"x")
        cut = data.draw(st.integers(0, len(whole) - 1))
        with pytest.raises(Malformed, match=r"^(truncated|too short)$"):
            read(whole[:cut])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "too short"),
        (prefix(HEARTBEAT), "too short"),
        (b"XX" + header(HEARTBEAT, FIRST, 3, 0)[2:], "not ordercast"),
        (header(HEARTBEAT, FIRST, 3, 0) + bytes(MAX_PACKET), "too long"),
        (header(HEARTBEAT, ConfigurationId(0, 1), 3, 0), "bad number"),
        (header(HEARTBEAT, ConfigurationId(-1, 1), 3, 0), "bad number"),
        (header(HEARTBEAT, ConfigurationId(1, 0), 3, 0), "bad node id"),
        (header(HEARTBEAT, FIRST, 0, 0), "bad node id"),
        (header(HEARTBEAT, FIRST, -3, 0), "bad node id"),
        (header(HEARTBEAT, FIRST, 3, -1), "bad number"),
        (header(63, FIRST, 3, 0), "unknown kind"),
    ],
)
def test_a_wrong_beginning_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=f"^{reason}$"):
        read(data)


WRONG: list[tuple[MembershipPacket, str]] = [
    (Heartbeat(Group(-1, 3), 0, False), "bad number"),
    (Heartbeat(Group(5, 0), 0, False), "bad node id"),
    (Join(OURS := Group(5, 3), -1, False), "bad number"),
    (summary(floor=-1), "bad number"),
    (summary(upto=MAX_COUNT), "bad number"),
    (summary(Range(Stream(1, -1, 0), 1, 1)), "bad range"),
    (summary(Range(Stream(1, 1, -1), 1, 1)), "bad number"),
    (summary(Range(stream(1), 0, 1)), "bad number"),
    (summary(Range(stream(1), 1, 0)), "bad range"),
    (summary(span(1, 1, 60_000), span(2, 1, 60_000)), "bad range"),
    (Fetch(0, tuple(span(1, place) for place in range(1, MAX_RANGES + 2))), "too many ranges"),
    (Item(0, Stream(1, -1, 0), 1, b""), "bad range"),
    (Item(0, Stream(1, 1, -1), 1, b""), "bad number"),
    (Item(0, stream(1), 0, b""), "bad number"),
    (Collect(0, Round(0, 3)), "bad number"),
    (Accepted(0, Round(1, 0)), "bad node id"),
    (Excluded(Group(1, 1), 0, 0), "bad node id"),
    (Excluded(Group(1, 1), 1, -1), "bad number"),
]


@pytest.mark.parametrize(("packet", "reason"), WRONG, ids=lambda value: str(value)[:40])
def test_what_no_member_would_say_is_malformed(packet: MembershipPacket, reason: str) -> None:
    with pytest.raises(Malformed, match=f"^{reason}$"):
        read(wire(packet))


def test_a_decision_names_members_in_order_and_not_too_many() -> None:
    good = decision((1, 2))
    for members, reason in (
        ((Member(2, 0, True), Member(1, 0, True)), "members not ascending"),
        ((Member(1, 0, True), Member(1, 1, True)), "members not ascending"),
        ((Member(0, 0, True),), "bad node id"),
        ((Member(1, -1, True),), "bad number"),
        (tuple(Member(node, 0, True) for node in range(1, MAX_MEMBERS + 2)), "too many members"),
        ((Member(1, 0, False), Member(2, 0, False)), "no token list"),
    ):
        with pytest.raises(Malformed, match=f"^{reason}$"):
            decode_decision(encode_decision(good._replace(members=members)))


def test_a_decision_is_about_a_view_or_gives_the_group_up() -> None:
    with pytest.raises(Malformed, match=r"^bad number$"):
        decode_decision(encode_decision(decision((1, 2), ConfigurationId(0, 1))))
    for rep in (0, 2, 9):
        with pytest.raises(Malformed, match=r"^bad view$"):
            decode_decision(encode_decision(decision((1, 2), ConfigurationId(4, rep))))
    with pytest.raises(Malformed, match=r"^bad view$"):
        decode_decision(encode_decision(decision((), ConfigurationId(4, 1))))
    with pytest.raises(Malformed, match=r"^bad number$"):
        decode_decision(encode_decision(decision((1, 2), upto=-1)))
    with pytest.raises(Malformed, match=r"^trailing bytes$"):
        decode_decision(encode_decision(decision((1, 2))) + b"x")
    assert decode_decision(encode_decision(decision((), NO_VIEW))).members == ()


def test_unknown_bits_of_a_summary_change_nothing() -> None:
    data = bytearray(wire(summary()))
    at = HEADER_SIZE + struct.calcsize("<I")
    data[at] |= 0xF8
    assert read(bytes(data)) == summary()


# --- names of items -------------------------------------------------------------------------------


def test_consecutive_items_are_named_together() -> None:
    assert ranges_of(items(n1=(1, 2, 3, 7), n2=(5,))) == (span(1, 1, 3), span(1, 7), span(2, 5))
    assert ranges_of({}) == ()
    assert ranges_of({stream(1): {}}) == ()


@settings(deadline=None)
@given(st.dictionaries(st.integers(1, 4), st.sets(st.integers(1, 40), max_size=20), max_size=4))
def test_ranges_name_exactly_what_there_is(held: dict[int, set[int]]) -> None:
    named = list(names(ranges_of({stream(node): dict.fromkeys(some, b"") for node, some in held.items()})))
    assert len(named) == len(set(named))
    assert set(named) == {(stream(node), number) for node, some in held.items() for number in some}


def test_a_list_of_ranges_is_bounded() -> None:
    scattered = {stream(1): dict.fromkeys(range(1, 4 * MAX_RANGES, 2), b"")}
    assert len(ranges_of(scattered)) == MAX_RANGES


@settings(deadline=None)
@given(st.lists(ranges, max_size=4))
def test_a_union_names_what_any_of_them_names(several: list[tuple[Range, ...]]) -> None:
    assert set(names(union(several))) == {name for some in several for name in names(some)}

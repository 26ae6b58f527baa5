"""A caller's mistakes raise, in words; packets never do, whatever is in them."""

from __future__ import annotations

import re
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from viewsync_node import FIRST, OURS, SECOND, Node, decision, member, packet_from, round_, started, summary

from effects import drops
from ordercast.core.contract import Drop, Event, Packet, Start
from ordercast.core.wire import FORGED_SENDER, Malformed
from ordercast.viewsync.declared import KINDS
from ordercast.viewsync.header import FIRST_ORDER_KIND, NO_VIEW, header, read_header
from ordercast.viewsync.packets import (
    NO_ROUND,
    Decide,
    Estimate,
    Heartbeat,
    MembershipPacket,
    Propose,
    encode_decision,
)

# --- a caller's mistakes -----------------------------------------------------------------------------------


def test_a_message_before_the_start_is_refused() -> None:
    node = Node(1)
    assert node.machine.room == 0
    with pytest.raises(
        RuntimeError, match=r"^node 1 takes no messages: it is not started, or it is leaving$"
    ):
        node.submits(b"a")


def test_a_node_starts_once() -> None:
    node = started(1)
    with pytest.raises(RuntimeError, match=r"^node 1 was started before; make a new machine$"):
        node.does(Start(1, None, 0))


def test_a_message_that_is_too_large_is_refused_with_what_to_do() -> None:
    node = member(1, max_message_size=1_000)
    text = "a message of 1001 bytes is larger than max_message_size (1000); split it, or raise the limit"
    with pytest.raises(ValueError, match=re.escape(text)):
        node.submits(b"fits", b"x" * 1_001)
    assert node.orderer.submitted == []


def test_nothing_is_submitted_by_who_leaves() -> None:
    node = member(1)
    node.orderer.idle = False
    node.stops()
    with pytest.raises(RuntimeError, match="takes no messages"):
        node.submits(b"a")


def test_there_is_room_for_one_message_at_most_and_for_what_the_orderer_has() -> None:
    node = member(1, max_message_size=1_000)
    assert node.machine.room == 1_000
    node.orderer.room = 10
    assert node.machine.room == 10


def test_a_stored_state_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^node 1: the stored state is not one that this protocol wrote"):
        Node(1).starts(stored=b"something else")


def test_a_machine_that_halted_takes_no_event_and_drops_packets() -> None:
    node = started(2)
    node.stops()
    assert node.machine.room == 0
    assert node.hears(1, summary(), view_id=FIRST) == [Drop("halted")]
    with pytest.raises(AssertionError, match=r"^node 2 has halted; make a new machine and start it$"):
        node.timeout("join")


def test_what_is_not_an_event_is_a_mistake() -> None:
    with pytest.raises(TypeError, match=r"^not an event: 'hello'$"):
        member(1).does(cast(Event, "hello"))


def test_a_state_is_left_only_for_a_reason_that_is_in_the_table() -> None:
    node = member(1)
    with pytest.raises(AssertionError, match=r"^node 1 cannot leave member because of 'a whim'$"):
        node.machine.life.shift("a whim", [])


def test_what_happens_in_a_change_is_told_only_of_a_change() -> None:
    node = member(1)
    node.machine.life.note("several originators", [])
    effects: list[object] = []
    node.is_told_gone(2)
    node.machine.life.note("several originators", effects)  # type: ignore[arg-type]
    assert len(effects) == 1


# --- packets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "packet",
    [
        Propose(0, round_(1, 1), b""),
        Propose(0, round_(1, 1), b"no decision"),
        Estimate(0, round_(1, 2), round_(1, 1), b""),
        Estimate(0, round_(1, 2), round_(1, 1), b"no decision"),
        Decide(0, b""),
        Decide(0, b"no decision"),
    ],
    ids=str,
)
def test_a_vote_on_nothing_is_dropped_and_leaves_no_trace(packet: MembershipPacket) -> None:
    node = member(2)
    node.is_told_gone(1)
    node.timeout("change", after_us=node.config.conservative_us)
    for effects in (node.hears(3, packet), node.hears(1, packet)):
        assert drops(effects) == ["truncated"]
    for _ in range(20):
        node.timeout("change", after_us=node.config.round_us)
    assert drops(started(3).hears(1, packet, view_id=NO_VIEW)) == ["truncated"]


states = st.sampled_from(["joining", "member", "changing", "later life"])


def in_state(state: str) -> Node:
    if state == "joining":
        return started(2)
    node = member(2)
    if state == "changing":
        node.is_told_gone(1)
    return node.dies_and_comes_back() if state == "later life" else node


@settings(deadline=None, max_examples=300)
@given(states, st.binary(max_size=150))
def test_garbage_is_dropped_and_counted(state: str, data: bytes) -> None:
    (effect,) = in_state(state).does(Packet(data, 1))
    assert isinstance(effect, Drop)


@settings(deadline=None, max_examples=500)
@given(
    states,
    st.sampled_from([*KINDS, FIRST_ORDER_KIND]),
    st.sampled_from([FIRST, NO_VIEW]),
    st.integers(1, 4),
    st.binary(max_size=90),
)
def test_garbage_behind_a_right_header_raises_nothing(
    state: str, kind: int, view: object, sender: int, body: bytes
) -> None:
    node = in_state(state)
    node.does(Packet(header(kind, view, sender, 0) + body, sender))  # type: ignore[arg-type]


PACKETS = [
    packet_from(1, packet)
    for packet in (
        Heartbeat(OURS, 0, True),
        summary(),
        Propose(0, round_(3, 1), encode_decision(decision((1, 2, 3)))),
        Estimate(0, round_(1, 2), NO_ROUND, b""),
        Decide(0, encode_decision(decision((1, 2, 3)))),
        Decide(0, encode_decision(decision((1, 2), full=False, turn=1))),
    )
]


def _named_by(data: bytes) -> int:
    """The sender that a packet names: a damaged one would not be looked at if another had sent it."""
    try:
        return read_header(data).sender
    except Malformed:
        return 1


@settings(deadline=None, max_examples=600)
@given(states, st.sampled_from(PACKETS), st.data())
def test_a_damaged_packet_raises_nothing(state: str, packet: bytes, data: st.DataObject) -> None:
    damaged = bytearray(packet)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(3, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    node = in_state(state)
    node.does(Packet(bytes(damaged), _named_by(bytes(damaged))))
    if not node.machine.halted:
        for name in ("heartbeat", "change", "join"):
            if not node.machine.halted:
                node.timeout(name, after_us=node.config.change_us)


@pytest.mark.parametrize("kind", [*KINDS, FIRST_ORDER_KIND])
def test_a_packet_that_names_another_sender_is_not_used(kind: int) -> None:
    node = in_state("member")
    assert node.does(Packet(header(kind, FIRST, 3, 0), 1)) == [Drop(FORGED_SENDER)]


def test_a_view_begins_with_its_first_token_list() -> None:
    """A node that was let in with another one, or votes in it, has nobody to change the view with."""
    value = encode_decision(decision((1, 2), FIRST, turn=2))
    outside, later = started(2), member(2, (1, 2, 3)).dies_and_comes_back()
    for node in (outside, later):
        before = node.machine.life.past
        assert drops(node.hears(1, Decide(0, value), view_id=FIRST))
        assert node.machine.life.view is None
        assert node.machine.life.past == before


def test_where_token_lists_do_not_change_none_is_believed_in() -> None:
    later = member(2, (1, 2, 3)).dies_and_comes_back()
    told = later.hears(1, summary()._replace(turn=7))
    assert drops(told) == ["a token list that there never is"]
    assert later.machine.life.past is not None
    assert later.machine.life.past.turn == 0


def test_who_has_a_vote_inherits_no_token_list_where_there_are_none() -> None:
    """All that it said from then on would be dropped by everybody, through all its lives."""
    later = member(2, (1, 2, 3)).dies_and_comes_back()
    told = decision((1, 2, 3), SECOND, turn=5, full=False)
    before = later.machine.life.past
    assert drops(later.hears(1, Decide(0, encode_decision(told)))) == ["a token list that there never is"]
    assert later.machine.life.past == before

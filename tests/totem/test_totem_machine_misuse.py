"""A caller's mistakes raise, in words; packets never do; and a node that goes, goes in order."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from totem_node import FIRST, Node, entry, one, operational, order, raw, receivers, sent, started
from totem_parts import data, delivered, examples

from effects import drops, timers
from ordercast.core.contract import Accept, Drop, Halt, Multicast, Packet, QueueFull, Start, Timer
from ordercast.core.identity import ConfigurationId
from ordercast.totem.packets import (
    Announce,
    AnyPacket,
    Commit,
    Data,
    Hurry,
    Join,
    Token,
    encode_recovered,
)
from ordercast.totem.states import State

# --- a caller's mistakes ----------------------------------------------------------------------------------


def test_a_message_before_the_start_is_refused() -> None:
    node = Node(1)
    assert node.machine.room == 0
    with pytest.raises(RuntimeError, match=r"^node 1 takes no messages: it is not started, or"):
        node.submits(b"a")


def test_a_node_starts_once() -> None:
    node = started(me=1)
    with pytest.raises(RuntimeError, match=r"^node 1 was started before; make a new machine"):
        node.starts()


def test_a_message_that_is_too_large_is_refused_with_what_to_do() -> None:
    node = operational(max_message_size=1_000)
    text = "a message of 1001 bytes is larger than max_message_size (1000); split it, or raise the limit"
    with pytest.raises(ValueError, match=re.escape(text)):
        node.submits(b"fits", b"x" * 1_001)
    assert node.submits(b"x" * 1_000)[0] == Accept(1), "nothing of what was refused was taken"


def test_a_full_queue_says_so_and_has_room_again_when_it_drains() -> None:
    """A bounded send queue that pushes back on the submitter."""
    node = operational(max_message_size=1_000, send_queue=2_000)
    assert node.machine.room == 1_000
    node.submits(b"x" * 1_000)
    assert node.machine.room == 2_000 - 1_064
    with pytest.raises(QueueFull, match="wait until the queue drains and submit again"):
        node.submits(b"x" * 1_000)
    node.submits(b"x" * 900)
    assert node.machine.room == 0
    node.visited()
    assert node.machine.room == 1_000


def test_something_that_is_no_event_is_refused() -> None:
    with pytest.raises(TypeError, match="not an event: 'nonsense'"):
        operational().machine.handle(0, "nonsense")  # type: ignore[arg-type]


def test_after_its_end_a_machine_takes_no_more_events() -> None:
    node = gone()
    with pytest.raises(AssertionError, match="node 1 has halted; make a new machine and start it"):
        node.does(Start(1, None, 0))


# --- a node that goes (PEERS.md, leave) -------------------------------------------------------------------


def gone() -> Node:
    node = started(me=1)
    node.timeout("consensus")
    node.stops()
    return node


def test_alone_a_node_goes_at_once() -> None:
    node = started(me=1)
    node.timeout("consensus")
    effects = node.stops()
    assert order(effects, Multicast, Halt) == [Multicast, Halt]
    assert one(effects, Join) == Join(1, 8, (1,), (), leave=True)
    assert effects[-1] == Halt("left")


def test_to_packets_a_node_that_has_gone_is_deaf() -> None:
    node = gone()
    assert node.machine.room == 0
    assert node.machine.handle(0, Packet(b"anything", 2)) == (Drop("halted"),)


def test_on_a_ring_a_node_goes_when_it_has_the_token() -> None:
    node = operational()
    assert node.stops() == []
    effects = node.visited()
    assert order(effects, Multicast, Halt) == [Multicast, Halt]
    assert receivers(effects) == [3], "the token is passed on first"


def test_a_node_that_is_leaving_takes_no_more_messages() -> None:
    node = operational()
    node.stops()
    assert node.machine.room == 0
    with pytest.raises(RuntimeError, match="takes no messages"):
        node.submits(b"a")


def test_it_finishes_what_it_accepted_first() -> None:
    """Self-delivery, and to the others: everyone is known to have its messages before it goes."""
    node = operational()
    node.submits(b"a")
    node.stops()
    first = node.visited()
    assert delivered(first) == [b"a"]
    assert order(first, Halt) == [], "nobody is known to have it yet"
    assert order(node.visited(), Halt) == [Halt]


def test_a_representative_that_leaves_does_not_hold_the_token() -> None:
    node = operational(me=1, hold_us=10_000, idle_rotations=1)
    node.visited()
    node.stops()
    effects = node.visited()
    assert "hold" not in timers(effects)
    assert order(effects, Halt) == [Halt]


def test_in_gather_a_node_waits_for_a_ring_to_leave_from() -> None:
    node = started(me=1)
    node.submits(b"a", safe=True)
    assert node.stops() == []
    effects = node.timeout("consensus")
    assert delivered(effects) == [b"a"]
    assert isinstance(effects[-1], Halt)


def test_a_lone_node_says_farewell_once() -> None:
    node = started(me=1)
    node.submits(b"a", safe=True)
    node.stops()
    effects = node.timeout("consensus")
    assert order(effects, Halt) == [Halt]
    assert len([join for join in sent(effects, Join) if join.leave]) == 1


# --- packets ----------------------------------------------------------------------------------------------


def in_state(state: State) -> Node:
    """Node 2, in a state, with something to send and something received."""
    node = operational(me=2) if state is State.OPERATIONAL else started(me=2)
    node.submits(b"waiting")
    if state in (State.COMMIT, State.RECOVERY):
        node.agrees((1, 2, 3))
        entries = [entry(1), entry(2), entry(3)]
        node.commits(FIRST, entries)
        if state is State.RECOVERY:
            node.returns(entries)
    assert node.state is state
    return node


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"", "too short"),
        (b"OC", "too short"),
        (b"XX\x01\x01", "not ordercast"),
        (b"OC\x63\x01", "unknown version"),
        (b"OC\x01\x63", "unknown kind"),
        (b"OC\x01\x01", "truncated"),
        (b"OC\x01\x03", "truncated"),
    ],
)
def test_garbage_is_dropped_for_a_reason(state: State, garbage: bytes, reason: str) -> None:
    assert drops(in_state(state).hears(garbage)) == [reason]


SAMPLES: tuple[AnyPacket, ...] = (
    data(1, b"a", origin=1, ring=FIRST),
    data(2, b"b", origin=3, safe=True, ring=FIRST),
    data(1, b"c", origin=9, ring=ConfigurationId(20, 9)),
    encode_recovered(FIRST, 1, 1, data(1, b"d", origin=2, ring=ConfigurationId(4, 2))),
    Commit(FIRST, (1, 2, 3), 1, (entry(1),)),
    Commit(FIRST, (1, 2, 3), 4, (entry(1), entry(2), entry(3))),
    Commit(ConfigurationId(12, 1), (1, 2), 1, (entry(1),)),
    Join(1, 8, (1, 2, 3), ()),
    Join(3, 12, (1, 2, 3), (1,)),
    Join(3, 12, (3,), (), leave=True),
    Join(9, 8, (1, 2, 3, 9), (), merge=True),
    Announce(9, ConfigurationId(20, 9), (9,), (2,)),
    Hurry(FIRST),
)


def some_token(token_seq: int, seq: int, aru: int, aru_id: int, rtr: list[int], flag: bool) -> Token:
    token = Token(FIRST)
    token.token_seq, token.seq, token.aru, token.aru_id = token_seq, seq, min(aru, seq), aru_id
    token.rtr = [request for request in rtr if request <= seq]
    token.retrans_flg = flag
    return token


small = st.integers(0, 8)
tokens = st.builds(
    some_token,
    st.integers(1, 40),
    small,
    small,
    small,
    st.lists(st.integers(1, 8), max_size=3),
    st.booleans(),
)
packets = st.one_of(st.sampled_from(SAMPLES), tokens).map(raw)
damaged = st.builds(
    lambda packet, at, value: packet[: at % len(packet)] + bytes([value]) + packet[at % len(packet) + 1 :],
    packets,
    st.integers(0, 200),
    st.integers(0, 255),
)


@examples(300)
@given(
    state=st.sampled_from(State),
    arrivals=st.lists(st.one_of(packets, damaged, st.binary(max_size=80)), max_size=12),
    timeouts=st.lists(
        st.sampled_from(["token-loss", "token-retransmission", "join", "consensus", "hold"]), max_size=3
    ),
)
def test_no_packet_in_any_state_makes_a_machine_raise(
    state: State, arrivals: list[bytes], timeouts: list[str]
) -> None:
    """000 assumes no malicious processors; but what arrives from the network is not all from processors."""
    node = in_state(state)
    for index, packet in enumerate(arrivals):
        for effect in node.machine.handle(node.now_us, Packet(packet, node.due_from(packet))):
            assert not isinstance(effect, Drop) or effect.reason
        if index < len(timeouts) and not node.machine.halted:
            node.machine.handle(node.now_us, Timer(timeouts[index]))
        node.waits(100)


def test_a_commit_token_that_claims_what_nobody_has_does_not_make_a_machine_raise() -> None:
    """Its entry says that 1 delivered a message of the old ring that 1 then does not bring across."""
    node = operational(me=2)
    node.timeout("token-loss")
    node.agrees((1, 2, 3), ring_seq=8)
    entries = [entry(1, FIRST, aru=5, delivered=5), entry(2, FIRST), entry(3, FIRST)]
    node.commits(ConfigurationId(12, 1), entries)
    node.returns(entries)
    node.recovers()


def test_a_message_that_the_token_does_not_know_of_does_not_spoil_the_token() -> None:
    """Such a message comes from no member. The token that leaves must still be one that others accept."""
    node = operational(me=2)
    node.hears(data(1, origin=3, ring=FIRST))
    token = one(node.visited(), Token)
    assert token.aru <= token.seq


def test_a_message_as_large_as_any_sender_may_send_is_put_together() -> None:
    node = operational(packet_size=256, max_message_size=1_000)
    node.submits(b"x" * 1_000)
    effects = node.visited()
    assert len(sent(effects, Data)) > 3
    assert delivered(effects) == [b"x" * 1_000]


def test_a_sum_on_the_token_that_is_wrong_does_not_keep_everybody_from_sending() -> None:
    """Each member enters only how its own part changed: nobody else takes a wrong sum off the token."""
    node = operational()
    node.visited()
    node.submits(b"mine")
    forged = node.next_token()
    forged.fcc = forged.backlog = 2**30
    effects = node.hears(forged)
    assert [packet.chunks for packet in sent(effects, Data)] == [[b"mine"]]
    assert one(effects, Token).fcc == 1


def test_a_ring_of_one_takes_no_token_off_the_wire() -> None:
    node = started(me=2)
    ring = node.machine.ring.id
    assert drops(node.hears(Token(ring, token_seq=9, seq=40))) != []
    assert node.machine.ring.forwarded_seq == 0


@pytest.mark.parametrize("seq", [2**61, 10_000])
def test_a_token_that_is_far_ahead_is_not_believed(seq: int) -> None:
    node = operational(max_outstanding=1024)
    assert drops(node.visited(seq=seq, aru=0)) == ["implausible token"]

"""The recovery protocol (000 §7, Figs 6 and 7), one event at a time.

Nodes 1, 2 and 3 were on the ring `FIRST`; 3 is lost, and 2 goes with 1 to the ring `SECOND`, unless it says
otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from totem_node import FIRST, LIMITS, Node, entry, one, operational, order, receivers, sent
from totem_parts import data, delivered, story

from effects import drops, shifts, timers
from ordercast.core.contract import Deliver, Effect, Install, Originate, Shift
from ordercast.core.identity import Configuration, ConfigurationId, Kind, NodeId
from ordercast.totem.packets import Commit, Data, Entry, Join, Recovered, Token, encode_recovered
from ordercast.totem.states import State

SECOND, THIRD = ConfigurationId(12, 1), ConfigurationId(16, 2)
TRANSITIONAL = Configuration(ConfigurationId(10, 1), Kind.TRANSITIONAL, (1, 2))
REGULAR = Configuration(SECOND, Kind.REGULAR, (1, 2))


def lost(node: Node, *failed: NodeId) -> list[Effect]:
    """The token is lost, and the others agree that these have failed."""
    effects = node.timeout("token-loss")
    members = [member for member in node.machine.ring.members if member not in failed]
    node.hears(
        *[Join(member, 8, node.machine.ring.members, failed) for member in members if member != node.me]
    )
    return effects + node.agrees(members, ring_seq=8, failed=failed)


def recovering(
    *received: Data, theirs: Entry | None = None, me: NodeId = 2, members: Sequence[NodeId] = (1, 2, 3)
) -> Node:
    """A node that has received these messages on the old ring and now recovers them."""
    node = operational(me, members)
    node.hears(*received)
    lost(node, 3)
    entries = [theirs or entry(1, FIRST), entry(2, FIRST)]
    if me != 1:
        node.commits(SECOND, entries)
    node.returns(entries)
    assert node.state is State.RECOVERY
    return node


def old(seq: int, payload: bytes = b"", origin: NodeId = 1, safe: bool = False) -> Data:
    return data(seq, payload or b"%d" % seq, origin=origin, safe=safe, ring=FIRST)


def envelope(seq: int, packet: Data, sender: NodeId = 1, ring: ConfigurationId = SECOND) -> Recovered:
    return encode_recovered(ring, seq, sender, packet)


# --- Fig. 7: Shift_to_Recovery -----------------------------------------------------------------------------


def test_the_entry_tells_the_old_ring_and_what_of_it_is_here() -> None:
    """§6.1: "each processor sets its old ring_id, old ring my_aru, high_delivered, and received_flg
    fields".
    """
    node = operational(me=2)
    node.hears(old(1), old(2, safe=True), old(4))
    lost(node, 3)
    effects = node.commits(SECOND, [entry(1, FIRST), entry(2, FIRST)])
    assert one(effects, Commit).entries[1] == Entry(2, FIRST, 2, 1, False, LIMITS)


def test_shift_to_recovery_forwards_the_commit_token_and_resets_the_timeouts() -> None:
    """Fig. 7: forward Commit token for the second time; …; reset Token Loss and Token Retransmission
    timeouts.
    """
    node = operational(me=2)
    lost(node, 3)
    entries = [entry(1, FIRST), entry(2, FIRST)]
    node.commits(SECOND, entries)
    effects = node.returns(entries)
    assert one(effects, Commit).memb_index == 4
    assert receivers(effects) == [1]
    config = node.machine.config
    assert timers(effects) == {
        "token-loss": config.token_loss_us,
        "token-retransmission": config.token_retransmission_us,
    }


def test_the_representative_converts_the_commit_token_to_the_regular_one() -> None:
    """Fig. 6: Commit token received by new representative: convert Commit token to regular token; …;
    forward.
    """
    node = operational(me=1, max_messages=64)
    node.hears(*[old(seq, origin=2) for seq in range(1, 71)])
    lost(node, 3)
    effects = node.returns([entry(1, FIRST), entry(2, FIRST)])
    token = one(effects, Token)
    assert (token.ring, token.token_seq) == (SECOND, 1)
    assert token.retrans_flg, "Fig. 6: if retrans_message_queue is not empty then token.retrans_flg := true"
    twice = node.hears(Commit(SECOND, (1, 2), 4, (entry(1, FIRST, 70, 70), entry(2, FIRST))))
    assert drops(twice) == ["redundant commit token"]


# --- exchange of messages from the old ring ---------------------------------------------------------------


def test_messages_beyond_the_lowest_aru_are_broadcast_in_envelopes() -> None:
    """§7.2: "The processor then broadcasts on the new ring every message for the old ring that it has
    received and that has a sequence number greater than the lowest my_aru … with a new ring identifier, and
    encapsulates the old ring message with its old ring identifier."
    """
    node = recovering(old(1), old(2), old(4), theirs=entry(1, FIRST, aru=1, delivered=1))
    packets = sent(node.visited(), Recovered)
    assert [(packet.seq, packet.old.seq) for packet in packets] == [(1, 2), (2, 4)]
    assert {(packet.ring_seq, packet.ring_rep) for packet in packets} == {SECOND}
    assert {(packet.old.ring_seq, packet.old.ring_rep) for packet in packets} == {FIRST}


def test_what_another_broadcast_first_is_not_broadcast_again() -> None:
    """Fig. 6: remove message from retrans_message_queue for old ring."""
    node = recovering(old(1), old(2))
    node.hears(envelope(1, old(1)))
    assert [packet.old.seq for packet in sent(node.visited(seq=1, aru=1), Recovered)] == [2]


def test_messages_of_an_old_ring_of_others_are_only_carried() -> None:
    """§7.2: they "are not delivered to the application by any processor that was not a member of the old
    ring".
    """
    node = recovering()
    foreign = data(1, b"foreign", origin=7, ring=ConfigurationId(8, 7))
    node.hears(envelope(1, foreign))
    effects = node.visited(seq=1, aru=1) + node.recovers()
    assert delivered(effects) == []
    assert node.machine.ring.window.aru == 1, "but it has its place in the new ring's order"


def test_no_new_messages_are_broadcast_while_recovering() -> None:
    """§7.2: "No new messages originated on the new ring are broadcast in the Recovery state.\""""
    node = recovering(old(1))
    node.submits(b"new")
    effects = node.recovers()
    assert order(effects, Originate) == []
    assert sent(effects, Data) == []
    after = node.visited()
    assert one(after, Data).chunks == [b"new"]
    assert delivered(after) == [b"new"]


def test_the_retransmission_flag_is_raised_and_lowered_by_the_same_processor() -> None:
    """Fig. 6: if retrans_message_queue is not empty … retrans_flg := true; else if … I set it then :=
    false.
    """
    node = recovering(*[old(seq) for seq in range(1, 200)])
    assert one(first := node.visited(), Token).retrans_flg
    assert len(sent(first, Recovered)) == 128, "max_messages a visit"
    second = node.visited()
    assert len(sent(second, Recovered)) == 71
    assert not one(second, Token).retrans_flg


def test_anothers_flag_is_left_alone() -> None:
    node = recovering()
    assert one(node.visited(retrans_flg=True), Token).retrans_flg


def test_requests_work_on_the_new_ring_as_on_any() -> None:
    """Fig. 6: Regular token received: same as in Operational state except …"""
    node = recovering(old(1))
    node.visited()
    effects = node.visited(rtr=[1])
    assert [packet.seq for packet in sent(effects, Recovered)] == [1]
    node.visited(seq=2, aru=2)
    assert one(node.visited(), Token).rtr == [2]


def test_the_token_is_retransmitted_in_recovery_too() -> None:
    """Fig. 6: Token Retransmission timeout expired: retransmit token; reset Token Retransmission timeout."""
    node = recovering()
    token = one(node.visited(), Token)
    assert one(node.timeout("token-retransmission"), Token).token_seq == token.token_seq


# --- the six steps ----------------------------------------------------------------------------------------


def test_the_ring_is_installed_at_the_third_quiet_visit() -> None:
    """Fig. 6: if my_retrans_flg_count ≥ 3 and token.aru ≥ my_install_seq on last two rotations:
    Shift_to_Operational.
    """
    node = recovering()
    assert shifts(node.visited()) == []
    assert shifts(node.visited()) == []
    assert shifts(node.visited()) == [("operational", "recovered")]


def test_not_while_somebody_lacks_something() -> None:
    node = recovering(old(1))
    node.visited()
    for _ in range(6):
        assert shifts(node.visited(aru=0, aru_id=1)) == []
    node.visited(aru=1, aru_id=0)
    assert shifts(node.visited(aru=1, aru_id=0)) == [("operational", "recovered")]


def test_steps_2_to_6_are_one_action_in_this_order() -> None:
    """§7.2: deliver what can be delivered on the old ring; the first Configuration Change message; what can
    be delivered in the transitional configuration; the second Configuration Change message; shift to the
    Operational state.
    """
    node = recovering(old(1, b"safe", safe=True), theirs=entry(1, FIRST, aru=1))
    node.visited()
    node.visited()
    effects = node.visited()
    kinds = order(effects, Install, Deliver, Shift)
    assert kinds == [Install, Deliver, Install, Shift]
    assert story(effects) == [TRANSITIONAL, b"safe", REGULAR]


def test_what_some_member_delivered_as_safe_is_delivered_on_the_old_ring() -> None:
    """§7.2: "(2) if some other processor has already delivered the message as safe on the old ring as
    indicated by high_ring_delivered."
    """
    messages = (old(1, b"a", safe=True), old(2, b"b", safe=True))
    node = recovering(*messages, theirs=entry(1, FIRST, aru=2, delivered=1))
    assert story(node.recovers()) == [b"a", TRANSITIONAL, b"b", REGULAR]


def test_what_the_exchange_brings_is_delivered_in_the_old_order() -> None:
    """§7.2: "the old ring sequence numbers are used to order messages as messages of the old ring"."""
    node = recovering(old(2, b"b"), old(3, b"c", safe=True))
    node.hears(envelope(1, old(1, b"a")))
    effects = node.hears(node.next_token(seq=1, aru=1)) + node.recovers()
    assert story(effects) == [b"a", b"b", TRANSITIONAL, b"c", REGULAR]


def test_messages_behind_a_gap_are_delivered_if_their_sender_comes_along() -> None:
    """§7.2: "Such messages follow a gap in the message sequence … delivery of those messages might violate
    causality", but not those of "processors in my_deliver_memb".
    """
    node = recovering(old(1, b"a"), old(3, b"left behind", origin=3), old(4, b"comes along", origin=1))
    assert story(node.recovers()) == [TRANSITIONAL, b"comes along", REGULAR]


def test_a_message_half_sent_on_the_old_ring_is_sent_whole_on_the_new_one() -> None:
    node = operational(me=2, packet_size=256, max_messages=1)
    node.submits(b"x" * 400)
    assert sent(node.visited(), Data)
    lost(node, 3)
    entries = [entry(1, FIRST), entry(2, FIRST)]
    node.commits(SECOND, entries)
    node.returns(entries)
    effects = node.recovers()
    for _ in range(5):
        effects += node.visited()
    assert story(effects) == [TRANSITIONAL, REGULAR, b"x" * 400]


def test_a_message_of_one_who_has_installed_the_ring_waits_until_i_have() -> None:
    """§7.2: "some processors may have installed the new ring while others have not"."""
    node = recovering()
    node.visited()
    node.visited()
    early = data(1, b"early", origin=1, ring=SECOND)
    assert node.hears(early) == []
    assert drops(node.hears(early)) == ["duplicate"]
    assert story(node.visited(seq=1, aru=1)) == [TRANSITIONAL, REGULAR, b"early"]


# --- what comes too late or from elsewhere ----------------------------------------------------------------


def test_old_messages_come_in_envelopes_or_not_at_all() -> None:
    """Everyone must have the same of them: what was exchanged, in the new ring's order."""
    node = recovering()
    assert drops(node.hears(old(1))) == ["old ring, already exchanged"]


def test_an_envelope_is_received_once_and_on_its_ring() -> None:
    node = recovering()
    packet = envelope(1, old(1))
    assert node.hears(packet) == []
    assert drops(node.hears(packet)) == ["duplicate"]
    assert drops(node.hears(envelope(2, old(2), ring=THIRD))) == ["other ring"]
    node.hears(node.next_token(seq=1, aru=1))
    node.recovers()
    assert drops(node.hears(packet)) == ["duplicate"]


def test_an_envelope_is_nothing_to_an_operational_ring_it_is_not_of() -> None:
    assert drops(operational().hears(envelope(1, old(1)))) == ["other ring"]


def test_the_old_rings_token_is_discarded() -> None:
    node = operational(me=2)
    stale = node.next_token()
    lost(node, 3)
    entries = [entry(1, FIRST), entry(2, FIRST)]
    node.commits(SECOND, entries)
    node.returns(entries)
    assert drops(node.hears(stale)) == ["token of another ring"]


# --- failure of recovery ----------------------------------------------------------------------------------


def again(node: Node, ring: ConfigurationId, *entries: Entry) -> list[Effect]:
    """After a failed attempt, the next: everyone agrees, and the Commit token goes round twice."""
    members = [each.node for each in entries]
    proc_set = tuple(sorted({*members, 1, 2, 3}))
    failed = tuple(member for member in proc_set if member not in members)
    effects: list[Effect] = []
    for _ in range(2):
        for member in members:
            if member != node.me and node.state is State.GATHER:
                effects += node.hears(Join(member, 12, proc_set, failed))
    if node.me != members[0]:
        effects += node.commits(ring, entries)
    return effects + node.returns(entries)


def test_loss_of_the_token_abandons_the_new_ring_and_keeps_the_old() -> None:
    """Fig. 6: discard all new messages received on the new ring; empty retrans_message_queue; determine
    current old ring aru (it may have increased); call Shift_to_Gather.
    """
    node = recovering(old(2))
    node.hears(envelope(1, old(1)), envelope(2, old(3)))
    effects = node.timeout("token-loss")
    assert shifts(effects) == [("gather", "token lost")]
    assert one(effects, Join).ring_seq == SECOND.seq, "the number of the ring given up is used up"
    commit = again(node, ConfigurationId(16, 1), entry(1, FIRST), entry(2, FIRST))
    assert sent(commit, Commit)[0].entries[1] == Entry(2, FIRST, 3, 0, False, LIMITS)


def test_a_members_join_abandons_it_too() -> None:
    """Fig. 6: … execute code for Token Loss timeout expired in Recovery state."""
    node = recovering()
    assert node.hears(Join(1, 8, (1, 2), ())) == [], "sent before it committed itself"
    effects = node.hears(Join(1, 12, (1, 2), ()))
    assert shifts(effects) == [("gather", "join heard")]


def test_a_strangers_join_and_foreign_messages_do_not() -> None:
    """Fig. 6: Foreign message from processor q received: discard message."""
    node = recovering()
    assert drops(node.hears(Join(9, 40, (9,), ()))) == ["join of a stranger"]
    assert drops(node.hears(data(1, origin=9, ring=ConfigurationId(8, 9)))) == ["other ring"]
    assert node.state is State.RECOVERY


def test_a_farewell_abandons_it() -> None:
    effects = recovering().hears(Join(1, 12, (1,), (), leave=True))
    assert shifts(effects) == [("gather", "member left")]


def test_who_fails_to_receive_is_excluded_in_recovery_too() -> None:
    """§6.2.2: "a processor cannot be allowed to fail to receive messages indefinitely"."""
    node = recovering(old(1))
    node.visited()
    effects: list[Effect] = []
    while node.state is State.RECOVERY:
        node.waits(10_000)
        effects = node.visited(aru=0, aru_id=1)
    assert shifts(effects) == [("gather", "failure to receive")]
    assert 1 in one(effects, Join).fail_set


def received() -> Node:
    """A node whose attempt to recover failed after it had received everything: 1 may have installed the ring.

    Message 1 is missing, 3 was sent by 1 and 4 by 3, which is lost.
    """
    node = recovering(
        old(2, b"lost", origin=3), old(3, b"of 1", origin=1, safe=True), old(4, b"of 3", origin=3)
    )
    node.visited()
    node.visited()
    node.timeout("token-loss")
    return node


def alone(node: Node) -> list[Effect]:
    """After a failed attempt nobody answers any more."""
    return node.timeout("consensus") + node.timeout("consensus")


def test_received_flg_survives_the_attempt() -> None:
    """§6.1: "The received_flg field indicates that the processor has already received all of the messages
    possessed by other processors in its transitional configuration."
    """
    node = received()
    effects = again(node, ConfigurationId(16, 1), entry(1, FIRST), entry(2, FIRST))
    assert sent(effects, Commit)[0].entries[1].received_flg


def test_what_another_may_have_delivered_as_safe_is_delivered_in_the_next_attempt() -> None:
    """§7.2: "if a processor finds the received_flg in the Commit token set to true for every processor in
    my_trans_memb, it must retain the old ring messages originated by members of my_deliver_memb and deliver
    them as safe in my_trans_memb".
    """
    effects = alone(received())
    transitional, payload, regular = story(effects)
    assert payload == b"of 1", "although 1 is not in the transitional configuration any more"
    assert transitional == Configuration(ConfigurationId(14, 2), Kind.TRANSITIONAL, (2,))
    assert regular == Configuration(THIRD, Kind.REGULAR, (2,))


def test_then_the_set_of_old_messages_is_frozen() -> None:
    """What comes to this node alone, after the exchange, cannot be delivered by the others."""
    node = received()
    assert drops(node.hears(old(1, b"late"))) == ["old ring, already exchanged"]
    assert b"late" not in story(alone(node))


def test_if_all_have_received_everything_nothing_is_broadcast_again() -> None:
    """Fig. 7: "if for some processor in my_trans_memb received_flg = false then …" only then a new
    exchange.
    """
    node = received()
    again(node, ConfigurationId(16, 1), entry(1, FIRST, received=True), entry(2, FIRST))
    effects = node.recovers()
    assert sent(effects, Recovered) == []
    assert b"of 1" in story(effects)


def test_if_somebody_has_not_the_exchange_starts_afresh() -> None:
    node = received()
    again(node, ConfigurationId(16, 1), entry(1, FIRST), entry(2, FIRST))
    assert [packet.old.seq for packet in sent(node.visited(), Recovered)] == [2, 3, 4]


@pytest.mark.parametrize("quiet", [0, 1])
def test_before_the_second_quiet_visit_nobody_can_have_installed_the_ring(quiet: int) -> None:
    """Fig. 6: if my_retrans_flg_count ≥ 2 … then my_received_flg := true."""
    node = recovering()
    for _ in range(quiet):
        node.visited()
    node.timeout("token-loss")
    commit = again(node, ConfigurationId(16, 1), entry(1, FIRST), entry(2, FIRST))
    assert not sent(commit, Commit)[0].entries[1].received_flg


def test_after_so_many_failures_a_further_one_is_forced() -> None:
    """§7.2: "my_trans_memb must decrease on successive passes through the Recovery state before a new ring
    is installed."
    """
    node = recovering()
    fail_sets = [one(node.timeout("token-loss"), Join).fail_set]
    for number in (16, 20):
        again(node, ConfigurationId(number, 1), entry(1, FIRST), entry(2, FIRST))
        fail_sets.append(one(node.timeout("token-loss"), Join).fail_set)
    assert fail_sets == [(3,), (3,), (1, 3)]

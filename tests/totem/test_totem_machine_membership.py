"""The membership protocol (000 §6, Figs 3, 4, 5 and 7), one event at a time."""

from __future__ import annotations

import pytest
from totem_node import FIRST, Node, entry, form, one, operational, order, receivers, sent, started
from totem_parts import data, delivered

from effects import drops, shifts, timers
from ordercast.core.contract import Install, Multicast, Persist, Shift, Unicast
from ordercast.core.identity import ConfigurationId, Kind
from ordercast.totem.packets import Announce, Commit, Join, Token
from ordercast.totem.states import State
from ordercast.totem.storage import store

NEXT_RING = ConfigurationId(12, 1)


def join(
    sender: int, *proc_set: int, failed: tuple[int, ...] = (), ring_seq: int = 8, merge: bool = False
) -> Join:
    return Join(sender, ring_seq, proc_set, failed, merge=merge)


# --- start -----------------------------------------------------------------------------------------------


def test_a_processor_starts_with_a_singleton_ring_and_then_looks_for_others() -> None:
    """§6.2.2: "it first forms and installs a singleton ring … then broadcasts a Join message containing the
    value of my_ring_id.seq, obtained from its stable storage, and shifts to the Gather state."
    """
    effects = Node(3).starts(stored=store(40))
    assert order(effects, Persist, Install, Shift, Multicast) == [Persist, Install, Shift, Multicast]
    (installed,) = [effect.configuration for effect in effects if isinstance(effect, Install)]
    assert installed == (ConfigurationId(44, 3), Kind.REGULAR, (3,))
    assert one(effects, Join) == Join(3, 44, (3,), ())
    assert shifts(effects) == [("gather", "started")]


def test_a_disk_of_something_else_is_refused_in_words() -> None:
    with pytest.raises(
        ValueError, match=r"^node 3: the stored state is not one of ordercast's; restore the file"
    ):
        Node(3).starts(stored=b"something else")


def test_alone_the_consensus_timeout_ends_the_search() -> None:
    """§6.2.2, termination, the base case: "a single processor identifier"."""
    node = started(me=3)
    effects = node.timeout("consensus")
    assert shifts(effects) == [
        ("commit", "consensus"),
        ("recovery", "commit token returned"),
        ("operational", "recovered"),
    ]
    told = [effect.configuration for effect in effects if isinstance(effect, Install)]
    assert told == [
        (ConfigurationId(6, 3), Kind.TRANSITIONAL, (3,)),
        (ConfigurationId(8, 3), Kind.REGULAR, (3,)),
    ]
    assert not sent(effects, Commit), "there is nobody to send it to"


# --- Fig. 3: what ends the Operational state ---------------------------------------------------------------


def test_loss_of_the_token_leads_to_gather() -> None:
    """Fig. 3: Token Loss timeout expired: call Shift_to_Gather."""
    effects = operational(me=2).timeout("token-loss")
    assert shifts(effects) == [("gather", "token lost")]
    assert one(effects, Join) == Join(2, 8, (1, 2, 3), ())


def test_shift_to_gather_sets_and_cancels_the_timeouts() -> None:
    """Fig. 7: cancel Token Loss timeout and Token Retransmission timeouts; reset Join and Consensus
    timeouts.
    """
    node = operational(join_us=3_000, consensus_us=20_000, consensus_member_us=100)
    assert timers(node.timeout("token-loss")) == {
        "token-loss": None,
        "token-retransmission": None,
        "hold": None,
        "join": 3_000,
        "consensus": 20_000 + 3 * 100,
    }


def test_a_members_join_leads_to_gather_whatever_it_says() -> None:
    """Fig. 3: "call Shift_to_Gather regardless of Join message's content"."""
    effects = operational(me=2).hears(join(3, 3))
    assert shifts(effects) == [("gather", "join heard")]
    assert one(effects, Join) == Join(2, 8, (1, 2, 3), ())


def test_a_join_that_lingered_in_the_network_is_recognised_by_its_ring_seq() -> None:
    """§6.1: "The ring_seq field allows the receiver of a Join message to determine if the sender has
    abandoned a past round of consensus"; one from before the present ring says nothing about it.
    """
    effects = operational(me=2).hears(join(3, 3, ring_seq=4))
    assert drops(effects) == ["outdated join"]
    assert shifts(effects) == []


def test_a_strangers_join_makes_the_ring_show_itself() -> None:
    """PEERS.md, one-way links: whether we can be on one ring with a stranger has to be verified first."""
    node = operational(me=2)
    node.waits(1_000_000)
    effects = node.hears(join(9, 9))
    assert shifts(effects) == []
    assert one(effects, Announce).heard == (9,)
    assert sent(node.hears(join(9, 9)), Announce) == [], "not every time"


def test_a_stranger_that_has_verified_the_ring_may_ask_it_along() -> None:
    node = settled(me=2)
    effects = node.hears(join(9, 1, 2, 3, 9, merge=True))
    assert shifts(effects) == [("gather", "join heard")]
    assert one(effects, Join) == join(2, 1, 2, 3, 9, merge=True), "and passes the invitation on"


def test_a_stranger_that_asks_others_or_regards_this_node_as_failed_does_not_disturb_it() -> None:
    node = settled(me=2)
    assert shifts(node.hears(join(9, 1, 9, merge=True))) == []
    assert shifts(node.hears(join(9, 1, 2, 9, failed=(2,), merge=True))) == []


def test_a_commit_token_is_discarded_in_operational() -> None:
    """Fig. 3: Commit token received: discard the Commit token."""
    effects = operational(me=2).hears(Commit(NEXT_RING, (1, 2), 1, (entry(1, FIRST),)))
    assert drops(effects) == ["commit token of another ring"]


def test_who_holds_aru_up_for_too_long_is_excluded() -> None:
    """§6.2.2: "When its local variable my_aru_count reaches a predetermined constant, a processor
    determines that some other processor has failed to receive, namely the processor whose identifier is in
    the aru_id field of the token. It then includes that processor's identifier in its my_fail_set, shifts
    to the Gather state, and broadcasts a Join".
    """
    node = operational(me=2, fail_to_receive=3)
    node.hears(data(1, ring=FIRST))
    for _ in range(3):
        assert one(node.visited(seq=1, aru=0, aru_id=3), Token)
    node.waits(node.machine.config.token_loss_us)
    effects = node.visited(seq=1, aru=0, aru_id=3)
    assert shifts(effects) == [("gather", "failure to receive")]
    assert one(effects, Join) == Join(2, 8, (1, 2, 3), (3,))
    assert not sent(effects, Token), "the token goes no further"


def test_who_holds_aru_up_does_not_exclude_itself() -> None:
    """Fig. 3 says so (aru_id = my_id); the text of §6.2.2 says the opposite, and only that terminates."""
    node = operational(me=2, fail_to_receive=3)
    node.visited(seq=1, aru=1)
    for _ in range(10):
        assert one(node.visited(), Token).aru_id == 2


# --- Fig. 4: Gather ---------------------------------------------------------------------------------------


def test_the_join_timeout_repeats_the_join() -> None:
    """Fig. 4: Join timeout expired: broadcast Join message with my_proc_set, my_fail_set …; set Join
    timeout.
    """
    node = started(me=2)
    effects = node.timeout("join")
    assert one(effects, Join) == Join(2, 4, (2,), ())
    assert timers(effects) == {"join": node.machine.config.join_us}


def test_a_join_with_news_is_merged_and_starts_the_round_again() -> None:
    """Fig. 4: merge message.proc_set into my_proc_set …; call Shift_to_Gather."""
    effects = started(me=2).hears(join(3, 3, 5))
    assert shifts(effects) == [("gather", "news")]
    assert one(effects, Join) == Join(2, 4, (2, 3, 5), ())


def test_a_join_that_knows_less_is_answered_by_the_next_join_timeout() -> None:
    """Fig. 4: else if message.proc_set subset of my_proc_set and … then return."""
    node = started(me=2)
    node.hears(join(3, 2, 3, 5))
    assert node.hears(join(5, 5)) == []


def test_who_regards_me_as_failed_is_failed_to_me() -> None:
    """Fig. 4: if my_id in message.fail_set then add message.sender_id to my_fail_set."""
    effects = started(me=2).hears(join(3, 2, 3, 5, failed=(2,)))
    assert one(effects, Join) == Join(2, 4, (2, 3, 5), (3,))


def test_joins_of_a_failed_node_are_not_heard() -> None:
    """Fig. 4: else if q in my_fail_set then return."""
    node = started(me=2)
    node.hears(join(3, 2, 3, failed=(2,)))
    assert drops(node.hears(join(3, 2, 3, 5))) == ["join of a failed node"]


def test_own_joins_are_not_heard() -> None:
    assert drops(started(me=2).hears(join(2, 2))) == ["own packet"]


def test_who_is_silent_until_the_consensus_timeout_is_regarded_as_failed() -> None:
    """Fig. 4: for all r such that consensus[r] ≠ true do add r to my_fail_set; call Shift_to_Gather."""
    node = operational(me=2)
    node.timeout("token-loss")
    node.hears(join(3, 1, 2, 3))
    effects = node.timeout("consensus")
    assert shifts(effects) == [("gather", "no consensus")]
    assert one(effects, Join) == Join(2, 8, (1, 2, 3), (1,))


def test_the_representative_makes_the_commit_token_when_all_agree() -> None:
    """§6.2.2: the ring_id is "four plus the maximum of the ring sequence numbers in any of the Join
    messages used to reach consensus and its own"; the memb_list specifies "the order in which the token
    will circulate".
    """
    node = started(me=1)
    node.hears(join(2, 1, 2, 3, ring_seq=20))
    effects = node.hears(join(3, 1, 2, 3, ring_seq=16))
    assert shifts(effects) == [("commit", "consensus")]
    commit = one(effects, Commit)
    assert commit.ring == ConfigurationId(24, 1)
    assert commit.members == (1, 2, 3)
    assert commit.memb_index == 1
    assert [line.node for line in commit.entries] == [1]
    assert receivers(effects) == [2]


def test_the_ring_number_is_durable_before_the_commit_token_leaves() -> None:
    """PEERS.md: "Persist before the Commit token leaves the representative, not only at Recovery"."""
    node = started(me=1)
    effects = node.agrees((1, 2))
    behind = effects[effects.index(Shift(State.COMMIT, "consensus")) :]
    assert order(behind, Persist, Unicast) == [Persist, Unicast]
    assert Persist(store(8)) in behind


def test_a_members_ring_number_is_durable_before_the_commit_token_leaves_it() -> None:
    node = started(me=2)
    node.agrees((1, 2, 3))
    effects = node.commits(FIRST, [entry(1), entry(2), entry(3)])
    assert order(effects, Persist, Unicast) == [Persist, Unicast]
    assert receivers(effects) == [3]


def test_shift_to_commit_sets_and_cancels_the_timeouts() -> None:
    """Fig. 7: cancel Join and Consensus timeouts; reset Token Loss and Token Retransmission timeouts."""
    node = started(me=1)
    node.hears(join(2, 1, 2))
    node = started(me=2)
    node.agrees((1, 2))
    config = node.machine.config
    assert timers(node.commits(FIRST, [entry(1), entry(2)])) == {
        "join": None,
        "consensus": None,
        "token-loss": config.token_loss_us,
        "token-retransmission": config.token_retransmission_us,
    }


def test_others_wait_for_the_commit_token() -> None:
    """§6.2.2: another processor "sets the Token Loss timeout, cancels the Consensus timeout, and continues
    in the Gather state waiting for the Commit token".
    """
    node = started(me=2)
    effects = node.agrees((1, 2, 3))
    assert node.state is State.GATHER
    assert timers(effects)["consensus"] is None
    assert timers(effects)["token-loss"] == node.machine.config.token_loss_us


def test_without_a_commit_token_they_try_again() -> None:
    """Fig. 4: Token Loss timeout expired: …; call Shift_to_Gather."""
    node = started(me=2)
    node.agrees((1, 2, 3))
    effects = node.timeout("token-loss")
    assert shifts(effects) == [("gather", "no commit token")]
    assert one(effects, Join).proc_set == (1, 2, 3)


def test_the_repetition_of_a_membership_is_bounded() -> None:
    """§6.2.2: "an additional failure (which increases the fail_set) is forced to prevent the repetition of
    a proposed membership".
    """
    node = started(me=2, max_attempts=2)
    node.agrees((1, 2, 3))
    assert one(node.timeout("token-loss"), Join).fail_set == ()
    node.agrees((1, 2, 3))
    assert one(node.timeout("token-loss"), Join).fail_set == (3,)


def test_a_commit_token_for_the_agreed_membership_is_accepted() -> None:
    """Fig. 4: if my_proc_set − my_fail_set = token.memb and token.seq > my_ring_id.seq: call
    Shift_to_Commit.
    """
    node = started(me=2)
    node.agrees((1, 2, 3))
    effects = node.commits(FIRST, [entry(1), entry(2), entry(3)])
    assert shifts(effects) == [("commit", "commit token")]
    commit = one(effects, Commit)
    assert commit.memb_index == 2
    assert commit.entries == (entry(1), entry(2))


def test_a_commit_token_counts_as_consensus() -> None:
    """§6.2.2: "also considered to have reached consensus when it has received a Commit token with the same
    membership".
    """
    node = started(me=2)
    node.hears(join(3, 1, 2, 3))
    assert shifts(node.commits(FIRST, [entry(1), entry(2), entry(3)])) == [("commit", "commit token")]


def test_a_commit_token_for_another_membership_is_refused() -> None:
    """§6.2.2: "If they differ, the processor discards the Commit token"."""
    node = started(me=2)
    node.agrees((1, 2, 3))
    effects = node.hears(Commit(FIRST, (1, 2), 1, (entry(1),)))
    assert drops(effects) == ["commit token not agreed to"]


def test_a_commit_token_with_an_old_number_is_refused() -> None:
    node = started(me=2)
    node.agrees((1, 2, 3))
    effects = node.commits(ConfigurationId(4, 1), [entry(1), entry(2), entry(3)])
    assert drops(effects) == ["commit token not agreed to"]


@pytest.mark.parametrize(
    "commit",
    [
        Commit(FIRST, (1, 3), 1, (entry(1),)),
        Commit(FIRST, (1, 2, 3), 2, (entry(1), entry(2))),
    ],
    ids=["not a member", "not its turn"],
)
def test_a_commit_token_that_went_astray_is_dropped(commit: Commit) -> None:
    node = started(me=2)
    node.agrees((1, 2, 3))
    assert drops(node.hears(commit)) == ["commit token for another"]


def test_in_gather_the_old_rings_token_and_messages_are_treated_as_before() -> None:
    """Fig. 4: Regular token or regular message received: same as in Operational state."""
    node = operational(me=2)
    node.submits(b"mine")
    node.timeout("token-loss")
    assert delivered(node.hears(data(1, b"theirs", ring=FIRST))) == [b"theirs"]
    effects = node.visited(seq=1, aru=1)
    assert delivered(effects) == [b"mine"]
    assert one(effects, Token).seq == 2
    assert timers(effects) == {}, "there the Token Loss timeout waits for the Commit token"


def test_timers_of_gather_do_nothing_elsewhere() -> None:
    node = operational()
    assert node.timeout("join") == []
    assert node.timeout("consensus") == []


# --- Fig. 5: Commit ---------------------------------------------------------------------------------------


def committed(me: int = 2, **settings: int | bool) -> Node:
    """A node that waits for the Commit token's second visit."""
    node = started(me, **settings)
    node.agrees((1, 2, 3))
    if me != 1:
        node.commits(FIRST, [entry(1), entry(2), entry(3)])
    assert node.state is State.COMMIT
    return node


def test_in_commit_the_regular_token_is_discarded() -> None:
    """Fig. 5: Regular token received: discard token."""
    node = committed()
    token = Token(ConfigurationId(4, 2))
    token.token_seq = 1
    assert drops(node.hears(token)) == ["token of a ring given up"]


def test_in_commit_regular_messages_are_received_as_before() -> None:
    """Fig. 5: Regular message received: same as in Operational state."""
    node = operational(me=2)
    node.timeout("token-loss")
    node.agrees((1, 2, 3), ring_seq=8)
    node.commits(NEXT_RING, [entry(1, FIRST), entry(2, FIRST), entry(3, FIRST)])
    assert node.state is State.COMMIT
    assert delivered(node.hears(data(1, b"a", ring=FIRST))) == [b"a"]


def test_in_commit_a_strangers_join_is_discarded() -> None:
    node = committed()
    assert drops(node.hears(join(9, 9))) == ["join of a stranger"]


def test_in_commit_a_join_from_before_the_commit_token_changes_nothing() -> None:
    """Fig. 5: if q in my_new_memb and message.ring_seq ≥ my_ring_id.seq then …"""
    node = committed()
    assert shifts(node.hears(join(3, 1, 2, 3, ring_seq=4))) == []
    assert node.state is State.COMMIT


def test_in_commit_a_members_later_join_says_that_it_gave_the_ring_up() -> None:
    """Fig. 5: … execute code for receipt of Join message in Gather state; call Shift_to_Gather."""
    node = committed()
    effects = node.hears(join(3, 1, 2, 3))
    assert shifts(effects) == [("gather", "join heard")]
    assert one(effects, Join) == join(2, 1, 2, 3)
    assert node.machine.stats["attempts_failed"] == 1


def test_in_commit_loss_of_the_commit_token_leads_back_to_gather() -> None:
    """Fig. 5: Token Loss timeout expired: call Shift_to_Gather."""
    effects = committed().timeout("token-loss")
    assert shifts(effects) == [("gather", "token lost")]
    assert one(effects, Join) == join(2, 1, 2, 3)


def test_in_commit_the_commit_token_is_sent_again_until_it_is_known_to_have_moved() -> None:
    node = committed()
    effects = node.timeout("token-retransmission")
    assert one(effects, Commit).memb_index == 2
    assert receivers(effects) == [3]


def test_a_redundant_commit_token_is_dropped() -> None:
    node = committed()
    assert drops(node.commits(FIRST, [entry(1), entry(2), entry(3)])) == ["redundant commit token"]


def test_a_commit_token_that_changed_what_i_entered_is_not_trusted() -> None:
    node = committed()
    wrong = (entry(1), entry(2, aru=5), entry(3))
    assert drops(node.hears(Commit(FIRST, (1, 2, 3), 4, wrong))) == ["redundant commit token"]
    assert node.state is State.COMMIT


def test_another_rings_commit_token_does_not_disturb_a_commit() -> None:
    node = committed()
    effects = node.hears(Commit(NEXT_RING, (1, 2, 3), 1, (entry(1),)))
    assert drops(effects) == ["commit token of another ring"]


def test_the_second_visit_of_the_commit_token_leads_to_recovery() -> None:
    """Fig. 5: Commit token received: if token.seq = my_ring_id.seq then call Shift_to_Recovery."""
    node = committed()
    effects = node.returns([entry(1), entry(2), entry(3)])
    assert shifts(effects) == [("recovery", "commit token returned")]
    commit = one(effects, Commit)
    assert commit.memb_index == 5
    assert len(commit.entries) == 3, "forwarded for the second time, with what everyone entered"


# --- strangers and merging (PEERS.md) ---------------------------------------------------------------------


def settled(me: int = 1, members: tuple[int, ...] = (1, 2, 3)) -> Node:
    """A node on a ring that has been there long enough to be disturbed."""
    node = operational(me, members)
    for _ in range(3):
        node.visited()
    node.waits(1_000_000)
    return node


THEIRS = ConfigurationId(8, 8)
"""The ring of the strangers 8 and 9."""


def announce(sender: int, *heard: int, ring: ConfigurationId = THEIRS) -> Announce:
    return Announce(sender, ring, (8, 9), heard)


def verified(node: Node, *also: int) -> None:
    """Nodes 8 and 9, on one ring, hear this node and those."""
    heard = tuple(sorted({node.me, *also}))
    node.hears(announce(8, *heard), announce(9, *heard))
    node.waits(50_000)
    node.hears(announce(8, *heard), announce(9, *heard))


def test_a_representative_announces_its_ring_now_and_then() -> None:
    node = settled(me=1)
    effects = node.timeout("announce")
    assert one(effects, Announce) == Announce(1, FIRST, (1, 2, 3), ())
    assert timers(effects) == {"announce": node.machine.config.announce_us}


def test_an_ordinary_member_announces_while_there_are_strangers_to_answer() -> None:
    node = settled(me=2)
    assert sent(node.timeout("announce"), Announce) == []
    node.hears(announce(8))
    node.waits(100_000)
    assert one(node.timeout("announce"), Announce).heard == (8,)


def test_while_a_ring_is_formed_nothing_is_announced() -> None:
    assert started().timeout("announce") == []


def test_announcements_of_members_and_outdated_ones_tell_nothing() -> None:
    node = settled(me=2)
    assert drops(node.hears(Announce(3, FIRST, (1, 2, 3), ()))) == ["announce of a member"]
    node.hears(announce(8, ring=ConfigurationId(20, 8)))
    assert drops(node.hears(announce(8, ring=ConfigurationId(16, 8)))) == ["outdated announce"]


def test_the_representative_asks_all_members_before_it_merges() -> None:
    """The token carries the strangers round; who comes back unstruck is heard by all and hears all."""
    node = settled(me=1)
    verified(node)
    asked = node.visited()
    assert one(asked, Token).merge == (8, 9)
    assert shifts(asked) == []
    effects = node.visited()
    assert shifts(effects) == [("gather", "merge")]
    assert one(effects, Join) == Join(1, 8, (1, 2, 3, 8, 9), (), merge=True)


def test_who_was_struck_out_on_the_way_is_not_merged_with() -> None:
    node = settled(me=1)
    verified(node)
    node.visited()
    effects = node.hears(node.next_token(merge=(8,)))
    assert shifts(effects) == [], "8 comes with 9 or not at all"


def test_an_ordinary_member_strikes_out_whom_it_does_not_hear() -> None:
    node = settled(me=2)
    node.hears(announce(8, 2))
    node.waits(50_000)
    node.hears(announce(8, 2))
    effects = node.hears(node.next_token(merge=(8, 9)))
    assert one(effects, Token).merge == (8,)


def test_a_ring_that_is_not_settled_does_not_merge_yet() -> None:
    """Else two rings can find each other and fail to merge, over and over, in step."""
    node = started(me=1, consensus_us=60_000)
    node.hears(announce(8, 1), announce(9, 1))
    node.waits(40_000)
    form(node, (1, 2, 3))
    node.waits(40_000)
    node.hears(announce(8, 1), announce(9, 1))
    assert one(node.visited(), Token).merge == (8, 9)
    assert shifts(node.visited()) == [], "they are verified, but the ring is young"
    assert shifts(node.hears(join(8, 1, 2, 3, 8, 9, merge=True))) == []


def test_alone_a_node_merges_as_soon_as_it_may() -> None:
    node = started(me=1)
    node.timeout("consensus")
    node.waits(1_000_000)
    node.hears(announce(8, 1), announce(9, 1))
    node.waits(50_000)
    assert shifts(node.hears(announce(8, 1))) == [("gather", "merge")]


def test_alone_a_node_merges_at_its_next_announcement_if_nobody_speaks_again() -> None:
    node = started(me=1)
    node.timeout("consensus")
    node.waits(1_000_000)
    node.hears(announce(8, 1), announce(9, 1))
    node.waits(50_000)
    assert shifts(node.timeout("announce")) == [("gather", "merge")]


def test_strangers_that_gather_bring_what_they_said_before_to_an_end() -> None:
    node = settled(me=1)
    verified(node)
    node.visited()
    node.hears(join(9, 9, ring_seq=8))
    assert shifts(node.visited()) == []


def test_in_gather_a_stranger_is_remembered_and_not_answered() -> None:
    node = started(me=1)
    assert sent(node.hears(announce(8, 1)), Announce) == []


# --- leave ------------------------------------------------------------------------------------------------


def farewell(sender: int, ring_seq: int = 8) -> Join:
    return Join(sender, ring_seq, (sender,), (), leave=True)


def test_a_farewell_spares_the_token_loss_timeout() -> None:
    effects = operational(me=2).hears(farewell(3))
    assert shifts(effects) == [("gather", "member left")]
    assert one(effects, Join) == join(2, 1, 2, 3, failed=(3,))


def test_a_farewell_in_gather_spares_the_consensus_timeout() -> None:
    node = started(me=1)
    node.hears(join(2, 1, 2, 3, ring_seq=4), join(2, 1, 2, 3, ring_seq=4))
    effects = node.hears(farewell(3, ring_seq=4))
    assert shifts(effects) == [("gather", "member left")]
    assert one(effects, Join).fail_set == (3,)


def test_a_farewell_of_a_member_ends_a_commit() -> None:
    effects = committed().hears(farewell(3))
    assert shifts(effects) == [("gather", "member left")]
    assert one(effects, Join).fail_set == (3,)


def test_a_farewell_is_heard_once_and_only_from_those_concerned() -> None:
    node = operational(me=2)
    assert drops(node.hears(farewell(9))) == ["join of a stranger"]
    node.hears(farewell(3))
    assert drops(node.hears(farewell(3))) == ["join of a stranger"]
    waiting = committed()
    assert drops(waiting.hears(farewell(9))) == ["join of a stranger"]

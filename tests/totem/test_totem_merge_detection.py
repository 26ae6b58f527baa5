"""Nodes outside the ring: who is heard, who hears us, and with whom the ring could merge."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from totem_parts import RING, examples, ring, token

from ordercast.core.identity import ConfigurationId
from ordercast.totem.merge_detection import MergeDetection
from ordercast.totem.packets import Announce, Token

ME = 1
ANNOUNCE_US = 80
HEARD_US = 300
THEIRS = ConfigurationId(8, 5)


def strangers(me: int = ME, calm_us: int = 0, limit: int = 10) -> MergeDetection:
    return MergeDetection(me, ANNOUNCE_US, HEARD_US, calm_us, limit)


def announce(
    sender: int,
    members: tuple[int, ...] = (5, 6),
    heard: tuple[int, ...] = (ME,),
    theirs: ConfigurationId = THEIRS,
) -> Announce:
    return Announce(sender, theirs, members, heard)


def meet(made: MergeDetection, now_us: int, told: Announce) -> None:
    """What a node does with a stranger's announcement."""
    made.hear(now_us, told.sender)
    made.learn(now_us, told)


def listed(visiting: Token) -> list[int]:
    """The strangers on the token."""
    return list(visiting.merge)


# --- who is heard -------------------------------------------------------------------------------


def test_a_stranger_is_news_once_and_again_after_a_silence() -> None:
    """000 §6.2.1: a foreign message is one of a processor that is not a member of the ring."""
    made = strangers()
    assert made.hear(0, 5)
    assert not made.hear(10, 5)
    assert not made.hear(10 + HEARD_US, 5)
    assert made.hear(11 + 2 * HEARD_US, 5)


def test_strangers_are_listed_while_they_are_heard() -> None:
    made = strangers()
    made.hear(0, 7)
    made.hear(100, 5)
    assert made.heard(HEARD_US) == (5, 7)
    assert made.heard(HEARD_US + 1) == (5,)
    assert made.heard(HEARD_US + 101) == ()


def test_only_so_many_strangers_are_remembered() -> None:
    """A full table keeps whom it has while they speak; the silent ones make room."""
    made = strangers(limit=2)
    made.hear(0, 5)
    made.hear(0, 6)
    assert made.hear(1, 7)
    assert made.heard(1) == (5, 6)
    made.hear(HEARD_US, 6)
    assert made.hear(HEARD_US + 1, 7)
    assert made.heard(HEARD_US + 1) == (6, 7)
    meet(made, HEARD_US + 1, announce(5))
    assert made.mutual(HEARD_US + 1) == ()


def test_with_a_stranger_what_it_said_is_forgotten() -> None:
    made = strangers(limit=1)
    meet(made, 0, announce(5, members=(5,)))
    assert made.mergeable((5,)) == {5}
    made.hear(HEARD_US + 1, 7)
    assert made.mergeable((5,)) == set()


def test_a_stranger_that_was_silent_returns_to_a_full_table() -> None:
    made = strangers(limit=1)
    meet(made, 0, announce(5))
    assert made.hear(HEARD_US + 1, 5)
    assert made.heard(HEARD_US + 1) == (5,)
    assert made.mutual(HEARD_US + 1) == (), "what it said before its silence is forgotten"


# --- who hears us -------------------------------------------------------------------------------


def test_a_stranger_is_mutual_when_it_says_that_it_hears_me() -> None:
    made = strangers()
    meet(made, 0, announce(5))
    meet(made, 0, announce(6, heard=(2, 3)))
    made.hear(0, 7)
    assert made.mutual(0) == (5,)


def test_a_stranger_may_lose_its_hearing() -> None:
    made = strangers()
    meet(made, 0, announce(5))
    meet(made, 1, announce(5, heard=()))
    assert made.mutual(1) == ()


def test_a_claim_grows_old_even_if_its_maker_is_still_heard() -> None:
    made = strangers()
    meet(made, 0, announce(5))
    made.hear(HEARD_US + 1, 5)
    assert made.heard(HEARD_US + 1) == (5,)
    assert made.mutual(HEARD_US) == (5,)
    assert made.mutual(HEARD_US + 1) == ()


def test_a_ring_is_left_in_peace_until_it_has_been_there_for_a_while() -> None:
    """Two rings that have just formed would otherwise break each other up, in step, again and again."""
    made = strangers(calm_us=100)
    meet(made, 0, announce(5))
    assert made.mutual(99) == ()
    meet(made, 99, announce(5))
    assert made.mutual(99) == ()
    assert made.mutual(100) == (5,)


def test_with_another_ring_the_waiting_starts_again() -> None:
    made = strangers(calm_us=100)
    meet(made, 0, announce(5))
    meet(made, 50, announce(5, theirs=ConfigurationId(12, 5)))
    assert made.mutual(149) == ()
    assert made.mutual(150) == (5,)


def test_a_stranger_that_forms_another_ring_has_left_the_one_it_spoke_of() -> None:
    made = strangers(calm_us=100)
    meet(made, 0, announce(5))
    made.unsettle(5)
    made.unsettle(6)
    assert made.heard(100) == (5,)
    assert made.mutual(100) == ()
    assert made.mergeable((5, 6)) == set()
    meet(made, 100, announce(5))
    assert made.mutual(199) == ()
    assert made.mutual(200) == (5,)


def test_nothing_is_learnt_from_a_node_that_is_not_heard() -> None:
    made = strangers()
    made.learn(0, announce(5))
    made.hear(0, 5)
    assert made.mutual(0) == ()


# --- with whom the ring could merge -------------------------------------------------------------


def test_a_foreign_ring_is_merged_with_when_every_member_of_it_is_verified() -> None:
    made = strangers()
    meet(made, 0, announce(5, members=(5, 6)))
    meet(made, 0, announce(6, members=(5, 6)))
    meet(made, 0, announce(7, members=(7, 8)))
    assert made.mergeable((5, 6, 7)) == {5, 6}
    assert made.mergeable((5, 7)) == set()
    assert made.mergeable(()) == set()


def test_a_verified_node_that_made_no_claim_brings_nobody_along() -> None:
    made = strangers()
    meet(made, 0, announce(5, members=(5, 6)))
    assert made.mergeable((6,)) == set()
    assert made.mergeable((5, 6)) == {5, 6}


# --- showing the ring, and asking its members ---------------------------------------------------


def test_a_ring_shows_itself_with_the_strangers_that_are_heard() -> None:
    made = strangers()
    made.hear(0, 7)
    made.hear(0, 5)
    assert made.announce(0, ring(), 99) == Announce(ME, RING, (1, 2, 3), (5, 7), 99)


def test_strangers_are_not_told_again_at_once() -> None:
    """However many strangers speak up at the same time, an eighth of the interval lies in between."""
    made = strangers()
    told = [now_us for now_us in range(40) if made.announce(now_us, ring(), 99) is not None]
    assert told == [0, 10, 20, 30]


def test_the_representative_asks_by_the_token_and_what_comes_back_is_verified() -> None:
    made = strangers()
    meet(made, 0, announce(5))
    meet(made, 0, announce(6))
    made.hear(0, 7)
    visiting = token()
    assert made.check(0, ring(), visiting) == set()
    assert listed(visiting) == [5, 6]
    assert made.check(1, ring(), visiting) == {5, 6}


def test_a_member_strikes_out_whom_it_cannot_exchange_messages_with() -> None:
    made = strangers(me=2)
    meet(made, 0, announce(5, heard=(2,)))
    visiting = token()
    visiting.merge = (5, 6)
    assert made.check(0, ring(me=2), visiting) == set()
    assert listed(visiting) == [5]
    assert made.check(HEARD_US + 1, ring(me=2), visiting) == set()
    assert listed(visiting) == []
    assert made.check(0, ring(me=2), visiting) == set()
    assert listed(visiting) == [], "only the representative puts strangers on the list"


def test_a_ring_of_which_one_member_was_struck_out_is_not_merged_with() -> None:
    made = strangers()
    meet(made, 0, announce(5))
    meet(made, 0, announce(6))
    visiting = token()
    made.check(0, ring(), visiting)
    visiting.merge = (5,)
    assert made.check(1, ring(), visiting) == set()
    assert listed(visiting) == [5, 6], "it is asked again"


def test_a_stranger_that_went_silent_meanwhile_is_not_merged_with() -> None:
    made = strangers()
    meet(made, 0, announce(5, members=(5,)))
    meet(made, 100, announce(6, members=(6,)))
    visiting = token()
    made.check(100, ring(), visiting)
    assert made.check(HEARD_US + 1, ring(), visiting) == {6}


def test_a_list_that_was_not_asked_for_verifies_nothing() -> None:
    made = strangers()
    meet(made, 0, announce(5, members=(5,)))
    visiting = token()
    visiting.merge = (5,)
    assert made.check(0, ring(), visiting) == set()
    made.stop_checking()
    assert made.check(1, ring(), visiting) == set(), "the ring of that token was given up"
    assert made.check(2, ring(), visiting) == {5}


def test_no_more_strangers_are_asked_about_than_the_ring_has_room_for() -> None:
    made = strangers(limit=4)
    for node in (5, 6):
        meet(made, 0, announce(node))
    visiting = token()
    made.check(0, ring(), visiting)
    assert listed(visiting) == [5]
    made.check(0, ring(members=(1, 2, 3, 4, 8)), visiting)
    assert listed(visiting) == []


def test_without_strangers_nothing_is_asked() -> None:
    visiting = token()
    assert strangers().check(0, ring(), visiting) == set()
    assert listed(visiting) == []


# --- what lingered in the network ---------------------------------------------------------------


def test_a_lower_ring_number_marks_a_packet_that_lingered() -> None:
    """000 §6.1: ring_seq tells whether the sender has abandoned a past round of consensus."""
    made = strangers()
    assert not made.outdated(0, 5, 1, 8)
    assert not made.outdated(0, 5, 1, 8)
    assert not made.outdated(0, 5, 1, 12)
    assert made.outdated(0, 5, 1, 8)
    assert not made.outdated(0, 6, 1, 8)


def test_a_new_life_may_count_from_below_and_packets_of_the_earlier_one_lingered() -> None:
    made = strangers()
    assert not made.outdated(0, 5, 1, 800)
    assert not made.outdated(1, 5, 2, 8), "a node that lost its disk"
    assert made.outdated(2, 5, 1, 800)
    assert made.outdated(2, 5, 1, 900)
    assert not made.outdated(3, 5, 3, 4)
    assert made.outdated(4, 5, 1, 900)
    assert made.outdated(4, 5, 2, 900)
    assert not made.outdated(4, 5, 3, 4)


def test_nobody_is_shut_out_for_good_by_a_number_or_a_life_that_somebody_forged() -> None:
    made = strangers()
    assert not made.outdated(0, 5, 1, 8)
    assert not made.outdated(1, 5, 1, 2**62 - 1)
    assert made.outdated(2, 5, 1, 12)
    assert not made.outdated(3, 5, 666, 0)
    assert made.outdated(4, 5, 1, 12)
    later_us = 4 + 10 * ANNOUNCE_US
    assert not made.outdated(later_us, 5, 1, 12), "packets do not linger for so long"
    assert not made.outdated(later_us, 5, 1, 12)


def test_only_so_many_nodes_are_remembered() -> None:
    made = strangers(limit=1)
    assert not made.outdated(0, 5, 1, 8)
    assert not made.outdated(0, 6, 1, 8)
    assert not made.outdated(0, 6, 1, 4)
    assert not made.outdated(0, 5, 1, 12)
    assert made.outdated(0, 5, 1, 8)


def test_members_are_no_strangers_and_their_earlier_packets_are_outdated() -> None:
    """000 §6.2.2: a new ring's number is beyond all that its members had."""
    made = strangers()
    for node in (5, 6, 7):
        meet(made, 0, announce(node))
        made.outdated(0, node, 1, 8)
    made.outdated(0, 9, 1, 8)
    made.installed(0, ConfigurationId(12, ME), (ME, 5, 6), (1, 1, 1))
    assert made.heard(0) == made.mutual(0) == (7,)
    assert made.mergeable((5, 6)) == set()
    assert made.outdated(0, 5, 1, 8)
    assert not made.outdated(0, 6, 1, 12)
    assert made.outdated(0, 7, 1, 4), "a stranger that is still heard is remembered"
    assert not made.outdated(0, 9, 1, 4), "one that is not heard makes room"


# --- bounds -------------------------------------------------------------------------------------

some = st.integers(2, 30)


@examples(100)
@given(
    limit=st.integers(1, 5),
    steps=st.lists(st.tuples(st.sampled_from(["hear", "meet", "outdated"]), some, st.integers(0, 200))),
)
def test_what_is_remembered_of_strangers_is_bounded(limit: int, steps: list[tuple[str, int, int]]) -> None:
    """Everything is bounded; and whoever is mutual is heard."""
    made = strangers(limit=limit)
    now_us = 0
    for what, node, later in steps:
        now_us += later
        if what == "hear":
            made.hear(now_us, node)
        elif what == "meet":
            meet(made, now_us, announce(node, members=(node,)))
        else:
            made.outdated(now_us, node, 1, later)
        heard = made.heard(now_us)
        assert len(heard) <= limit
        assert set(made.mutual(now_us)) <= set(heard)
        assert made.mergeable(tuple(range(2, 31))) >= set(made.mutual(now_us))
    assert len(made._told) <= limit

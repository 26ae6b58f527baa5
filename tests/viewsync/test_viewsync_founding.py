"""How a group begins: nodes that hear of no group agree on a first view, and only one is begun."""

from __future__ import annotations

from viewsync_node import Around, one, round_, sent, stored_before_sent

from ordercast.core.contract import Effect
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.viewsync.change import LONGEST_ROUND, Joiner
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.consensus import Voter
from ordercast.viewsync.founding import Founding
from ordercast.viewsync.packets import (
    NO_ROUND,
    Accepted,
    Collect,
    Decide,
    Decision,
    Estimate,
    Group,
    Member,
    Propose,
    decode_decision,
)

CONFIG = GroupConfig(founders=2)
MINE = round_(1, 1)


class Founder:
    """A node that looks for others to begin a group with."""

    def __init__(
        self, me: NodeId = 1, *, founders: int = 2, last: int = 0, voter: Voter | None = None
    ) -> None:
        self.now_us = 500
        config = GroupConfig(founders=founders)
        self.founding = Founding(Around(me), voter or Voter(), config, last)

    def leads(self, *others: NodeId, last: int = 0) -> list[Effect]:
        effects: list[Effect] = []
        asking = {node: Joiner(0, last, self.now_us, founds=True) for node in others}
        self.founding.lead(self.now_us, asking, effects)
        return effects

    def is_joined_by(self, *nodes: NodeId, life: int = 0) -> list[Effect]:
        """These take part in the first round."""
        effects: list[Effect] = []
        for node in nodes:
            self.founding.know(node, life)
            self.founding.on_vote(self.now_us, node, Estimate(0, MINE, NO_ROUND, b""), effects)
        return effects

    def is_accepted_by(self, node: NodeId) -> list[Effect]:
        effects: list[Effect] = []
        self.founding.on_vote(self.now_us, node, Accepted(0, MINE), effects)
        return effects


def first_view(effects: list[Effect]) -> Decision:
    return decode_decision(one(effects, Propose).value)


def test_there_is_no_list_of_participants_so_a_quorum_is_a_number() -> None:
    node = Founder(1, founders=3)
    assert node.leads(2) == [], "with one other they are two"
    assert one(node.leads(2, 5), Collect).round == MINE
    assert sent(node.is_joined_by(2), Propose) == []
    assert first_view(node.is_joined_by(5)).members == tuple(Member(n, 0, True) for n in (1, 2, 5))


def test_the_smallest_identifier_leads() -> None:
    assert Founder(2).leads(1, 3) == []
    assert one(Founder(2).leads(3), Collect)


def test_who_founds_nothing_neither_counts_nor_leads() -> None:
    node = Founder(2, founders=2)
    effects: list[Effect] = []
    asking = {1: Joiner(0, 0, node.now_us), 3: Joiner(0, 0, node.now_us, founds=True)}
    node.founding.lead(node.now_us, {1: asking[1]}, effects)
    assert effects == []
    node.founding.lead(node.now_us, asking, effects)
    assert one(effects, Collect).round == round_(1, 2)


def test_one_founder_is_enough_if_one_is_asked_for() -> None:
    node = Founder(4, founders=1)
    effects = node.leads()
    assert first_view(effects).members == (Member(4, 0, True),)
    assert one(effects, Decide)


def test_a_group_is_known_by_when_and_by_whom_it_was_founded() -> None:
    node = Founder(1)
    node.leads(2)
    made = first_view(node.is_joined_by(2))
    assert made.group == Group(500, 1)
    assert (made.view, made.site, made.full) == (ConfigurationId(1, 1), 1, True)


def test_no_group_is_older_than_time() -> None:
    node = Founder(1)
    node.now_us = 0
    node.leads(2)
    assert first_view(node.is_joined_by(2)).group == Group(1, 1)


def test_the_lives_that_take_part_are_its_first_members() -> None:
    node = Founder(1)
    node.leads(2, 3)
    node.founding.know(3, 8)
    assert first_view(node.is_joined_by(2, life=5)).members == (Member(1, 0, True), Member(2, 5, True))


def test_its_number_is_higher_than_any_that_they_have_seen() -> None:
    node = Founder(1, last=4)
    node.leads(2, last=9)
    assert first_view(node.is_joined_by(2)).view.seq == 10
    node = Founder(1, last=12)
    node.leads(2, last=9)
    assert first_view(node.is_joined_by(2)).view.seq == 13


def test_a_first_view_is_decided_on_like_every_other() -> None:
    node = Founder(1)
    assert stored_before_sent(node.leads(2), Collect)
    node.is_joined_by(2)
    assert one(node.is_accepted_by(2), Decide)
    assert node.founding.consensus.decision is not None


def test_a_round_is_given_its_time_and_meanwhile_sent_again() -> None:
    """Otherwise none would end where the network is slower than nodes ask to be let in."""
    node = Founder(1)
    node.leads(2)
    node.now_us += CONFIG.join_us
    assert one(node.leads(2), Collect).round == MINE
    node.is_joined_by(2)
    assert one(node.leads(2), Propose).round == MINE


def test_each_round_has_longer_than_the_one_before() -> None:
    node = Founder(1)
    rounds = []
    for _ in range(LONGEST_ROUND + 2):
        begun_us = node.now_us
        attempt = one(node.leads(2), Collect).round.attempt
        while one(node.leads(2), Collect).round.attempt == attempt:
            node.now_us += CONFIG.round_us
        rounds.append((node.now_us - begun_us) // CONFIG.round_us)
    assert rounds[:3] == [1, 2, 3]
    assert max(rounds) <= LONGEST_ROUND + 1


def test_what_an_earlier_founding_may_have_decided_is_proposed_again() -> None:
    before = Founder(1)
    before.leads(2)
    made = first_view(before.is_joined_by(2))
    vote = before.founding.consensus.voter
    again = Founder(1, voter=Voter(vote.promised, vote.accepted, vote.value))
    again.now_us = 90_000
    assert one(again.leads(2, 3), Collect).round == round_(2, 1)
    effects: list[Effect] = []
    again.founding.know(3, 0)
    again.founding.on_vote(0, 3, Estimate(0, round_(2, 1), NO_ROUND, b""), effects)
    assert first_view(effects) == made

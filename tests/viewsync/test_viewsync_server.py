"""Reformation by a server: who leads, who stands in, and that there are never two lists (004 §3.3.2)."""

from __future__ import annotations

from typing import Any

from ordercast.core.contract import Drop, Effect
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.randomness import RandomStream
from ordercast.viewsync.config import ServerConfig
from ordercast.viewsync.consensus import Voter
from ordercast.viewsync.contract import Unsettled, View
from ordercast.viewsync.numbers import ViewNumbers
from ordercast.viewsync.packets import (
    Collect,
    Estimate,
    Group,
    HasEnded,
    Propose,
    Round,
    Summary,
    decode_decision,
)
from ordercast.viewsync.server import FIRST, ServerReformation

MEMBERS = (1, 2, 3, 4)
VIEW = View(ConfigurationId(5, 1), MEMBERS, (0, 0, 0, 0), MEMBERS)


class Around:
    """A member's machine, as a change sees it."""

    def __init__(self, me: NodeId) -> None:
        self.me = me
        self.incarnation = 0
        self.group = Group(1, 1)
        self.numbers = ViewNumbers(RandomStream(0))
        self.goes = False
        self.suspected: list[NodeId] = [4]
        self.gone: list[NodeId] = []
        self.told: list[Any] = []
        self.kept = 0

    def tell(self, packet: Any, effects: list[Effect], to: NodeId | None = None) -> None:
        self.told.append(packet)

    def keep(self, effects: list[Effect]) -> None:
        self.kept += 1

    def suspects(self, now_us: int, awaited: Any) -> list[NodeId]:
        return self.suspected

    def joiners(self, now_us: int) -> dict[NodeId, Any]:
        return {}

    def gone_members(self) -> list[NodeId]:
        return self.gone

    def believe_ended(self, node: NodeId) -> None:
        self.suspected = [*self.suspected, node]

    def note(self, because: str, effects: list[Effect]) -> None:
        raise AssertionError("nothing is worth telling")


def change(me: NodeId, servers: tuple[int, ...] = (2, 3), voter: Voter | None = None) -> tuple[Any, Around]:
    """A change of view at one member; 4 is gone."""
    around = Around(me)
    config = ServerConfig(servers=servers)
    made = ServerReformation(0, around, VIEW, voter or Voter(), config, Unsettled(0, 0, {}), True)
    made.begin(0, True, [])
    return made, around


def summary() -> Summary:
    return Summary(0, True, False, False, 0, 0, ())


def told(around: Around, kind: type) -> list[Any]:
    return [packet for packet in around.told if isinstance(packet, kind)]


def test_the_server_announces_its_list_without_inviting_anybody() -> None:
    made, around = change(2)
    for node in (1, 3):
        made.on_summary(1_000, node, 0, summary(), [])
    (proposed,) = told(around, Propose)
    assert proposed.round == Round(FIRST, 2)
    assert [member.node for member in decode_decision(proposed.value).members] == [1, 2, 3]
    assert not told(around, Collect)
    assert around.kept, "its vote is on disk before that"


def test_nobody_else_leads_while_the_server_has_its_time() -> None:
    made, around = change(1)
    made.on_summary(1_000, 2, 0, summary(), [])
    made.on_timer(10_000, [])
    assert not told(around, Propose) + told(around, Collect)


def test_without_servers_the_first_member_leads() -> None:
    made, around = change(1, servers=())
    for node in (2, 3):
        made.on_summary(1_000, node, 0, summary(), [])
    assert told(around, Propose)[0].round == Round(FIRST, 1)


def test_who_stands_in_asks_first_what_was_accepted() -> None:
    made, around = change(3)
    around.suspected = [2]
    made.on_timer(10_000, [])
    invitation = told(around, Collect)[0]
    assert invitation.round == Round(2, 3)
    accepted = told_value(made)
    for node in (1, 4):  # with the one of which nothing was heard they may be a majority
        made.on_vote(20_000, node, Estimate(0, Round(2, 3), Round(FIRST, 2), accepted), [])
    assert [proposed.value for proposed in told(around, Propose)] == [accepted]


def told_value(made: Any) -> bytes:
    """A list that the server announced, and of which node 1 alone has told."""
    server, around = change(2)
    for node in (1, 3):
        server.on_summary(1_000, node, 0, summary(), [])
    return bytes(told(around, Propose)[0].value)


def test_a_first_list_of_somebody_else_is_not_accepted() -> None:
    made, around = change(1)
    effects: list[Effect] = []
    made.on_vote(1_000, 3, Propose(0, Round(FIRST, 3), told_value(made)), effects)
    assert effects == [Drop("not the reformation server")]
    assert not around.kept


def test_a_later_life_of_the_server_begins_with_an_invitation() -> None:
    """What it promised is on its disk: it cannot announce another first list."""
    _, around = change(2, voter=Voter(Round(FIRST, 2)))
    assert [packet.round for packet in told(around, Collect)] == [Round(2, 2)]


def test_who_was_told_that_a_member_is_gone_tells_the_server() -> None:
    _, around = change(1)
    assert not told(around, HasEnded)
    around.gone = [4]
    config = ServerConfig(servers=(2,))
    teller = ServerReformation(0, around, VIEW, Voter(), config, Unsettled(0, 0, {}), True)
    teller.begin(0, True, [])
    assert told(around, HasEnded) == [HasEnded(0, 4)]
    server, at_server = change(2)
    at_server.suspected = []
    for node in (1, 3):
        server.on_summary(1_000, node, 0, summary(), [])
    assert not told(at_server, Propose), "4 may live, and is waited for"
    server.on_vote(1_500, 1, HasEnded(0, 4), [])
    (proposed,) = told(at_server, Propose)
    assert [member.node for member in decode_decision(proposed.value).members] == [1, 2, 3]
    server.on_vote(1_600, 1, HasEnded(0, 2), [])
    assert at_server.suspected == [4], "nobody is told that of itself"

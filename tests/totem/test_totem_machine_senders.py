"""Packets are tied to the node that sent them: who names another sender is not believed."""

from __future__ import annotations

from totem_node import Node, entry, operational, started

from effects import drops, shifts
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.wire import FORGED_SENDER
from ordercast.totem.packets import Announce, Commit, Join, encode_data
from ordercast.totem.states import State


def forged(node: Node, packet: Join | Announce | Commit, sender: NodeId) -> None:
    """The packet of `sender` is dropped, and changes nothing."""
    before = (node.state, node.machine.formation.ring_seq, set(node.machine.formation.gathering.fail_set))
    assert drops(effects := node.hears(packet, sender=sender)) == [FORGED_SENDER]
    assert len(effects) == 1
    assert (node.state, node.machine.formation.ring_seq, node.machine.formation.gathering.fail_set) == before


def test_a_leave_is_believed_from_who_leaves_only() -> None:
    node = operational(me=2)
    farewell = Join(3, 8, (3,), (), leave=True)
    forged(node, farewell, sender=1)
    assert shifts(node.hears(farewell, sender=3)) == [("gather", "member left")]


def test_a_join_and_an_announcement_are_believed_from_their_senders_only() -> None:
    forged(operational(me=2), Join(3, 8, (1, 2, 3), (1,)), sender=1)
    forged(operational(me=2), Announce(9, ConfigurationId(8, 9), (9,), ()), sender=3)
    forged(started(me=2), Join(1, 4, (1, 2), ()), sender=3)


def test_the_token_comes_from_the_predecessor_only() -> None:
    node = operational(me=2)
    assert drops(node.hears(node.next_token(), sender=3)) == [FORGED_SENDER]
    assert node.machine.ring.token_seq < node.next_token().token_seq
    assert drops(node.hears(node.next_token(), sender=1)) == []


def test_a_commit_token_comes_from_the_predecessor_on_the_ring_to_be_formed_only() -> None:
    node = started(me=2)
    node.agrees((1, 2, 3))
    commit = Commit(ConfigurationId(8, 1), (1, 2, 3), 1, (entry(1),))
    forged(node, commit, sender=3)
    node.hears(commit, sender=1)
    assert node.state is State.COMMIT


def test_a_packet_of_messages_may_be_sent_again_by_any_member() -> None:
    """000 §5.2: who has what another lacks sends it again, whoever broadcast it first."""
    node = operational(me=2)
    packet = encode_data(node.machine.ring.id, 1, 3, 0, 1, 0, [b"of 3"])
    assert drops(node.hears(packet, sender=1)) == []
    assert node.machine.ring.window.aru == 1

"""A node that was away learns the identifiers of messages that it missed, from nodes that were there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ordercast.clients import identifiers
from ordercast.clients.identifiers import STREAM, Learning
from ordercast.clients.stream import Entry, Stream
from ordercast.core.identity import Batch, ConfigurationId, Guarantee
from ordercast.process_groups.views import Cause, Member, Numbered, Process, Received, View, ViewId

HERE = ConfigurationId(4, 1)


class Group:
    """Nodes whose messages to each other come at once, in one order."""

    def __init__(self, *known: dict[str, int]) -> None:
        self.nodes = [Node(self, number, some) for number, some in enumerate(known, 1)]
        self.sent = 0
        self.deaf: set[int] = set()
        """Nodes that get nothing."""
        self.install(*self.nodes)

    def install(self, *nodes: Node) -> None:
        members = tuple(Member(node.me, {STREAM: "yes"}) for node in nodes)
        for node in nodes:
            node.learning.installed(View("nodes", ViewId(HERE, 1), members, Cause.JOINED))

    def send(self, sender: Node, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            self.sent += 1
            batch = Batch(HERE, self.sent, 0, sender.me.node, 0, 1, Guarantee.AGREED, [payload])
            for node in self.nodes:
                if node.me.node not in self.deaf:
                    node.learning.received(Received(batch, sender.me.number, ("nodes",), (1,)))


class Node:
    def __init__(self, group: Group, number: int, known: dict[str, int]) -> None:
        self.me = Process(number, 0, 1)
        self.stream = Stream((">",), 1 << 20)
        self.stream.learn(known)
        self.taken: list[int] = []
        self.learning = Learning(
            self.stream,
            lambda numbered, mine: self.taken.append(numbered.first),
            lambda: self.me,
            lambda payloads: group.send(self, payloads),
        )


def message(number: int) -> Numbered:
    batch = Batch(HERE, number, 0, 1, 0, 1, Guarantee.SAFE, [b""])
    return Numbered(number, batch, 0, ("a",), None)


def test_one_who_was_there_tells_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identifiers, "AT_ONCE_BYTES", 30)
    known = {f"me-{number}": number for number in range(1, 10)}
    group = Group({"me-1": 1, "elsewhere": 2}, known)
    node = group.nodes[0]
    node.stream.restore(Entry(1, "a", b"", b"", 0))
    node.learning.begin(8)
    assert not node.learning.learning, "the answer has come"
    assert node.stream.identifiers == {f"me-{number}": number for number in range(1, 8)}
    assert (node.stream.first, node.stream.messages) == (8, 0)
    assert group.sent > 3, "in parts"


def test_messages_wait_until_all_is_known() -> None:
    group = Group({}, {"me-1": 1})
    node, other = group.nodes
    group.deaf.add(2)
    node.learning.begin(8)
    for number in (8, 9):
        assert node.learning.learning
        node.learning.hold(message(number), True)
    assert node.taken == []
    group.deaf.clear()
    group.install(node)  # the other one is gone, with what it knows
    assert (node.taken, node.learning.learning) == ([8, 9], False)
    assert other.taken == []


def test_who_was_away_too_is_not_enough_but_better_than_nothing() -> None:
    group = Group({"me-1": 1}, {"me-2": 2}, {"me-3": 3})
    first, second, third = group.nodes
    group.deaf |= {1, 2, 3}
    second.learning.begin(5)
    third.learning.begin(5)
    group.deaf.clear()
    first.learning.begin(5)
    assert first.stream.identifiers == {"me-1": 1, "me-2": 2, "me-3": 3}
    group = Group({"me-1": 1}, {"me-2": 2}, {"me-3": 3})
    first, second, third = group.nodes
    group.deaf |= {1, 2, 3}
    second.learning.begin(5)
    group.deaf.clear()
    first.learning.begin(5)
    assert first.stream.identifiers == {"me-3": 3}, "only what is known where others went on"


def test_a_node_that_nobody_answers_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    group = Group({"me-1": 1}, {})
    node = group.nodes[0]
    group.deaf.add(2)
    node.learning.begin(8)
    node.learning.hold(message(8), False)
    node.learning.look(identifiers.PATIENCE_S - 1)
    assert node.taken == []
    node.learning.look(1)
    assert (node.taken, node.stream.known("me-1")) == ([8], 1)
    assert "may come twice" in caplog.text


def test_what_is_no_word_of_nodes_is_passed_over() -> None:
    group = Group({"me-1": 1}, {})
    for payload in (b"", b"x", b"\x93\xa5known"):
        group.send(group.nodes[1], [payload])
    assert group.nodes[0].stream.identifiers == {"me-1": 1}

"""Processes that subscribe to patterns, and queues of which one member gets a message."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_order import Order

from ordercast.core.addresses import address
from ordercast.core.identity import Guarantee, MessageId
from ordercast.core.subjects import matches, read_subscription, subscription
from ordercast.process_groups import queues
from ordercast.process_groups.notes import head
from ordercast.process_groups.patterns import Patterns
from ordercast.process_groups.queues import NO_ECHO, chosen
from ordercast.process_groups.views import Process, Received, Unheard

QUEUE = subscription("work.*", "q")


def members(*nodes: int, group: str, each: int = 1) -> Order:
    """Nodes in configuration 8, each with so many processes in a group."""
    order = Order(*nodes)
    order.regular(8, nodes)
    for node in nodes:
        for _ in range(each):
            order.machines[node].join(order.machines[node].begin(), group)
        order.order(node)
    return order


def send(order: Order, node: int, count: int, subject: str = "work.x") -> list[bytes]:
    bodies = [b"%d of %d" % (number, node) for number in range(count)]
    for body in bodies:
        order.machines[node].send(0, [subject], body)
    order.order(node)
    return bodies


def settle_down(order: Order, *nodes: int) -> None:
    """All that these nodes still have to say is ordered."""
    while any(order.machines[node].waiting for node in nodes):
        for node in nodes:
            order.order(node, to=nodes)


def got(order: Order, *nodes: int) -> Counter[bytes]:
    """What processes of these nodes got over the queue."""
    return Counter(
        body
        for node in nodes
        for each in order.told[node]
        if isinstance(each, Received) and each.queue == QUEUE
        for body in each.batch.payloads
    )


# --- patterns ---------------------------------------------------------------------------------------


def test_who_subscribes_to_a_pattern_gets_what_is_sent_to_the_groups_it_describes() -> None:
    order = members(1, 2, group=subscription("a.*"))
    for subject in ("a.x", "a", "a.x.y", "a.y", "b.x"):
        send(order, 2, 1, subject)
    assert [each.groups for each in order.told[1] if isinstance(each, Received)] == [("a.x",), ("a.y",)]


def test_a_process_gets_a_message_once_however_many_patterns_describe_it() -> None:
    order = members(1, group=subscription("a.*"))
    for group in (subscription(">"), "a.x"):
        order.machines[1].join(1, group)
        order.order(1)
    send(order, 1, 1, "a.x")
    assert order.messages(1, 1) == [b"0 of 1"]


def test_a_group_with_a_pattern_for_a_name_is_an_ordinary_one() -> None:
    order = members(1, group="a.*")
    send(order, 1, 1, "a.x")
    assert order.messages(1, 1) == []
    send(order, 1, 1, "a.*")
    assert order.messages(1, 1) == [b"0 of 1"]


def test_nothing_can_be_sent_to_a_subscription() -> None:
    order = members(1, group=subscription("a.*"))
    with pytest.raises(ValueError, match="name the subject"):
        order.machines[1].send(1, [subscription("a.*")], b"m")


def test_subscriptions_are_told_to_others_when_a_configuration_begins() -> None:
    order = members(1, 2, group=QUEUE)
    order.transitional(9, [1])
    order.transitional(9, [2])
    order.regular(12, [1, 2])
    assert order.members(1, 1, QUEUE)[-1] == "1.0.1 2.0.1: merged"


PATTERN = st.lists(st.sampled_from("ab*"), min_size=1, max_size=3).map(".".join)
GROUPS = st.lists(
    st.builds(
        subscription,
        PATTERN | PATTERN.map(lambda text: text + ".>") | st.just(">"),
        st.sampled_from([None, "q", "r"]),
    ),
    max_size=12,
    unique=True,
)


@given(GROUPS, st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join), st.integers(0, 12))
@settings(deadline=None)
def test_the_tree_of_patterns_finds_what_a_look_at_each_would(
    groups: list[str], subject: str, gone: int
) -> None:
    patterns = Patterns()
    for group in groups:
        patterns.add(group)
    for group in groups[:gone]:
        patterns.remove(group)
    left = [found for group in groups[gone:] if (found := read_subscription(group)) is not None]
    wanted = sorted(subscription(*each) for each in left if matches(each[0], subject))
    assert patterns.of(subject) == wanted
    for group in groups[gone:]:
        patterns.remove(group)
    assert not patterns._root.branches


# --- queues -----------------------------------------------------------------------------------------


def test_of_a_queue_one_member_gets_a_message_and_all_share_them() -> None:
    order = members(1, 2, 3, group=QUEUE, each=2)
    bodies = send(order, 1, 300)
    settle_down(order, 1, 2, 3)
    assert got(order, 1, 2, 3) == Counter(bodies)
    shares = [len(order.messages(node, process)) for node in (1, 2, 3) for process in (1, 2)]
    assert min(shares) > 25


def test_a_member_of_a_queue_that_subscribes_besides_gets_a_message_for_each() -> None:
    order = members(1, group=QUEUE)
    order.machines[1].join(1, "work.x")
    order.order(1)
    send(order, 1, 2)
    assert order.messages(1, 1) == [b"0 of 1", b"0 of 1", b"1 of 1", b"1 of 1"]


def without_echo(*nodes: int) -> Order:
    """Nodes in configuration 8, each with a process in the queue that wants nothing that it sends itself."""
    order = Order(*nodes)
    order.regular(8, nodes)
    for node in nodes:
        order.machines[node].join(order.machines[node].begin(), QUEUE, NO_ECHO)
        order.order(node)
    return order


def test_who_wants_no_echo_is_passed_over_and_another_member_gets_what_it_sent() -> None:
    order = without_echo(1, 2, 3)
    bodies = [b"%d" % number for number in range(60)]
    for body in bodies:
        order.machines[1].send(1, ["work.x"], body)
    order.order(1)
    assert not got(order, 1)
    assert got(order, 2, 3) == Counter(bodies)
    assert got(order, 2)
    assert got(order, 3)


def test_what_a_dead_member_was_to_get_is_not_an_echo_either() -> None:
    order = without_echo(1, 2, 3)
    order.machines[2].end(1)
    bodies = [b"%d" % number for number in range(60)]
    for body in bodies:
        order.machines[1].send(1, ["work.x"], body)
    order.order(1)
    settle_down(order, 1, 2, 3)
    assert not got(order, 1, 2)
    assert got(order, 3) == Counter(bodies)


def test_who_asks_its_own_queue_alone_and_wants_no_echo_learns_that_nobody_hears_it() -> None:
    order = without_echo(1)
    headed(order, 1, b"reply", b"message", "work.x")
    assert not got(order, 1)
    assert isinstance(order.told[1][-1], Unheard)


def test_every_kind_of_number_leaves_no_member_out() -> None:
    everybody = [Process(1, 0, number) for number in range(1, 5)]
    for numbers in (range(400), range(0, 800, 2), range(0, 1600, 4), range(7, 280_007, 700)):
        shares = Counter(chosen(everybody, MessageId(2, 0, number)) for number in numbers)
        assert min(shares[process] for process in everybody) > 60


def test_what_a_dead_member_was_to_get_another_gets() -> None:
    order = members(1, 2, group=QUEUE, each=2)
    order.machines[2].end(1)
    bodies = send(order, 1, 50)
    assert not order.messages(2, 1)
    settle_down(order, 1, 2)
    assert got(order, 1, 2) == Counter(bodies)
    assert order.machines[2].stats["sent_again"]


def test_what_a_member_could_not_take_another_gets() -> None:
    order = members(1, 2, group=QUEUE)
    bodies = send(order, 1, 50)
    machine = order.machines[2]
    untaken = [each for each in order.told[2] if isinstance(each, Received) and each.queue == QUEUE]
    machine.end(1)
    for received in untaken:
        machine.hand_over(received)
    settle_down(order, 1, 2)
    assert got(order, 1) == Counter(bodies)


def test_what_members_at_a_lost_node_were_to_get_others_get() -> None:
    order = members(1, 2, 3, group=QUEUE)
    bodies = send(order, 1, 40)
    order.transitional(9, [1, 2])
    order.regular(12, [1, 2])
    settle_down(order, 1, 2)
    assert got(order, 1, 2) == Counter(bodies), "nothing was told of what node 3 did"


def test_what_a_node_told_that_its_members_got_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "SERVED_EVERY", 1)
    order = members(1, 2, 3, group=QUEUE)
    bodies = send(order, 1, 40)
    settle_down(order, 1, 2, 3)
    order.transitional(9, [1, 2])
    order.regular(12, [1, 2])
    settle_down(order, 1, 2)
    assert got(order, 1, 2, 3) == Counter(bodies)
    assert got(order, 3)


def test_if_who_is_to_send_again_is_lost_too_another_does() -> None:
    order = members(1, 2, 3, 4, group=QUEUE)
    bodies = send(order, 2, 60)
    order.transitional(9, [1, 2, 3])
    order.install(12, [1, 2, 3])
    order.transitional(13, [2, 3])
    order.regular(16, [2, 3])
    settle_down(order, 2, 3)
    assert set(got(order, 2, 3)) == set(bodies)


def test_what_a_node_that_lives_again_was_to_get_in_its_former_life_others_get() -> None:
    order = members(1, 2, group=QUEUE)
    bodies = send(order, 1, 30)
    order.restart(2, 1)
    order.regular(12, [1, 2])
    settle_down(order, 1, 2)
    assert got(order, 1) == Counter(bodies)


def test_what_is_kept_for_another_node_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "MOST_KEPT", 2000)
    order = members(1, 2, group=QUEUE)
    send(order, 1, 60)
    shares = order.machines[1].routing.shares
    assert shares.forgotten
    assert sum(shares._kept_bytes.values()) <= 2000


# --- heads ------------------------------------------------------------------------------------------


def headed(order: Order, node: int, words: bytes, body: bytes, subject: str = "G") -> None:
    payload = address(1, [subject], headed=True) + head(words) + body
    order.deliver(node, [payload], Guarantee.AGREED)


def test_what_a_sender_says_beside_a_message_comes_with_it() -> None:
    order = members(1, 2, group="G")
    headed(order, 1, b"reply", b"message")
    received = order.told[2][-1]
    assert isinstance(received, Received)
    assert (received.heads, received.batch.payloads) == ([b"reply"], [b"message"])


def test_what_a_sender_says_comes_over_a_queue_and_again_too() -> None:
    order = members(1, 2, group=QUEUE)
    order.machines[2].end(1)
    for _ in range(20):
        headed(order, 1, b"reply", b"message", "work.x")
    settle_down(order, 1, 2)
    told = [each for each in order.told[1] if isinstance(each, Received)]
    assert len(told) == 20
    assert {(*each.batch.payloads, *(each.heads or ())) for each in told} == {(b"message", b"reply")}


@pytest.mark.parametrize("body", [b"", b"\x05\x00", b"\xff\xff\xff\xffabc"])
def test_a_head_that_is_none_is_part_of_the_message(body: bytes) -> None:
    order = members(1, 2, group="G")
    order.deliver(1, [address(1, ["G"], headed=True) + body])
    assert order.messages(2, 1) == [body]


def test_who_sends_with_a_head_to_nobody_learns_it_and_nobody_else_does() -> None:
    order = members(1, 2, group="G")
    headed(order, 1, b"reply", b"message", "H")
    assert isinstance(order.told[1][-1], Unheard)
    assert not any(isinstance(each, Unheard) for each in order.told[2])
    headed(order, 2, b"reply", b"message", "G")
    assert not any(isinstance(each, Unheard) for each in order.told[2])

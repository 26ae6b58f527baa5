from __future__ import annotations

from ordercast.core.identity import Configuration, ConfigurationId, Kind
from ordercast.groups.events import Delivery
from ordercast.measure.agreement import Agreement, ConfigurationOrder, Life, OrderComparison
from ordercast.measure.order import PACKETS, DeliveryDigests, block_of

# --- orders side by side ------------------------------------------------------------------------

RING = ConfigurationId(8, 1)
NEXT = ConfigurationId(12, 1)


def installed(ring: ConfigurationId, *members: int, kind: Kind = Kind.REGULAR) -> Configuration:
    return Configuration(ring, kind, members)


def packet(seq: int, *payloads: bytes, sender: int = 1) -> Delivery:
    numbers, slots = range(seq, seq + len(payloads)), range(len(payloads))
    return Delivery(list(payloads), sender, "orders", False, 0, numbers, RING, seq, slots)


def packets(last: int, change: int | None = None, first: int = 0) -> list[Delivery]:
    """So many, with a byte that differs in one of them."""
    return [packet(seq, b"x" if seq != change else b"y") for seq in range(first, last + 1)]


def delivered_by(delivered: list[Delivery], *after: Configuration, early: bool = True) -> DeliveryDigests:
    digests = DeliveryDigests(early)
    digests.install(installed(RING, 1, 2, 3))
    for delivery in delivered:
        digests.add(delivery)
    for configuration in after:
        digests.install(configuration)
    return digests


def compared(*nodes: DeliveryDigests) -> ConfigurationOrder:
    """What is made of what nodes 1, 2, … delivered."""
    order = OrderComparison()
    for node, digests in enumerate(nodes, 1):
        order.add(Life(node, 0), digests.blocks, digests.ends)
    (found,) = order.configurations()
    return found


TOGETHER = (installed(RING, 1, 2, kind=Kind.TRANSITIONAL), installed(NEXT, 1, 2))
ALONE = (installed(RING, 3, kind=Kind.TRANSITIONAL), installed(ConfigurationId(12, 3), 3))
FAR = 5 * PACKETS + 3


def test_members_that_leave_together_are_compared_to_the_last_message() -> None:
    same = compared(*(delivered_by(packets(FAR), *TOGETHER) for _ in (1, 2)))
    assert same.same
    assert [(entry.how, entry.messages) for entry in same.entries] == [("to its end", FAR + 1)] * 2
    assert same.entries[0].digest == same.entries[1].digest
    for change in (0, PACKETS, FAR):
        other = compared(delivered_by(packets(FAR), *TOGETHER), delivered_by(packets(FAR, change), *TOGETHER))
        assert not other.same, f"message {change} differs"
    fewer = compared(delivered_by(packets(FAR), *TOGETHER), delivered_by(packets(FAR - 1), *TOGETHER))
    assert not fewer.same


def test_an_order_that_differs_is_seen() -> None:
    right = packets(FAR)
    wrong = [*right[:3], right[4], right[3], *right[5:]]
    assert not compared(delivered_by(right, *TOGETHER), delivered_by(wrong, *TOGETHER)).same


def test_who_was_killed_is_compared_as_far_as_it_told() -> None:
    killed = delivered_by(packets(3 * PACKETS))
    found = compared(delivered_by(packets(FAR), *TOGETHER), killed)
    assert [(entry.how, entry.messages, entry.same) for entry in found.entries] == [
        ("to its end", FAR + 1, True),
        ("killed", 3 * PACKETS, True),
    ]
    assert not compared(
        delivered_by(packets(FAR), *TOGETHER), delivered_by(packets(3 * PACKETS, change=PACKETS))
    ).same


def test_who_was_excluded_is_compared_up_to_where_it_was_told() -> None:
    """Behind the transitional configuration it may lack what the others have."""
    excluded = delivered_by(packets(2 * PACKETS), ALONE[0])
    for delivery in packets(4 * PACKETS, first=3 * PACKETS):
        excluded.add(delivery)
    excluded.install(ALONE[1])
    survivors = (delivered_by(packets(FAR), *TOGETHER), delivered_by(packets(FAR), *TOGETHER))
    found = compared(*survivors, excluded)
    assert found.entries[2].how == "parted"
    assert (found.entries[2].messages, found.same) == (2 * PACKETS, True)
    assert not compared(*survivors, delivered_by(packets(2 * PACKETS, change=1), *ALONE)).same


def test_who_came_later_is_compared_from_there_on() -> None:
    late = delivered_by(packets(FAR, first=PACKETS + 5), *TOGETHER, early=False)
    found = compared(delivered_by(packets(FAR), *TOGETHER), late)
    assert found.entries[1].how == "came later"
    assert (found.entries[1].messages, found.same) == (FAR + 1 - 2 * PACKETS, True)
    other = delivered_by(packets(FAR, change=FAR, first=PACKETS + 5), *TOGETHER, early=False)
    assert not compared(delivered_by(packets(FAR), *TOGETHER), other).same


def test_digests_while_nodes_deliver_go_up_to_where_all_are() -> None:
    order = OrderComparison()
    ahead, behind, late = (
        delivered_by(packets(FAR)),
        delivered_by(packets(3 * PACKETS)),
        delivered_by([], early=False),
    )
    for delivery in packets(FAR, first=3):
        late.add(delivery)
    lives = [Life(node, 0) for node in (1, 2, 3)]
    assert order.common(RING, lives) is None
    for life, digests in zip(lives, (ahead, behind, late), strict=True):
        order.add(life, *digests.take())
    common = order.common(RING, lives)
    assert common is not None
    assert (common.messages, common.same) == (2 * PACKETS, True)
    assert set(common.digests) == {1, 2, 3}


# --- agreement over all configurations ----------------------------------------------------------

ALL = installed(ConfigurationId(4, 1), 1, 2, 3)
CHANGE = installed(ConfigurationId(7, 1), 1, 2, kind=Kind.TRANSITIONAL)
TWO = installed(ConfigurationId(8, 1), 1, 2)
ALONE_IN = installed(ConfigurationId(8, 3), 3)
BACK = installed(ConfigurationId(9, 1), 1, 2, 3)

A1 = packet(1, b"a", b"b")
B1 = packet(2, b"c", b"d", sender=2)
A2 = packet(3, b"e")
LEFT_BEHIND = "the others went on without it"

Step = Delivery | Configuration | str


def lives(*steps: Step, sample: int = 1) -> list[DeliveryDigests]:
    """What a node delivers, one life after the other, from the configuration `ALL` on."""
    found = [DeliveryDigests(sample=sample)]
    found[0].install(ALL)
    for step in steps:
        if isinstance(step, Delivery):
            found[-1].add(step)
        elif isinstance(step, Configuration):
            found[-1].install(step)
        else:
            found[-1].leave_behind()
            found.append(DeliveryDigests(sample=sample))
    found[-1].close()
    return found


def agreement(nodes: dict[int, list[DeliveryDigests]]) -> Agreement:
    order = OrderComparison()
    for node, its in nodes.items():
        for number, digests in enumerate(its):
            order.add(Life(node, number), digests.blocks, digests.ends)
    return order.agreement()


def test_the_same_packets_in_the_same_order_are_equal_to_the_last_message() -> None:
    assert agreement({node: lives(A1, B1, A2) for node in (1, 2, 3)}) == (True, 1, 5, None)


def test_an_exchange_of_two_packets_is_seen_and_said_where() -> None:
    found = agreement({1: lives(A1, B1, A2), 2: lives(B1, A1, A2)})
    assert not found.equal
    assert found.difference == (
        "nodes 1 and 2 first differ between message 1 and message 5 in configuration 4.1"
    )
    far = [packet(seq, b"x") for seq in range(4 * PACKETS)]
    wrong = [*far[: 2 * PACKETS], far[2 * PACKETS + 1], far[2 * PACKETS], *far[2 * PACKETS + 2 :]]
    found = agreement({1: lives(*far), 2: lives(*far), 3: lives(*wrong)})
    first, last = 2 * PACKETS + 1, 3 * PACKETS
    assert f"nodes 1 and 3 first differ between message {first} and message {last}" in str(found.difference)


def test_a_node_that_misses_the_end_of_a_configuration_is_not_equal() -> None:
    found = agreement({1: lives(A1, B1, A2), 2: lives(A1, B1)})
    assert found.difference == "nodes 1 and 2 delivered 5 and 4 messages in configuration 4.1"
    found = agreement({1: lives(A1, CHANGE, TWO), 2: lives(A1, B1, CHANGE, TWO)})
    assert "nodes 1 and 2 delivered 2 and 4 messages" in str(found.difference)
    assert not agreement({1: lives(CHANGE, TWO), 2: lives(A1, CHANGE, TWO)}).equal


def test_nodes_that_parted_are_compared_while_they_were_together() -> None:
    """000 §3: what is delivered at the end of a configuration may differ between those who part there."""
    whole = [packet(seq, b"x") for seq in range(PACKETS + 1)]
    wrong = [whole[1], whole[0], *whole[2:]]
    one = lives(*whole, CHANGE, packet(PACKETS + 1, b"y"), TWO)
    assert agreement({1: one, 3: lives(*whole, ALONE_IN, packet(1, b"z", sender=3))}).equal
    assert not agreement({1: one, 3: lives(*wrong, ALONE_IN)}).equal


def test_a_difference_after_a_change_is_seen() -> None:
    one, other = lives(A1, CHANGE, TWO, B1, A2), lives(A1, CHANGE, TWO, A2, B1)
    assert "configuration 8.1" in str(agreement({1: one, 2: other}).difference)


def test_the_bytes_count_in_the_sampled_packets() -> None:
    forged = packet(2, b"c", b"X", sender=2)
    for sample, seen in ((1, True), (2, True), (3, False)):
        nodes = {1: lives(A1, B1, sample=sample), 2: lives(A1, forged, sample=sample)}
        assert agreement(nodes).equal is not seen


def test_where_one_message_ends_and_the_next_begins_counts() -> None:
    assert not agreement({1: lives(packet(1, b"ab", b"c")), 2: lives(packet(1, b"a", b"bc"))}).equal


def test_nothing_delivered_is_equal_and_nobody_to_compare_with_is_too() -> None:
    assert agreement({1: lives(), 2: lives()}) == (True, 0, 0, None)
    assert agreement({1: lives(A1)}) == (True, 0, 0, None)


def test_a_long_run_has_a_bounded_number_of_blocks_that_are_compared_to_the_end() -> None:
    many = 40_000
    numbers = [block_of(seq) for seq in range(many)]
    assert sorted(set(numbers)) == list(range(numbers[-1] + 1)), "no number is left out, none comes back"
    assert numbers == sorted(numbers)
    assert block_of(1_000_000_000) < 16_000

    def long(last: bytes) -> list[DeliveryDigests]:
        return lives(*(packet(seq, b"x") for seq in range(1, many)), packet(many, last))

    one = long(b"x")
    assert agreement({1: one, 2: long(b"x")}).messages == many
    assert not agreement({1: one, 2: long(b"y")}).equal


def test_what_a_node_delivered_until_it_was_excluded_is_compared_with_the_others() -> None:
    """It came to the next view by itself: that it delivered less before that is no difference."""
    whole = [packet(seq, b"x") for seq in range(PACKETS + 1)]
    wrong = [whole[1], whole[0], *whole[2:]]
    others = lives(*whole, packet(PACKETS + 1, b"y"), BACK, A2)
    for third, equal in (
        (lives(*whole, LEFT_BEHIND, BACK, A2), True),
        (lives(*whole, BACK, A2), False),
        (lives(*wrong, LEFT_BEHIND, BACK, A2), False),
        (lives(*whole, LEFT_BEHIND, BACK), False),
    ):
        assert agreement({1: others, 2: others, 3: third}).equal is equal


def test_two_nodes_that_were_excluded_have_nothing_in_common_by_that() -> None:
    assert agreement({2: lives(A1, B1, LEFT_BEHIND, BACK), 3: lives(A1, LEFT_BEHIND, BACK)}).equal

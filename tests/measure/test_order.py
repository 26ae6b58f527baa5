from __future__ import annotations

from ordercast.core.identity import ConfigurationId
from ordercast.groups.events import Delivery
from ordercast.measure.order import Ledger, Mark, compare

CONFIGURATION = ConfigurationId(4, 1)


def packet(seq: int, sender: int, first: int, payloads: list[bytes]) -> Delivery:
    count = len(payloads)
    numbers = range(first, first + count)
    return Delivery(payloads, sender, "bench", False, 0, numbers, CONFIGURATION, seq, range(count))


def ledger(packets: list[Delivery], *, every: int = 2, sample: int = 1) -> Ledger:
    kept = Ledger(every, sample)
    for delivery in packets:
        kept.add(delivery)
    kept.mark()
    return kept


A1 = packet(1, 1, 1, [b"a", b"b"])
B1 = packet(2, 2, 1, [b"c", b"d"])
A2 = packet(3, 1, 3, [b"e"])


def marks(*packets: Delivery) -> list[Mark]:
    return ledger(list(packets)).marks


def test_the_same_packets_in_the_same_order_are_equal_to_the_last_message() -> None:
    agreement = compare({1: marks(A1, B1, A2), 2: marks(A1, B1, A2), 3: marks(A1, B1, A2)})
    assert agreement == (True, 3, 5, None)


def test_an_exchange_of_two_packets_is_seen_and_said_where() -> None:
    agreement = compare({1: marks(A1, B1, A2), 2: marks(B1, A1, A2)})
    assert not agreement.equal
    assert agreement.difference == "nodes 1 and 2 first differ between message 1 and message 2"


def test_the_first_difference_is_the_one_that_is_told() -> None:
    other = packet(3, 1, 4, [b"e"])
    agreement = compare({1: marks(A1, B1, A2), 2: marks(A1, B1, A2), 3: marks(A1, B1, other)})
    assert agreement.difference == "nodes 2 and 3 first differ between message 5 and message 5"
    assert (agreement.marks, agreement.messages) == (2, 4)


def test_a_node_that_got_less_is_equal_as_far_as_it_got() -> None:
    """A node that was stopped a moment earlier delivered a prefix."""
    assert compare({1: marks(A1, B1, A2), 2: marks(A1, B1)}) == (True, 2, 4, None)


def test_the_bytes_count_in_the_sampled_packets() -> None:
    forged = packet(2, 2, 1, [b"c", b"X"])
    assert marks(A1, B1) != marks(A1, forged)
    assert ledger([A1, B1], sample=2).marks != ledger([A1, forged], sample=2).marks
    assert ledger([A1, B1], sample=3).marks == ledger([A1, forged], sample=3).marks


def test_nodes_with_nothing_in_common_are_not_equal() -> None:
    agreement = compare({1: marks(A2), 2: marks(A1)})
    assert not agreement.equal
    assert "no number of messages in common" in str(agreement.difference)


def test_nothing_delivered_is_equal() -> None:
    assert compare({1: [], 2: []}) == (True, 0, 0, None)
    assert compare({1: ledger([]).marks, 2: ledger([]).marks}).equal


def test_messages_are_counted_by_who_sent_them() -> None:
    assert ledger([A1, B1, A2]).by_sender == {1: 3, 2: 2}

from __future__ import annotations

from ordercast.core.identity import Configuration, ConfigurationId, Kind
from ordercast.groups.events import Delivery, Rejoined
from ordercast.measure.order import MOST_MARKS, Chapter, Ledger, compare

ALL = Configuration(ConfigurationId(4, 1), Kind.REGULAR, (1, 2, 3))
CHANGE = Configuration(ConfigurationId(7, 1), Kind.TRANSITIONAL, (1, 2))
TWO = Configuration(ConfigurationId(8, 1), Kind.REGULAR, (1, 2))
ALONE = Configuration(ConfigurationId(8, 3), Kind.REGULAR, (3,))


def packet(seq: int, sender: int, first: int, payloads: list[bytes]) -> Delivery:
    count = len(payloads)
    numbers = range(first, first + count)
    return Delivery(payloads, sender, "bench", False, 0, numbers, ALL.id, seq, range(count))


A1 = packet(1, 1, 1, [b"a", b"b"])
B1 = packet(2, 2, 1, [b"c", b"d"])
A2 = packet(3, 1, 3, [b"e"])


def ledger(*story: Delivery | Configuration, sample: int = 1) -> Ledger:
    kept = Ledger(every=2, sample=sample)
    kept.install(ALL)
    for entry in story:
        if isinstance(entry, Delivery):
            kept.add(entry)
        else:
            kept.install(entry)
    kept.mark()
    return kept


def chapters(*story: Delivery | Configuration, sample: int = 1) -> list[Chapter]:
    return ledger(*story, sample=sample).chapters


def test_the_same_packets_in_the_same_order_are_equal_to_the_last_message() -> None:
    agreement = compare({1: chapters(A1, B1, A2), 2: chapters(A1, B1, A2), 3: chapters(A1, B1, A2)})
    assert agreement == (True, 3, 5, None)


def test_an_exchange_of_two_packets_is_seen_and_said_where() -> None:
    agreement = compare({1: chapters(A1, B1, A2), 2: chapters(B1, A1, A2)})
    assert not agreement.equal
    assert agreement.difference == (
        "nodes 1 and 2 first differ between message 1 and message 2 in the regular 4.1 configuration"
    )


def test_the_first_difference_is_the_one_that_is_told() -> None:
    other = packet(3, 1, 4, [b"e"])
    agreement = compare({1: chapters(A1, B1, A2), 2: chapters(A1, B1, A2), 3: chapters(A1, B1, other)})
    assert "nodes 1 and 3 first differ between message 5 and message 5" in str(agreement.difference)


def test_a_node_that_misses_the_end_of_a_configuration_is_not_equal() -> None:
    agreement = compare({1: chapters(A1, B1, A2), 2: chapters(A1, B1)})
    assert agreement.difference == (
        "nodes 1 and 2 delivered 5 and 4 messages in the regular 4.1 configuration"
    )
    agreement = compare({1: chapters(A1, B1, CHANGE, TWO), 2: chapters(A1, CHANGE, TWO)})
    assert "delivered 4 and 2 messages" in str(agreement.difference)


def test_nodes_that_parted_are_compared_while_they_were_together() -> None:
    """000 §3: what is delivered at the end of a configuration may differ between those who part there."""
    one, other = chapters(A1, B1, CHANGE, A2, TWO), chapters(A1, ALONE, packet(1, 3, 1, [b"x"]))
    assert compare({1: one, 3: other}) == (True, 1, 2, None)
    assert not compare({1: one, 3: chapters(B1, ALONE)}).equal


def test_a_difference_after_a_change_is_seen() -> None:
    one, other = chapters(A1, CHANGE, TWO, B1, A2), chapters(A1, CHANGE, TWO, A2, B1)
    assert "regular 8.1" in str(compare({1: one, 2: other}).difference)


def test_the_bytes_count_in_the_sampled_packets() -> None:
    forged = packet(2, 2, 1, [b"c", b"X"])
    assert not compare({1: chapters(A1, B1), 2: chapters(A1, forged)}).equal
    assert not compare({1: chapters(A1, B1, sample=2), 2: chapters(A1, forged, sample=2)}).equal
    assert compare({1: chapters(A1, B1, sample=3), 2: chapters(A1, forged, sample=3)}).equal


def test_nothing_delivered_is_equal() -> None:
    assert compare({1: chapters(), 2: chapters()}) == (True, 0, 0, None)
    assert compare({1: chapters(A1)}).equal


def test_messages_are_counted_over_all_configurations_and_by_who_sent_them() -> None:
    kept = ledger(A1, CHANGE, TWO, B1, A2)
    assert kept.count == 5
    assert kept.by_sender == {1: 3, 2: 2}


def test_a_long_run_keeps_a_bounded_number_of_marks_and_can_still_be_compared() -> None:
    def long(last: bytes) -> list[Chapter]:
        kept = Ledger(every=1)
        kept.install(ALL)
        for number in range(1, 3 * MOST_MARKS):
            kept.add(packet(number, 1, number, [b"x"]))
        kept.add(packet(number + 1, 1, number + 1, [last]))
        kept.mark()
        return kept.chapters

    one = long(b"x")
    assert len(one[0].marks) <= MOST_MARKS
    assert compare({1: one, 2: long(b"x")}).messages == 3 * MOST_MARKS
    assert not compare({1: one, 2: long(b"y")}).equal


# --- a node that the group went on without ------------------------------------------------------

BACK = Configuration(ConfigurationId(9, 1), Kind.REGULAR, (1, 2, 3))


def test_what_a_node_delivered_until_it_was_excluded_is_compared_with_the_others() -> None:
    """It came to the next view by itself: that it delivered less before that is no difference."""
    others = chapters(A1, B1, BACK, A2)
    assert compare({1: others, 2: others, 3: chapters(A1, Rejoined(*BACK), A2)}).equal
    assert not compare({1: others, 2: others, 3: chapters(A1, BACK, A2)}).equal
    assert not compare({1: others, 2: others, 3: chapters(B1, Rejoined(*BACK), A2)}).equal
    assert not compare({1: others, 2: others, 3: chapters(A1, Rejoined(*BACK))}).equal, "after that, all"


def test_two_nodes_that_were_excluded_have_nothing_in_common_by_that() -> None:
    assert compare({2: chapters(A1, B1, Rejoined(*BACK)), 3: chapters(A1, Rejoined(*BACK))}).equal

"""The order of one component configuration (001, "Message Ordering"; Fig. 4)."""

from __future__ import annotations

from ordercast.core.contract import Deliver, Effect, Stable
from ordercast.core.identity import ConfigurationId, Guarantee, NodeId
from ordercast.rings.bundles import read_bundle, write_bundles
from ordercast.rings.messages import Entry, Place, Ring
from ordercast.rings.order import Order


def order(rings: int = 2) -> Order:
    made = tuple(Ring(i + 1, 8, i + 1, (i + 1,)) for i in range(rings))
    return Order(ConfigurationId(16, 1), range(1, rings + 1), made)


def entry(
    timestamp: int, source: int, guarantee: Guarantee = Guarantee.AGREED, origin: NodeId = 7, slot: int = 0
) -> Entry:
    (raw,) = write_bundles([b"%d/%d" % (timestamp, source)], timestamp, guarantee)
    bundle = read_bundle(raw)
    assert bundle is not None
    return Entry(Place(timestamp, source, slot), origin, 0, bundle)


def delivered(effects: list[Effect]) -> list[bytes]:
    return [payload for effect in effects if type(effect) is Deliver for payload in effect.batch.payloads]


def test_the_lowest_timestamp_goes_first_and_equal_ones_by_their_source_ring() -> None:
    made, effects = order(), list[Effect]()
    for each in (entry(5, 1), entry(7, 0), entry(5, 0), entry(6, 1)):
        assert made.add(each)
    made.horizon = [7, 6]
    made.deliver(effects)
    assert delivered(effects) == [b"5/0", b"5/1", b"6/1"]


def test_a_ring_of_which_nothing_is_known_holds_up_all() -> None:
    made, effects = order(), list[Effect]()
    made.add(entry(5, 0))
    made.horizon = [9, 4]
    made.deliver(effects)
    assert delivered(effects) == []
    made.horizon = [9, 5]
    made.deliver(effects)
    assert delivered(effects) == [b"5/0"]


def test_a_safe_message_waits_for_all_rings_and_holds_up_what_is_behind_it() -> None:
    made, effects = order(), list[Effect]()
    made.add(entry(5, 0, Guarantee.SAFE))
    made.add(entry(6, 0))
    made.horizon = [9, 9]
    made.acknowledged = [9, 4]
    made.deliver(effects)
    assert delivered(effects) == []
    made.acknowledged = [9, 5]
    made.deliver(effects)
    assert delivered(effects) == [b"5/0", b"6/0"]
    assert [type(effect) for effect in effects] == [Deliver, Deliver, Stable]


def test_a_bundle_that_comes_twice_is_delivered_once() -> None:
    made, effects = order(), list[Effect]()
    assert made.add(entry(5, 0))
    assert not made.add(entry(5, 0))
    made.horizon = [9, 9]
    made.deliver(effects)
    assert not made.add(entry(5, 0))
    made.acknowledged = [9, 9]
    made.deliver(effects)
    assert not made.add(entry(5, 0)), "everybody has it, and it is forgotten here"
    assert delivered(effects) == [b"5/0"]


def test_what_was_delivered_is_not_delivered_again_when_it_comes_between_two_rings() -> None:
    """A redundant gateway gets it on one ring, and again when another ring changes (seed 8461135)."""
    made, effects = order(), list[Effect]()
    made.add(entry(5, 0))
    made.horizon = [9, 9]
    made.deliver(effects)
    made.add_loose(entry(5, 0))
    made.acknowledged = [9, 9]
    made.deliver(effects)
    made.add_loose(entry(5, 0))
    assert made.settle(9, 9, effects) == []
    assert delivered(effects) == [b"5/0"]


def test_behind_a_gap_only_those_are_delivered_who_come_along() -> None:
    made, effects = order(), list[Effect]()
    made.obligations = frozenset({7})
    made.add(entry(4, 1))
    made.horizon = [4, 4]
    made.add_loose(entry(6, 0, origin=7))
    made.add_loose(entry(8, 0, origin=9))
    rest = made.settle(4, 0, effects)
    assert delivered(effects) == [b"4/1"]
    made.deliver_rest(rest, 4, effects)
    assert delivered(effects) == [b"4/1", b"6/0"]


def test_a_configuration_ends_before_the_first_safe_message_that_not_all_have() -> None:
    made, effects = order(1), list[Effect]()
    for each in (entry(4, 0), entry(5, 0, Guarantee.SAFE), entry(6, 0)):
        made.add(each)
    made.horizon = [6]
    rest = made.settle(6, 4, effects)
    assert delivered(effects) == [b"4/0"]
    assert [each.place.timestamp for each in rest] == [5, 6]

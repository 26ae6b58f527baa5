from __future__ import annotations

import pytest

from ordercast.core.identity import Configuration, ConfigurationId, Kind
from ordercast.groups.events import Delivery
from ordercast.measure.loads import STAMP, GroupLoad, Turns, random_payload, sent_ns, timed


def test_turns_mix_two_groups_by_their_share() -> None:
    both = [GroupLoad("all", 1), GroupLoad("own", 1)]
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        turns = Turns(both, share)
        taken = [turns.next() for _ in range(100)]
        assert sum(taken) == round(100 * share)
        assert all(abs(sum(taken[:count]) - count * share) <= 1 for count in range(100))
    assert Turns(both[:1], 0.9).next() == 0


def test_a_message_says_when_it_was_sent_if_it_is_timed_and_long_enough() -> None:
    for size in (0, STAMP - 1, STAMP, 100):
        payload = random_payload(size)
        assert len(payload) == size
        assert sent_ns(payload) == 0
        assert len(timed(payload, 77)) == size
        assert sent_ns(timed(payload, 77)) == (77 if size >= STAMP else 0)


def test_own_messages_that_come_back_tell_when_they_were_sent() -> None:
    load = GroupLoad("all", 1)
    for now in (10, 20, 30):
        load.stamp(now)
        load.sent += 2
    assert load.returned(3) == [10, 20]
    load.begin_life()
    load.stamp(40)
    load.sent += 1
    assert load.returned(1) == [40], "what the earlier life sent may never come"


def test_what_is_delivered_out_of_its_place_is_noticed_at_once() -> None:
    def at(seq: int, configuration: int) -> Delivery:
        where = ConfigurationId(configuration, 1)
        return Delivery([b"x"], 1, "all", False, 0, range(seq, seq + 1), where, seq, range(1))

    load = GroupLoad("all", 1)
    load.install(Configuration(ConfigurationId(4, 1), Kind.REGULAR, (1,)))
    load.add(at(8, 4))
    with pytest.raises(ValueError, match="behind one at"):
        load.add(at(7, 4))
    load.install(Configuration(ConfigurationId(8, 1), Kind.REGULAR, (1,)))
    load.add(at(7, 8))
    assert load.by_sender == {1: 2}

"""Who is on which level, what is handed down, and who gets a turn (004 §3.3.2)."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.core.contract import (
    Deliver,
    Drop,
    Halt,
    Install,
    Packet,
    SetTimer,
    Start,
    Submit,
    Timer,
    Unicast,
)
from ordercast.core.identity import Batch, ConfigurationId, Guarantee
from ordercast.core.protocol import LAN, SIM, Buffers
from ordercast.levels.config import Levels, LevelsConfig
from ordercast.levels.feed import Beginning, Entry, Feed, Position, ordered, pieces_of, read_entry
from ordercast.levels.follower import FollowerMachine
from ordercast.levels.inserting import Inserting, Unbundling, read_bundle
from ordercast.levels.packets import Attach, Beat, Insert, Lost, Pieces, Welcome, decode, encode
from ordercast.levels.protocol import TRMP
from ordercast.viewsync.header import NO_VIEW

VIEW, NEXT = ConfigurationId(7, 1), ConfigurationId(9, 1)
CONFIG = LevelsConfig(primaries=(1, 2, 3), sources=(4,), rings=((2, 4, 5), (5, 6)))


def batch(seq: int, size: int = 3) -> Batch:
    return Batch(VIEW, seq, 0, 1, 0, seq, Guarantee.AGREED, (b"x" * size,))


# --- levels ----------------------------------------------------------------------------------------


def test_a_lower_ring_is_fed_by_those_of_a_higher_level_on_it_and_by_primaries_where_they_fail() -> None:
    levels = Levels(CONFIG)
    assert levels.feeders(4) == (2,)
    assert levels.parents(4)[0] == 2
    assert set(levels.parents(4)) == {1, 2, 3}
    assert levels.parents(6)[0] == 5
    assert levels.parents(8) == (3, 1, 2), "each begins with another primary"


def test_levels_of_trust() -> None:
    """004 §3.3.2: "the assignment of different levels of trustness to the processes"."""
    levels = Levels(CONFIG)
    assert [levels.is_primary(node) for node in (1, 3, 4)] == [True, True, False]
    assert [levels.may_send(node) for node in (1, 4, 5)] == [True, True, False]
    assert levels.is_above(5, 6)
    assert levels.is_above(2, 6)
    assert not levels.is_above(4, 6)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sources": (4,)}, "need primaries"),
        ({"primaries": (1, 2), "servers": (3,)}, "which is no primary"),
        ({"primaries": (1, 2), "rings": ((3, 4),)}, "nothing feeds"),
        ({"primaries": (0,)}, "no identifier"),
        ({"clock_error_ppm": 600_000}, "choose between"),
        ({"hurry_us": 200_000}, "must be smaller"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LevelsConfig(**settings)


def test_a_real_node_has_one_level_for_now() -> None:
    buffers = Buffers(buffer=212_992, datagram=1_400)
    assert TRMP.configure({}, LAN, buffers)
    with pytest.raises(ValueError, match="simulated only"):
        TRMP.configure({"primaries": [1, 2, 3]}, LAN, buffers)
    assert TRMP.configure({"primaries": [1, 2, 3]}, SIM)


# --- what is handed down ---------------------------------------------------------------------------


def test_entries_come_back_out_of_their_pieces() -> None:
    entry = ordered(batch(5, 40_000))
    pieces = pieces_of(entry)
    assert [more for more, _ in pieces] == [True, True, False]
    assert read_entry(b"".join(data for _, data in pieces)) == entry
    assert entry.batch(VIEW) == batch(5, 40_000)


def filled(count: int, limit: int = 1_000_000) -> Feed:
    feed = Feed(limit)
    feed.begin(VIEW, (1, 2, 3), 0)
    entries: list[Entry] = [Beginning((1, 2, 3), (0, 0), 0)]
    for entry in [*entries, *(ordered(batch(seq)) for seq in range(1, count + 1))]:
        for piece in pieces_of(entry):
            feed.add(piece)
    return feed


def test_a_feed_goes_on_from_a_place_into_the_next_view() -> None:
    feed = filled(3)
    feed.begin(NEXT, (1, 2), 0)
    feed.add(pieces_of(Beginning((1, 2), (VIEW.seq, VIEW.rep), 3))[0])
    stretch = feed.behind(Position(VIEW, 1), 10_000)
    assert stretch is not None
    assert (stretch.view, stretch.first, len(stretch.pieces)) == (VIEW, 2, 2)
    stretch = feed.behind(Position(VIEW, 3), 10_000)
    assert stretch is not None
    assert (stretch.view, stretch.first) == (NEXT, 0)
    assert feed.behind(Position(NEXT, 0), 10_000) is None
    assert feed.end == Position(NEXT, 0)


def test_a_feed_forgets_the_oldest_and_says_so() -> None:
    feed = filled(100, limit=2_000)
    assert feed.has(Position(VIEW, 100)) is True
    assert feed.has(Position(VIEW, 0)) is False
    assert feed.has(Position(VIEW, 101)) is None, "it has not come so far"
    assert feed.has(Position(ConfigurationId(8, 1), 0)) is None
    assert Feed(10).entrance is None


# --- inserting -------------------------------------------------------------------------------------


def insert(number: int, count: int, base: int = 1, origin: int = 4) -> Insert:
    payloads = tuple(b"%d" % (number + i) for i in range(count))
    return Insert(origin, 0, base, number, "agreed", payloads)


def test_sources_have_their_turns_whatever_one_of_them_sends() -> None:
    """004 §3.3.2: secondary sources send to primary sources, "which will insert them"; RINGS.md E: fairly."""
    inserting = Inserting(1, 1_000_000)
    inserting.accept([b"own" * 5_000] * 20, Guarantee.AGREED)
    assert inserting.insert(insert(1, 30), VIEW, 0) == 30
    assert inserting.insert(insert(1, 2, origin=5), VIEW, 0) == 2
    origins = []
    for _ in range(5):
        turn = inserting.take()
        assert turn is not None
        bundle = read_bundle(turn[0])
        assert bundle is not None
        origins.append(bundle.origin)
    assert sorted(origins[:3]) == [1, 4, 5]
    assert origins[3:] == [1, 1]


def test_what_was_inserted_before_is_not_inserted_again_and_gaps_are_left() -> None:
    inserting = Inserting(1, 1_000)
    assert inserting.insert(insert(1, 3), VIEW, 0) == 3
    assert inserting.insert(insert(1, 3), VIEW, 0) == 0
    assert inserting.insert(insert(2, 4), VIEW, 0) == 2
    assert inserting.insert(insert(9, 1), VIEW, 0) == 0
    assert inserting.insert(insert(9, 1), VIEW, 9) == 1, "another primary has inserted those before"


def test_messages_that_two_primaries_inserted_are_delivered_once() -> None:
    inserting, unbundling = Inserting(1, 1_000), Unbundling()
    inserting.insert(insert(1, 3), VIEW, 0)
    turn = inserting.take()
    assert turn is not None
    bundle = read_bundle(turn[0])
    assert bundle is not None
    first = unbundling.messages(batch(1), bundle, 0)
    assert first is not None
    assert (first.origin, first.number, first.payloads) == (4, 1, (b"1", b"2", b"3"))
    assert unbundling.messages(batch(2), bundle, 0) is None
    other_view = batch(3)._replace(configuration=NEXT)
    assert Unbundling().messages(other_view, bundle, 0) is None, "it was for the view before"
    assert read_bundle(b"no bundle") is None


# --- a follower ------------------------------------------------------------------------------------


class Below:
    """A follower, and what it is told."""

    def __init__(self, node: int = 4) -> None:
        self.machine = FollowerMachine(node, CONFIG)
        self.effects = list(self.machine.handle(0, Start(0, None, 0)))

    def hears(self, packet: Any, view: ConfigurationId = VIEW, sender: int = 2) -> list[Any]:
        self.effects = list(self.machine.handle(1_000, Packet(encode(packet, view, sender, 0), sender)))
        return self.effects

    def sent(self) -> list[Any]:
        return [decode(effect.data) for effect in self.effects if isinstance(effect, Unicast)]


def pieces(feed: Feed, behind: int) -> Pieces:
    stretch = feed.behind(Position(VIEW, behind), 1_000_000)
    assert stretch is not None
    return Pieces(stretch.first, stretch.pieces)


def test_a_follower_asks_to_be_fed_and_delivers_what_it_is_handed_down() -> None:
    below = Below()
    assert below.sent() == [Attach(0)]
    effects = below.hears(Welcome((1, 2, 3), 1))
    assert [effect.configuration.members for effect in effects if isinstance(effect, Install)] == [(1, 2, 3)]
    effects = below.hears(pieces(filled(3), 1))
    assert [effect.batch.seq for effect in effects if isinstance(effect, Deliver)] == [2, 3]
    assert below.machine.final == (VIEW, 3)


def test_a_follower_says_what_it_lacks_and_takes_nothing_out_of_order() -> None:
    below = Below()
    below.hears(Welcome((1, 2, 3), 0))
    effects = below.hears(pieces(filled(3), 2))
    assert not any(isinstance(effect, Deliver) for effect in effects)
    effects = below.hears(pieces(filled(2), 0))
    assert [effect.batch.seq for effect in effects if isinstance(effect, Deliver)] == [1, 2, 3]


def test_a_follower_heeds_nobody_but_who_feeds_it() -> None:
    below = Below()
    assert below.hears(Welcome((1, 2, 3), 0), sender=3)[0] == Drop("not above")
    assert below.hears(Attach(0), NO_VIEW, sender=6)[0] == Drop("not below")
    other = Packet(b"OC\x01\x01" + bytes(30), 2)
    assert list(below.machine.handle(0, other)) == [Drop("of the primary ring")]


def test_turns_follow_the_schedule() -> None:
    below = Below()
    below.hears(Welcome((1, 2, 3), 0))
    effects = below.hears(Beat(0, 3, 8))
    timers = {effect.name: effect.delay_us for effect in effects if isinstance(effect, SetTimer)}
    assert timers["feed turn"] == 1 + 3 * CONFIG.hurry_us


def test_who_is_told_by_all_that_what_it_lacks_is_gone_begins_another_life() -> None:
    below = Below()
    below.hears(Welcome((1, 2, 3), 0))
    asked = [2]
    for _ in range(3):
        effects = below.hears(Lost(), sender=asked[-1])
        asked += [effect.to for effect in effects if isinstance(effect, Unicast)]
    assert asked[0] == 2, "it feeds the ring"
    assert sorted(asked) == [1, 2, 3], "each once"
    assert below.effects == [Halt("cut off")]
    assert below.machine.room == 0


def test_who_does_not_have_what_a_follower_lacks_is_not_asked_again_whatever_arrives_twice() -> None:
    """Only one node feeds the ring: it says no, and where packets are duplicated it does so twice."""
    below = Below()
    below.hears(Welcome((1, 2, 3), 0))
    below.hears(Lost())
    assert below.sent() == [Attach(0)]
    assert below.hears(Lost()) == [Drop("not above")]
    for _ in range(8):  # the others do not answer
        effects = below.machine.handle(1_000, Timer("feed attach"))
        assert next(effect.to for effect in effects if isinstance(effect, Unicast)) in (1, 3)
    assert not below.machine.halted
    below.machine.handle(1_000 + 3 * CONFIG.conservative_us, Timer("feed attach"))
    assert below.machine.halted, "it looked for long"


def test_a_follower_without_an_answer_asks_who_feeds_its_ring_for_a_while_and_then_primaries() -> None:
    below = Below()
    asked = []
    for at_us in (
        1_000,
        2_000,
        CONFIG.conservative_us,
        CONFIG.conservative_us + 1,
        CONFIG.conservative_us + 2,
    ):
        effects = below.machine.handle(at_us, Timer("feed attach"))
        asked += [effect.to for effect in effects if isinstance(effect, Unicast)]
    assert asked[:2] == [2, 2]
    assert set(asked[2:]) == {1, 2, 3}


def test_a_receiver_sends_nothing() -> None:
    below = Below(5)
    assert below.machine.room == 0
    assert below.machine.role == "receiver"
    with pytest.raises(ValueError, match="only receives"):
        below.machine.handle(0, Submit([b"m"], Guarantee.AGREED))


def test_a_source_sends_up_and_again_in_a_new_view_what_did_not_come_back() -> None:
    below = Below()
    below.hears(Welcome((1, 2, 3), 0))
    below.effects = list(below.machine.handle(2_000, Submit([b"m", b"n"], Guarantee.AGREED)))
    assert below.sent() == [Insert(4, 0, 1, 1, "agreed", (b"m", b"n"))]
    beginning = pieces_of(Beginning((1, 2), (VIEW.seq, VIEW.rep), 0))
    below.hears(Pieces(0, tuple(beginning)), NEXT)
    assert Insert(4, 0, 1, 1, "agreed", (b"m", b"n")) in below.sent()
    with pytest.raises(ValueError, match="larger than"):
        below.machine.handle(0, Submit([bytes(40_000)], Guarantee.AGREED))

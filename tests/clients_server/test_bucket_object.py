"""A bucket by itself: what its commands do to it."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ordercast.clients.buckets.bucket import MOST_AT_ONCE, MOST_IDENTIFIERS, Bucket, Changed, Stored
from ordercast.clients.buckets.settings import Settings, settled
from ordercast.process_groups.views import Process
from ordercast.replicated.replicated import Turn


class Alone:
    """A bucket that carries out commands at once, and what it should have by them."""

    def __init__(self, **wanted: Any) -> None:
        told: dict[str, Any] = {"discard": "new", "max_msgs_per_subject": 2} | wanted
        settings = settled(Settings(**told), "b")
        assert isinstance(settings, Settings)
        self.bucket = Bucket(settings)
        self.told: list[Changed] = []
        self.bucket._replica = self  # type: ignore[assignment]
        self._positions = itertools.count(1)
        self.now_us = 1_000_000

    def tell(self, event: Changed) -> None:
        self.told.append(event)

    def do(self, command: Any, *args: Any, **more: Any) -> Any:
        self._turn()
        return command.function(self.bucket, *args, **more)

    def put(self, *args: Any, **more: Any) -> Stored:
        stored: Stored = self.do(Bucket.put, *args, **more)
        return stored

    def pass_time(self, us: int) -> None:
        self.now_us += us
        while self.bucket.wake_at_us is not None and self.bucket.wake_at_us <= self.now_us:
            self.bucket.wake_at_us = None
            self._turn()
            self.bucket.tick()

    def _turn(self) -> None:
        self.bucket._turn = Turn(self.now_us, next(self._positions), Process(1, 0, 1))

    def check(self) -> None:
        """What it keeps twice is the same."""
        bucket = self.bucket
        assert bucket.size == sum(each.size for each in bucket.entries.values())
        assert list(bucket.entries) == sorted(bucket.entries)
        by_key: dict[str, tuple[int, ...]] = {}
        for revision, entry in bucket.entries.items():
            by_key[entry.key] = (*by_key.get(entry.key, ()), revision)
        assert bucket.keys == by_key
        assert all(len(each) <= bucket.settings.max_msgs_per_subject for each in by_key.values())
        assert {revision for _, revision in bucket.due} >= {
            revision for revision, entry in bucket.entries.items() if bucket._ends_us(entry)
        }
        assert bucket.identifiers.keys() == {name for _, name in bucket.identified}
        assert len(bucket.identifiers) <= MOST_IDENTIFIERS


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.sampled_from("abc"),
            st.integers(0, 300),
            st.sampled_from([None, None, 0, "last"]),
            st.booleans(),
            st.sampled_from([0, 0, 2_000_000]),
            st.sampled_from(["", "", "i", "j"]),
        ),
        st.tuples(st.just("purge"), st.sampled_from(["a", ">", "*"]), st.integers(0, 2), st.integers(0, 20)),
        st.tuples(st.just("time"), st.integers(0, 3_000_000)),
        st.tuples(st.just("configure"), st.integers(1, 3), st.sampled_from([0, 4_000_000_000])),
    ),
    max_size=40,
)


@given(STEPS)
def test_a_bucket_has_what_was_put_and_did_not_end(steps: list[tuple[Any, ...]]) -> None:
    alone = Alone(max_bytes=2_000, max_age=4_000_000_000)
    bucket = alone.bucket
    for step in steps:
        before = dict(bucket.entries)
        match step:
            case ("put", key, size, expected, rollup, lifetime_us, identifier):
                last = bucket.keys.get(key, (0,))[-1]
                wanted = last if expected == "last" else expected
                stored = alone.put(key, bytes(size), b"", wanted, rollup, lifetime_us, identifier)
                if stored.refused or stored.repeated:
                    assert bucket.entries == before
                    assert stored.refused != "wrong last" or wanted not in (None, last)
                    assert stored.revision == last or stored.repeated
                else:
                    assert wanted in (None, last)
                    assert bucket.last == stored.revision == bucket.keys[key][-1] > max(before, default=0)
                    assert not rollup or bucket.keys[key] == (stored.revision,)
                    assert bucket.size <= 2_000
            case ("purge", pattern, keep, below):
                count = alone.do(Bucket.purge, pattern, keep, below)
                assert count == len(before) - len(bucket.entries)
            case ("time", us):
                alone.pass_time(us)
                step_us = 100_000
                for entry in bucket.entries.values():
                    assert bucket._ends_us(entry) == 0 or bucket._ends_us(entry) > alone.now_us - step_us
                gone = [before[each] for each in before.keys() - bucket.entries.keys()]
                assert all(0 < bucket._ends_us(each) <= alone.now_us for each in gone), "none too early"
            case ("configure", history, age):
                wanted_now = {"max_msgs_per_subject": history, "max_age": age, "max_bytes": 2_000}
                settings = settled(Settings(discard="new", **wanted_now), "b")
                assert alone.do(Bucket.configure, settings)
        alone.check()
    assert alone.do(Bucket.close) is None
    alone.check()
    assert alone.put("a", b"").refused == "closed"
    assert (alone.do(Bucket.purge, ">"), alone.do(Bucket.configure, bucket.settings)) == (-1, False)


def test_what_a_value_replaces_makes_room_for_it() -> None:
    alone = Alone(max_bytes=500, max_msgs_per_subject=1)
    for number in range(5):
        assert not alone.put("k", bytes(300)).refused, number
    assert alone.put("other", bytes(300)).refused == "full"


def test_an_age_that_is_set_later_holds_for_what_is_there() -> None:
    alone = Alone()
    alone.put("k", b"")
    aged = settled(Settings(discard="new", max_msgs_per_subject=1, max_age=1_000_000_000), "b")
    assert alone.do(Bucket.configure, aged)
    alone.pass_time(900_000)
    assert alone.bucket.entries
    alone.pass_time(200_000)
    assert not alone.bucket.entries


def test_what_is_kept_beside_values_is_bounded() -> None:
    alone = Alone(max_age=1_000_000_000_000)
    for number in range(MOST_IDENTIFIERS + 5_000):
        alone.put("k", b"", identifier=f"i{number}")
    assert len(alone.bucket.identified) == MOST_IDENTIFIERS
    assert len(alone.bucket.due) < 2_000
    alone.check()


def test_of_many_values_that_end_at_once_some_end_at_each_place_of_the_order() -> None:
    alone = Alone(max_age=1_000_000_000)
    for number in range(2 * MOST_AT_ONCE + 1):
        alone.put(f"k{number}", b"")
    alone.now_us += 2_000_000
    alone._turn()
    alone.bucket.tick()
    assert len(alone.bucket.entries) == MOST_AT_ONCE + 1
    assert alone.bucket.wake_at_us is not None
    assert alone.bucket.wake_at_us <= alone.now_us + 1
    alone.pass_time(1)
    alone.pass_time(1)
    assert not alone.bucket.entries
    assert alone.bucket.wake_at_us is None

"""The replicated map: at real nodes on a network in memory, in virtual time; and its state by itself."""

from __future__ import annotations

import asyncio
from heapq import heappop
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ordercast
from ordercast import Change, Conflict, Map
from ordercast.objects.map import MOST_AT_ONCE, SPARE
from ordercast.replicated.replicated import Subject, Turn
from ordercast.testing import Cluster, run

PROTOCOLS = pytest.mark.parametrize(
    ("protocol", "voters"), [("totem", (1, 2, 3)), ("total", ()), ("cm", ())], ids=["totem", "total", "cm"]
)


async def maps_of(cluster: Cluster, kind: type[Any]) -> list[Map[Any]]:
    return [await node.replicate(Map(kind), "map", timeout=30) for node in cluster.nodes]


@PROTOCOLS
def test_what_is_put_at_one_node_is_there_at_all(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=1, protocol=protocol, voters=voters) as cluster:
            one, two, three = await maps_of(cluster, list[int])
            assert await two.get("a") is None
            first = await one.put("a", [1])
            second = await two.put("b", [2, 3])
            assert 0 < first < second
            assert await three.get("a") == [1]
            entry = await three.entry("b")
            assert entry is not None
            assert (entry.key, entry.value, entry.revision, entry.expires_us) == ("b", [2, 3], second, None)
            assert dict(three.local) == {"a": [1], "b": [2, 3]}
            assert len(three.local) == 2
            assert await one.delete("a")
            assert not await one.delete("a")
            assert await two.get("a") is None
            assert "a" not in two.local

    run(main())


def test_a_change_may_depend_on_revision_or_value() -> None:
    async def main() -> None:
        async with Cluster(2, seed=2, protocol="total") as cluster:
            one, two = await maps_of(cluster, dict[str, int])
            first = await one.create("a", {"x": 1, "y": 2})
            with pytest.raises(Conflict, match=f"at revision {first}") as raised:
                await two.create("a", {})
            assert (raised.value.key, raised.value.revision) == ("a", first)
            with pytest.raises(Conflict, match="is not there"):
                await two.put("b", {}, revision=first)
            assert await two.compare_and_set("a", {"y": 2, "x": 1}, {"x": 2}), "equal, in another order"
            assert not await one.compare_and_set("a", {"x": 1, "y": 2}, {})
            assert not await one.compare_and_set("a", None, {})
            assert await one.compare_and_set("b", None, {"z": 0})
            entry = await one.entry("a")
            assert entry is not None
            with pytest.raises(Conflict):
                await one.delete("a", revision=first)
            third = await one.put("a", {}, revision=entry.revision)
            assert await two.delete("a", revision=third)
            await one.sync()
            assert dict(one.local) == {"b": {"z": 0}}

    run(main())


def test_values_are_of_the_type_that_the_map_is_made_for() -> None:
    async def main() -> None:
        async with Cluster(1, protocol="total") as cluster:
            node = cluster.nodes[0]
            numbers = await node.replicate(Map(float), "numbers")
            await numbers.put("a", 1)
            assert await numbers.compare_and_set("a", 1.0, 2)
            with pytest.raises(TypeError, match="not of the type"):
                await numbers.put("a", "one")  # type: ignore[arg-type]
            anything: Map[Any] = await node.replicate(Map(), "anything")
            for value in (None, True, -1, 0.5, "x", b"y", [1, "z"], {"k": [b"v"]}):
                await anything.put("a", value)
                assert await anything.get("a") == value
                assert await anything.compare_and_set("a", value, value)
            with pytest.raises(ValueError, match="ttl is 0"):
                await anything.put("a", 1, ttl=0)
            with pytest.raises(ordercast.ConfigProblem, match="the values of a Map"):
                Map(object)

    run(main())


@PROTOCOLS
def test_entries_expire_in_ordered_time(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=3, protocol=protocol, voters=voters) as cluster:
            one, two, three = await maps_of(cluster, str)
            loop = asyncio.get_running_loop()
            with three.watch() as changes:
                begun = loop.time()
                await one.put("short", "x", ttl=5)
                await two.put("long", "x", ttl=20)
                await two.put("kept", "x", ttl=5)
                await asyncio.sleep(3)
                await one.put("kept", "y")
                await one.put("again", "x", ttl=5)
                kinds = [((await anext(changes)).kind, loop.time() - begun) for _ in range(7)]
            assert [kind for kind, _ in kinds] == ["put"] * 5 + ["expire"] * 2
            assert 5 <= kinds[5][1] < 5.5
            assert 8 <= kinds[6][1] < 8.5
            await one.sync()
            assert list(one.local) == ["long", "kept"]
            await asyncio.sleep(15)
            assert await two.get("long") is None
            assert [dict(each.local) for each in (one, two)] == [{"kept": "y"}] * 2

    run(main())


def test_who_watches_is_told_of_its_keys_and_may_begin_with_what_is_there() -> None:
    async def main() -> None:
        async with Cluster(2, seed=4, protocol="total") as cluster:
            one, two = await maps_of(cluster, int)
            await one.put("a.1", 1)
            await one.put("b.1", 2)
            await two.sync()
            by_prefix = two.watch(prefix="a.", present=True)
            by_key = two.watch("b.1")
            everything = two.watch()
            await one.put("a.2", 3)
            await one.put("b.1", 4)
            await one.delete("a.1")
            seen: list[tuple[Any, ...]] = []
            for changes, number in ((by_prefix, 3), (by_key, 1), (everything, 3)):
                seen.append(
                    tuple(
                        (each.kind, each.key, each.value)
                        for each in [await anext(changes) for _ in range(number)]
                    )
                )
                changes.close()
            assert seen == [
                (("put", "a.1", 1), ("put", "a.2", 3), ("delete", "a.1", None)),
                (("put", "b.1", 4),),
                (("put", "a.2", 3), ("put", "b.1", 4), ("delete", "a.1", None)),
            ]
            with pytest.raises(StopAsyncIteration):
                await anext(by_key)

    run(main())


@PROTOCOLS
def test_who_watches_and_was_away_is_told_what_is_there_then(protocol: str, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with Cluster(3, seed=5, protocol=protocol, voters=voters) as cluster:
            one, _two, three = await maps_of(cluster, int)
            for number in range(5):
                await one.put(f"k{number}", number)
            contents: dict[str, int] = {}

            async def follow() -> None:
                with three.watch(present=True) as changes:
                    async for change in changes:
                        if change.value is None:
                            del contents[change.key]
                        else:
                            contents[change.key] = change.value

            following = asyncio.create_task(follow())
            await three.sync()
            cluster.network.partition({3})
            await cluster.together(1, 2)
            await one.delete("k1")
            await one.put("k2", 20)
            await one.put("k5", 50)
            cluster.network.heal()
            await cluster.together()
            await one.put("k6", 60)
            assert await three.get("k6") == 60
            await asyncio.sleep(1)
            assert contents == dict(one.local) == {"k0": 0, "k2": 20, "k3": 3, "k4": 4, "k5": 50, "k6": 60}
            following.cancel()

    run(main())


# --- the state by itself ------------------------------------------------------------------------


class Alone:
    """A map without replicas: commands are carried out at once, at the times that the test says."""

    def __init__(self) -> None:
        self.map: Map[int] = Map(int)
        self.subject = Subject(self.map)
        self.now_us = 0
        self._positions = count(1)

    def do(self, command: Any, *args: Any) -> Any:
        """Carry out a command."""
        if self.map.wake_at_us is not None and self.now_us >= self.map.wake_at_us:
            self.subject.tick(Turn(self.now_us, next(self._positions)))
        self.map._turn = Turn(self.now_us, next(self._positions))
        return command.function(self.map, *args)

    def pass_time(self, us: int) -> None:
        """Let time pass, with ticks as they fall due."""
        self.now_us += us
        while self.map.wake_at_us is not None and self.map.wake_at_us <= self.now_us:
            self.subject.tick(Turn(self.now_us, next(self._positions)))
            self.now_us += 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcde"), st.integers(0, 50)),
        st.tuples(st.just("delete"), st.sampled_from("abcde"), st.just(0)),
        st.tuples(st.just("pass"), st.just(""), st.integers(1, 30)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_entries_are_there_until_their_time_and_no_longer(steps: list[tuple[str, str, int]]) -> None:
    alone, until = Alone(), dict[str, float]()
    for kind, key, number in steps:
        if kind == "put":
            alone.do(Map.store, key, b"\x01", number * 1_000_000, None)
            until[key] = alone.now_us + number * 1_000_000 if number else float("inf")
        elif kind == "delete":
            assert alone.do(Map.remove, key, None) == (until.pop(key, None) is not None)
        else:
            alone.pass_time(number * 1_000_000)
        until = {key: at for key, at in until.items() if at > alone.now_us}
        assert alone.map.entries.keys() == until.keys()
        assert alone.map.expiring == sum(at != float("inf") for at in until.values())
        assert {key for _, key in alone.map.due} >= {key for key, at in until.items() if at != float("inf")}


def test_the_list_of_what_is_due_stays_short() -> None:
    """Whatever is done to keys, beside what expires there are few times in the list."""
    alone = Alone()
    for number in range(20 * SPARE):
        alone.now_us += 1
        key = f"k{number % 50}"
        if number % 3 == 0:
            alone.do(Map.remove, key, None)
        else:
            alone.do(Map.store, key, b"\x01", 10**12 - number, None)
        assert len(alone.map.due) <= 2 * alone.map.expiring + SPARE + 1
    due = list(alone.map.due)
    assert [heappop(due) for _ in range(len(due))] == sorted(alone.map.due)


def test_a_bounded_number_expires_at_one_place() -> None:
    alone = Alone()
    for number in range(3 * MOST_AT_ONCE):
        alone.do(Map.store, f"k{number}", b"\x01", 1_000_000, None)
    alone.now_us += 1_000_000
    left: list[int] = []
    while alone.map.wake_at_us is not None:
        assert alone.map.wake_at_us <= alone.now_us
        alone.subject.tick(Turn(alone.now_us, 10**6 + len(left)))
        alone.now_us += 1
        left.append(len(alone.map.entries))
    assert left == [2 * MOST_AT_ONCE, MOST_AT_ONCE, 0]


def test_a_change_is_a_tuple() -> None:
    assert Change("put", "a", 1, 2, 3)[:3] == ("put", "a", 1)


def test_a_map_that_is_made_with_its_type_in_brackets_is_replicated() -> None:
    async def main() -> None:
        async with Cluster(1, seed=1, protocol="total") as cluster:
            made = await cluster.nodes[0].replicate(Map[str](str), "map", timeout=30)
            await made.put("a", "b")
            assert await made.get("a") == "b"

    run(main())

"""Mistakes in the class of an application cost what was asked, and not the nodes; and no replica shares
anything with another one, or with those who use it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal, TypeAlias

import pytest

import ordercast
from ordercast.replicated import disk
from ordercast.replicated.replicated import Subject
from ordercast.testing import Cluster, OfAnotherType, Service, World, simulated

EVERYWHERE_AND_AT_THE_PRIMARY = pytest.mark.parametrize("where", ["everywhere", "primary"])


class Dumb(ordercast.CommandFailed):
    """Cannot say what it means."""

    def __str__(self) -> str:
        return str(self.args[1])


class Mistakes(ordercast.Replicated):
    """Commands that should have been written in another way."""

    count: int

    def __init__(self) -> None:
        self.count = 0

    @ordercast.command
    def dumb(self) -> None:
        """Raises what raises again when it is asked."""
        raise Dumb(1)

    @ordercast.command
    def not_a_text(self, name: bytes) -> None:
        """Raises, by mistake, a text that is not UTF-8."""
        raise ValueError(name.decode(errors="surrogateescape"))

    @ordercast.command
    def not_a_text_on_purpose(self, name: bytes) -> None:
        """The same, on purpose."""
        raise ordercast.CommandFailed(name.decode(errors="surrogateescape"))

    @ordercast.command
    def of_another_type(self) -> int:
        """What it says is not what it gives."""
        self.count += 1
        return "one"  # type: ignore[return-value]

    @ordercast.command
    def add(self) -> int:
        """Is right."""
        self.count += 1
        return self.count

    @ordercast.command
    def wake(self) -> None:
        """Has `tick` called soon."""
        self.wake_at_us = self.now_us + 1_000

    @ordercast.command
    def tell_a_generator(self) -> int:
        """Tells what nobody can copy."""
        self.tell(each for each in "abc")
        return 5

    def tick(self) -> None:
        self.count += 10
        raise KeyError("tick")

    def left(self, process: ordercast.Process) -> None:
        self.count += 100
        raise KeyError("left")


Where: TypeAlias = Literal["everywhere", "primary"]


def serve(world: World, make: Callable[[], Any], where: Where = "everywhere") -> Service[Any]:
    async def open_it(node: ordercast.Node) -> Any:
        return await node.replicate(make(), "it", run=where)

    return world.service(open_it)


@EVERYWHERE_AND_AT_THE_PRIMARY
@pytest.mark.parametrize(
    ("command", "args", "text"),
    [
        ("dumb", (), ""),
        ("not_a_text", (b"a\xff",), "ValueError: a\\udcff"),
        ("not_a_text_on_purpose", (b"a\xff",), "a\\udcff"),
        ("of_another_type", (), "its result is not of the type that is annotated"),
    ],
)
def test_what_a_command_raises_reaches_its_caller_and_ends_no_node(
    command: str, args: tuple[object, ...], text: str, where: Where
) -> None:
    @simulated(nodes=3, faults=False)
    async def test(world: World) -> None:
        mistakes = serve(world, Mistakes, where)
        await world.ready()
        with pytest.raises(ordercast.CommandFailed) as raised:
            await getattr(mistakes.at(1), command)(*args)
        if text:
            assert text in str(raised.value)
        assert await mistakes.at(2).add() == 1 + (command == "of_another_type")

    test()


@pytest.mark.parametrize("what", ["tick", "left", "tell"])
def test_what_is_raised_where_nobody_waits_is_told_and_ends_no_node(what: str) -> None:
    """In a test it fails that; in life it is in the log, and the group goes on."""
    told: list[BaseException] = []

    async def main() -> None:
        async with Cluster(3, protocol="total") as cluster:
            asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what["exception"]))
            objects = [await node.replicate(Mistakes(), "it") for node in cluster.nodes]
            events = ordercast.watch(objects[0])
            match what:
                case "tick":
                    await objects[0].wake()
                case "left":
                    await cluster.nodes[2].stop()
                case _:
                    assert await objects[0].tell_a_generator() == 5
            await asyncio.sleep(1)
            count = {"tick": 10, "left": 100}.get(what, 0)
            assert await objects[0].add() == count + 1
            await objects[1].sync()
            assert objects[1].count == count + 1
            events.__exit__(None, None, None)
            assert [event async for event in events] == []

    ordercast.testing.run(main())
    assert told
    assert {type(error) for error in told} == {TypeError if what == "tell" else KeyError}


def test_a_test_fails_with_what_is_raised_where_nobody_waits() -> None:
    @simulated(nodes=3, faults=False)
    async def test(world: World) -> None:
        mistakes = serve(world, Mistakes)
        await world.ready()
        await mistakes.at(1).wake()
        await asyncio.sleep(1)

    with pytest.raises(KeyError, match="tick"):
        test()


# --- what is whose ---------------------------------------------------------------------------------


class Shared(ordercast.Replicated):
    """Begins with a list that belongs to the class."""

    words: list[str] = []  # noqa: RUF012 - that is the mistake

    @ordercast.command
    def add(self, word: str) -> int:
        """Put a word behind the others; how many there are."""
        self.words.append(word)
        self.tell(self.words)
        return len(self.words)


class Given(Shared):
    """Begins with a list that others have, too."""

    def __init__(self, words: list[str]) -> None:
        self.words = words


def test_what_an_object_begins_with_is_its_own() -> None:
    """Else a command would be carried out three times, where three replicas are in one process."""
    given = ["before"]

    @simulated(nodes=3, faults=False)
    async def test(world: World) -> None:
        for make, before in ((Shared, 0), (lambda: Given(given), 1)):
            service = serve(world, make)
            await world.ready()
            assert await service.at(1).add("a") == before + 1
            for node in world.ids:
                await service.at(node).sync()
                assert service.at(node).words == [*given[:before], "a"]
                await world.nodes[node - 1]._member.replicas.release("it")  # type: ignore[union-attr]

    test()
    assert given == ["before"]
    assert Shared.words == []


def test_an_object_that_begins_with_another_type_is_refused() -> None:
    """A `defaultdict` would be a dict at who gets it from another one."""
    with pytest.raises(ordercast.ConfigProblem, match=r"Given\.words begins with a value of the type int"):
        Subject(Given(5)).attach(None)  # type: ignore[arg-type]

    class ByWord(ordercast.Replicated):
        counts: dict[str, int]

        def __init__(self) -> None:
            self.counts = defaultdict(int)

    subject = Subject(made := ByWord())
    subject.attach(None)  # type: ignore[arg-type]
    assert type(made.counts) is dict


@EVERYWHERE_AND_AT_THE_PRIMARY
def test_who_watches_is_told_what_was_there_then(where: Where) -> None:
    """Commands travel together, and the later ones change what the earlier ones told."""

    @simulated(nodes=3, seeds=range(3), faults=False)
    async def test(world: World) -> None:
        service = serve(world, lambda: Given([]), where)
        await world.ready()
        with ordercast.watch(service.at(2)) as events, ordercast.watch(service.at(2)) as others:
            await asyncio.gather(*(service.at(1).add(str(number)) for number in range(5)))
            await service.at(2).sync()
        found = [event async for event in events]
        assert found == [[str(number) for number in range(until + 1)] for until in range(5)]
        again = [event async for event in others]
        assert again == found
        assert not any(one is other for one, other in zip(found, again, strict=True))

    test()


# --- what is not of its type -----------------------------------------------------------------------


class Spoilt(ordercast.Replicated):
    """Commands put in what is not of the fields' types."""

    numbers: dict[str, int]
    words: list[str]

    def __init__(self) -> None:
        self.numbers = {}
        self.words = []

    @ordercast.command
    def add(self, word: str) -> int:
        """Is right; how many there are."""
        self.words.append(word)
        self.numbers[word] = 1
        return len(self.words)

    @ordercast.command
    def half(self, word: str) -> None:
        """Puts in a float."""
        self.numbers[word] = 0.5  # type: ignore[assignment]

    @ordercast.command
    def nothing(self) -> None:
        """Takes the whole dict away."""
        self.numbers = None  # type: ignore[assignment]

    @ordercast.command
    def wake(self) -> None:
        """Has `tick` called soon."""
        self.wake_at_us = self.now_us + 1_000

    def tick(self) -> None:
        self.numbers = None  # type: ignore[assignment]


@pytest.mark.parametrize("command", ["half", "nothing", "wake"])
def test_a_test_fails_where_a_field_holds_what_is_not_of_its_type(command: str) -> None:
    @simulated(nodes=3, seeds=range(1), faults=False)
    async def test(world: World) -> None:
        spoilt = serve(world, Spoilt)
        await world.ready()
        await getattr(spoilt.at(1), command)(*(["a"] if command == "half" else []))
        await asyncio.sleep(1)

    what = (
        "holds what is not of its type: Expected `int`" if command == "half" else "is a NoneType, and no dict"
    )
    with pytest.raises(OfAnotherType, match=f"has spoilt it: the field Spoilt.numbers {what}"):
        test()


@pytest.mark.parametrize("command", ["half", "nothing"])
def test_in_life_the_others_go_on_with_what_is_not_of_its_type(command: str) -> None:
    """Though some of them should give it to one that was away."""

    async def main() -> None:
        async with Cluster(3, protocol="total") as cluster:
            objects = [await node.replicate(Spoilt(), "it") for node in cluster.nodes]
            await getattr(objects[0], command)(*(["a"] if command == "half" else []))
            await cluster.nodes[2].stop()
            again = cluster.nodes[2] = cluster.node(3)
            await again.start()
            with pytest.raises((TimeoutError, ordercast.ConfigProblem)) as raised:
                await again.replicate(Spoilt(), "it", timeout=10)
            if command == "half":
                assert "or a command has put in what is not of its type" in str(raised.value)
            with pytest.raises(ordercast.CommandFailed) if command == "nothing" else nullcontext():
                await objects[0].add("b")
            await objects[1].sync()
            assert objects[1].words == ["b"]

    ordercast.testing.run(main())


def test_at_the_primary_what_is_not_of_its_type_is_refused() -> None:
    @simulated(nodes=3, seeds=range(1), faults=False)
    async def test(world: World) -> None:
        spoilt = serve(world, Spoilt, "primary")
        await world.ready()
        for command, args in (("half", ["a"]), ("nothing", [])):
            with pytest.raises(ordercast.CommandFailed, match=r"cannot be sent to the other nodes"):
                await getattr(spoilt.at(1), command)(*args)
        assert await spoilt.at(2).add("a") == 1
        assert spoilt.at(2).numbers == {"a": 1}

    test()


def test_an_object_that_is_spoilt_without_a_command_has_no_primary_any_more() -> None:
    async def main() -> None:
        async with Cluster(3, protocol="total") as cluster:
            objects = [await node.replicate(Spoilt(), "it", run="primary") for node in cluster.nodes]
            await objects[0].wake()
            await asyncio.sleep(1)
            with pytest.raises(ordercast.OrdercastError):
                await objects[1].add("a")
            assert await (await cluster.nodes[0].replicate(Spoilt(), "another")).add("b") == 1

    ordercast.testing.run(main())


def test_a_snapshot_that_nobody_could_read_does_not_take_the_place_of_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else all nodes would have lost everything at their next start."""
    monkeypatch.setattr(disk, "LOG_BYTES", 2_000)

    async def main() -> None:
        cluster = Cluster(3, seed=3, protocol="total", voters=(1, 2, 3))
        for life in range(2):
            cluster.nodes = [cluster.node(id) for id in (1, 2, 3)]
            await asyncio.gather(*(node.start() for node in cluster.nodes))
            objects = await asyncio.gather(
                *(node.replicate(Spoilt(), "it", durable="objects", timeout=60) for node in cluster.nodes)
            )
            if not life:
                await objects[0].half("a")
            for number in range(100):
                assert await objects[0].add(f"{number}") == 100 * life + number + 1
            await asyncio.sleep(1)
            await cluster.stop()
            cluster.network.heal()

    ordercast.testing.run(main())
    assert "no snapshot can be written: the field Spoilt.numbers holds what is not of its type" in caplog.text

"""Who asks a journal for something, and what has to be true of the answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from ordercast.core.identity import NodeId
from ordercast.errors import CommandFailed, OrdercastError
from ordercast.groups.api import Node
from ordercast.objects_fuzz.journal import DeepJournal, Journal, Line, Noted, Read, Row
from ordercast.objects_fuzz.plan import DIRECTORY, Plan
from ordercast.replicated.replicated import watch
from ordercast.replicated.watching import Missed
from ordercast.testing.services import Client
from ordercast.testing.world import World

NAME = "journal"
KEYS = "abcdef"
AGAIN_S = 0.02
REFUSED_EVERY_S = 0.2
MOST_TRIES = 2_000
ANSWERED_BY_S = 60.0
AWAY = (OrdercastError, TimeoutError, OSError)
"""What is raised where a node has ended, or is cut off."""


class Watched(NamedTuple):
    """What one who watches was told, with `Missed`; whether until the end."""

    node: NodeId
    journal: Journal
    events: list[Any]


class JournalUse:
    """The journal of one run."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self._plan = plan
        self._count = 0
        self._over = False
        self._under_way = set[int]()
        """Calls of nodes that wait for answers."""
        self.history = world.history(None)
        self.watched: list[Watched] = []

        async def journal(node: Node) -> Journal:
            made = DeepJournal() if plan.deep else Journal()
            if plan.durable:
                return await node.replicate(made, NAME, durable=DIRECTORY, level=plan.level, run=plan.run)  # type: ignore[arg-type]
            return await node.replicate(made, NAME, run=plan.run)

        self.service = world.service(journal)

    def begin(self) -> None:
        """Programs at all nodes, and clients, ask for something."""
        self.world.run(self._ask_much)
        self.world.run(self._watch)
        for _ in range(2):
            self.world.client(self._repeat)
        if self._plan.releases:
            self.world.run(self._release)
        if self._plan.refuses:
            self.world.run(self._be_refused)

    # --- at the nodes ---------------------------------------------------------------------------

    async def _ask_much(self, node: Node) -> None:
        plan, self._count = self._plan, self._count + 1
        draw = random.Random(f"{plan.seed}/{node.id}/{self._count}")
        while not self._over and node.id in plan.talkers:
            journal = self.service.there.get(node.id)
            if journal is not None:
                what = draw.random()
                if what < 0.3:
                    await self._read(node.id, journal)
                elif what < 0.4 and plan.fills:
                    with suppress(*AWAY):
                        await journal.fill(draw.randrange(10))
                else:
                    count = draw.randint(1, plan.burst)
                    some = [self._note(node.id, journal, draw, at * plan.gap_s) for at in range(count)]
                    await asyncio.gather(*some, self._read(node.id, journal))
            await asyncio.sleep(draw.uniform(0.001, plan.pause_s))

    async def _note(self, who: NodeId, journal: Journal, draw: random.Random, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._count += 1
        asked = (f"{who}.{self._count}", draw.choice(KEYS), draw.randint(-5, 9))
        number = self.history.begin(who, "note", *asked)
        with self._waiting(number), suppress(*AWAY):
            self.history.end(number, await journal.note(*asked))

    async def _read(self, who: NodeId, journal: Journal) -> None:
        number = self.history.begin(who, "read")
        with self._waiting(number), suppress(*AWAY):
            self.history.end(number, await journal.read())

    @contextmanager
    def _waiting(self, number: int) -> Iterator[None]:
        """A call waits for its answer, or for the end of its node."""
        self._under_way.add(number)
        try:
            yield
        finally:
            self._under_way.discard(number)

    async def _watch(self, node: Node) -> None:
        while True:
            journal = self.service.there.get(node.id)
            if journal is not None:
                told = Watched(node.id, journal, [])
                self.watched.append(told)
                with watch(journal) as events:
                    async for event in events:
                        told.events.append(event)
            await asyncio.sleep(AGAIN_S)  # it was released

    async def _release(self, node: Node) -> None:
        """Replicate the journal no longer, and again after a while."""
        draw = random.Random(f"{self._plan.seed}/releases")
        while node.id == self._plan.releases:
            await asyncio.sleep(draw.uniform(0.1, 1))
            member = node._member
            if self._over or member is None:
                return
            if node.id in self.service.there:
                self.service.gone(node.id)
                await member.replicas.release(NAME)
                await asyncio.sleep(draw.uniform(0, 0.2))
                await self._open_again(node)

    async def _open_again(self, node: Node) -> None:
        while True:
            try:
                await self.service.run(node)
            except AWAY:
                await asyncio.sleep(AGAIN_S)
            else:
                return

    async def _be_refused(self, node: Node) -> None:
        """Call a command that raises what cannot travel: the group goes on all the same."""
        while not self._over:
            await asyncio.sleep(REFUSED_EVERY_S)
            journal = self.service.there.get(node.id)
            if journal is None:
                continue
            for why in (b"\xff", b""):
                with suppress(*AWAY):
                    try:
                        await journal.refuse(why)
                    except CommandFailed:
                        continue
                    raise AssertionError("what a command raises does not reach who called it")

    # --- outside of them ------------------------------------------------------------------------

    async def _repeat(self, client: Client) -> None:
        """Repeat each note at other nodes until it is answered, and sometimes once more, or twice at once."""
        draw = client.random
        while not self._over:
            self._count += 1
            asked = (f"{client.name}.{self._count}", draw.choice(KEYS), draw.randint(-5, 9))
            number = self.history.begin(client.name, "note", *asked)
            ask = partial(self._until_answered, draw, asked)
            answers = await asyncio.gather(*(ask() for _ in range(draw.choice((1, 1, 1, 2)))))
            self.history.end(number, answers[0])
            if draw.random() < 0.3:
                answers.append(await ask())
            assert all(each == answers[0] for each in answers), f"{asked} was answered in two ways: {answers}"
            await asyncio.sleep(draw.uniform(0.001, 0.1))

    async def _until_answered(self, draw: random.Random, asked: tuple[str, str, int]) -> Noted:
        for _ in range(MOST_TRIES):
            node = draw.choice(self.world.ids)
            journal, process = self.service.there.get(node), self.world.process(node)
            if journal is not None and process is not None:
                with suppress(*AWAY):
                    what: Callable[[], Awaitable[Noted]] = partial(journal.note_once, *asked)
                    async with asyncio.timeout(5):
                        return await process.ask(what)
            await asyncio.sleep(AGAIN_S)
        raise AssertionError(f"{asked} was not answered at all")

    # --- the end --------------------------------------------------------------------------------

    async def end(self) -> None:
        """Nothing is asked any more; judge what was answered."""
        world = self.world
        self._over = True
        await asyncio.gather(*world.clients.values())
        await world.calm()
        while self._under_way:
            await asyncio.sleep(AGAIN_S)
            assert world.now < ANSWERED_BY_S, f"{len(self._under_way)} calls are never answered"
        lines = await self._last_lines()
        check_answers(lines, [*self.history])
        for told in self.watched:
            check_events(told, lines, until_the_end=told.journal is self.service.there[told.node])

    async def _last_lines(self) -> list[Line]:
        """What was noted in the whole run."""
        while True:
            try:
                for journal in self.service.there.values():
                    await journal.sync()
            except AWAY:
                await asyncio.sleep(AGAIN_S)
                continue
            if len(self.service.there) == len(self.world.ids):
                return max((list(journal.lines) for journal in self.service.there.values()), key=len)
            await asyncio.sleep(AGAIN_S)


def check_answers(lines: list[Line], calls: list[Any]) -> None:
    """All that was answered is in the journal as it was answered, once, and in the order of time."""
    names = [line.what for line in lines]
    assert len(set(names)) == len(names), f"carried out twice: {[n for n in names if names.count(n) > 1][:3]}"
    values: dict[str, int] = {}
    after: list[dict[str, int]] = []
    asked = {call.args[0]: call.args for call in calls if call.name == "note"}
    for line in lines:
        assert line.what in asked, f"nobody asked for {line}"
        _, key, by = asked[line.what]
        assert key == line.key, line
        values[key] = values.pop(key, 0) + by
        assert values[key] == line.value, f"{line} should have {values[key]}"
        after.append(dict(values))
    positions = [line.position for line in lines]
    assert positions == sorted(set(positions)), "positions do not rise"
    ended: list[tuple[float, float, Any]] = []
    for call in calls:
        if call.ended is None:
            continue
        if call.name == "note":
            at: float = call.result.index
            here = lines[int(at)] if at < len(lines) else None
            assert here == call.result.line, f"{call} was answered, and there is {here}"
        else:
            found: Read = call.result
            at = found.length - 0.5
            assert found.length <= len(lines), f"{call}: the journal is shorter"
            if found.length:
                assert found.last == lines[found.length - 1], f"{call}: there is {lines[found.length - 1]}"
                assert list(found.values.items()) == list(after[found.length - 1].items()), f"{call}"
        ended.append((call.ended, at, call))
    _check_order(calls, sorted(ended, key=lambda each: each[0]))


def _check_order(calls: list[Any], ended: list[tuple[float, float, Any]]) -> None:
    """What began when something else had ended is not before it."""
    places = {id(call): at for _, at, call in ended}
    furthest, by, number = -1.0, None, 0
    for call in sorted(calls, key=lambda call: call.began):
        while number < len(ended) and ended[number][0] < call.began:
            if ended[number][1] > furthest:
                _, furthest, by = ended[number]
            number += 1
        at = places.get(id(call))
        assert at is None or at >= furthest, f"{call} does not know of {by}"


def check_events(told: Watched, lines: list[Line], *, until_the_end: bool) -> None:
    """Who watches is told all, once and in order, but where something was missed."""
    last: int | None = None
    missed = True
    row: Row | None = None
    for event in told.events:
        if isinstance(event, Missed):
            missed = True
            continue
        if isinstance(event, Row):
            row = event
            continue
        index, line = event
        if row is not None:
            assert row.words[-1] == line.what, f"node {told.node}: {row} was told before {event}"
        assert index < len(lines), f"node {told.node}: {event} was told, and the journal is shorter"
        assert line == lines[index], f"node {told.node}: {event} was told, and there is {lines[index]}"
        assert last is None or index > last, f"node {told.node}: {event} was told behind line {last}"
        assert missed or last is None or index == last + 1, f"node {told.node}: line {last + 1} was not told"
        last, missed = index, False
    if until_the_end and not missed:
        assert last == len(lines) - 1, f"node {told.node}: what is behind line {last} was not told"

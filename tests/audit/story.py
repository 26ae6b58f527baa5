"""Tells runs in a few lines, as rows of a trace: by hand, or at random but right."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from ordercast.audit.history import Message
from ordercast.trace.schema import SCHEMA, Row

COLUMN = {name: place for place, name in enumerate(SCHEMA.names[1:])}

Id = tuple[int, int]
_NO_MESSAGE = (None,) * 8


class Story:
    """A run that is being told. Each call is one event (or one a node) and appends its rows."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.life: dict[int, int] = {}
        self.here: dict[int, tuple[int, int, str] | None] = {}
        self.steps: dict[int, int] = {}
        self.numbers: dict[tuple[int, int], int] = {}
        self.last: dict[int, tuple[int, int, int]] = {}
        """By node in a configuration, which one it is, and the place of the last message delivered."""

    # --- configurations ------------------------------------------------------------------------

    def regular(self, seq: int, rep: int, members: Iterable[int], at: Iterable[int] | None = None) -> None:
        self._install(seq, rep, "regular", tuple(members), at)

    def transitional(
        self, seq: int, rep: int, members: Iterable[int], at: Iterable[int] | None = None
    ) -> None:
        self._install(seq, rep, "transitional", tuple(members), at)

    def alone(self, *nodes: int, seq: int = 4) -> None:
        """The beginning of a life: a configuration of the node itself."""
        for node in nodes:
            self.regular(seq, node, [node])

    def join(self, seq: int, rep: int, members: Iterable[int]) -> None:
        """From configurations of one node each into one of all."""
        members = tuple(members)
        for node in members:
            self.transitional(seq - 1, node, [node])
        self.regular(seq, rep, members)

    def _install(
        self, seq: int, rep: int, kind: str, members: tuple[int, ...], at: Iterable[int] | None
    ) -> None:
        for node in members if at is None else at:
            self.here[node] = (seq, rep, kind)
            self._row(node, "install", members, ended=self.last.get(node))
            place = self.last[node][2] if kind == "transitional" and node in self.last else 0
            self.last[node] = (seq, rep, place)

    # --- messages ------------------------------------------------------------------------------

    def submit(self, node: int) -> None:
        life = self.life.setdefault(node, 0)
        number = self.numbers.get((node, life), 0) + 1
        self._row(node, "submit", None, (node, life, number, None, None, None, None, "agreed"))

    def originate(self, node: int, seq: int, slot: int = 0, *, safe: bool = False) -> Message:
        life = self.life.setdefault(node, 0)
        number = self.numbers[node, life] = self.numbers.get((node, life), 0) + 1
        here = self.here[node]
        assert here is not None
        message = Message(node, life, number, here[0], here[1], seq, slot, "safe" if safe else "agreed")
        self._row(node, "originate", None, message)
        return message

    def give_births(self, **births: tuple[int, int]) -> None:
        """Give messages, by origin and number as in ``m1_2``, their timestamp and source ring."""
        for place, row in enumerate(self.rows):
            birth = births.get(f"m{row[9]}_{row[11]}") if row[4] in ("originate", "deliver") else None
            if birth is not None:
                self.edit(place, timestamp=birth[0], ring=birth[1])

    def deliver(self, nodes: int | Iterable[int], *messages: Message) -> None:
        for node in (nodes,) if isinstance(nodes, int) else nodes:
            for message in messages:
                self._row(node, "deliver", None, message)
                if node in self.last:
                    seq, rep, place = self.last[node]
                    self.last[node] = (seq, rep, max(place, message.seq or 0))

    # --- lives ---------------------------------------------------------------------------------

    def crash(self, *nodes: int) -> None:
        for node in nodes:
            self._row(node, "crash")
            self.last.pop(node, None)

    def halt(self, *nodes: int) -> None:
        for node in nodes:
            self._row(node, "halt")
            self.last.pop(node, None)

    def restart(self, *nodes: int) -> None:
        for node in nodes:
            self.life[node] = self.life.get(node, 0) + 1
            self.here[node] = None
            self.last.pop(node, None)
            self._row(node, "restart")

    def _row(
        self,
        node: int,
        event: str,
        members: tuple[int, ...] | None = None,
        message: tuple[Any, ...] = _NO_MESSAGE,
        ended: tuple[int, int, int] | None = None,
    ) -> None:
        step = self.steps.get(node, 0)
        self.steps[node] = step + 1
        config = self.here.get(node) or (None, None, None)
        size = None if message is _NO_MESSAGE else 100
        life = self.life.setdefault(node, 0)
        time_us = len(self.rows) * 10
        place = (node, life, step, time_us, event, *config, members)
        self.rows.append((*place, *message, None, size, None, *(ended or (None, None, None)), *(None,) * 3))

    # --- to spoil it ---------------------------------------------------------------------------

    def find(self, event: str, node: int, message: Message | None = None) -> int:
        """Where the first row of that kind is."""
        return next(
            place
            for place, row in enumerate(self.rows)
            if row[4] == event and row[0] == node and (message is None or row[9:12] == message[:3])
        )

    def install(self, node: int, seq: int) -> int:
        """Where a node's install of the configuration of that number is."""
        return next(
            place
            for place, row in enumerate(self.rows)
            if row[4] == "install" and row[0] == node and row[5] == seq
        )

    def edit(self, place: int, **columns: Any) -> None:
        row: list[Any] = list(self.rows[place])
        for name, value in columns.items():
            row[COLUMN[name]] = value
        self.rows[place] = tuple(row)

    def drop(self, event: str, node: int, message: Message) -> None:
        del self.rows[self.find(event, node, message)]

    def swap(self, node: int, one: Message, other: Message) -> None:
        """Let a node deliver two messages in each other's place."""
        a, b = self.find("deliver", node, one), self.find("deliver", node, other)
        first, second = self.rows[a], self.rows[b]
        self.rows[a] = (*first[:9], *second[9:])
        self.rows[b] = (*second[:9], *first[9:])


def three(*, safe: bool = False) -> tuple[Story, list[Message]]:
    """Three nodes in configuration 8.1, with six messages that nobody has delivered yet."""
    story = Story()
    story.alone(1, 2, 3)
    story.join(8, 1, [1, 2, 3])
    return story, [story.originate(1 + seq % 3, seq, safe=safe) for seq in range(6)]


def delivered() -> tuple[Story, list[Message]]:
    """The same, and everyone has delivered all."""
    story, messages = three()
    story.deliver([1, 2, 3], *messages)
    return story, messages


def parted(story: Story) -> None:
    """Nodes 1 and 2 go on together, node 3 alone."""
    story.transitional(11, 1, [1, 2])
    story.regular(12, 1, [1, 2])
    story.transitional(11, 3, [3])
    story.regular(12, 3, [3])


class _Ring:
    """A configuration and what its members have done in it, as a random run needs to know."""

    def __init__(self, seq: int, rep: int, members: list[int], installed: list[int]) -> None:
        self.id = (seq, rep)
        self.members = members
        self.complete = installed == members
        self.order: list[Message] = []
        self.seq = 0
        self.done = dict.fromkeys(installed, 0)
        self.had_by_all = 0
        """Messages before this place every member is known to have."""

    def whole(self, start: int, stop: int) -> int:
        """The last place up to `stop` at which no packet is left half delivered."""
        while start < stop < len(self.order) and self.order[stop - 1].seq == self.order[stop].seq:
            stop -= 1
        return stop

    def stop(self, start: int) -> int:
        """How far a member may deliver in the regular configuration."""
        for place in range(max(start, self.had_by_all), len(self.order)):
            if self.order[place].guarantee == "safe":
                return place
        return len(self.order)


def random_story(chance: Random, nodes: int = 4, changes: int = 6) -> Story:
    """A run that 000 §4.2 allows, made from the definition and not by a protocol."""
    story = Story()
    everyone = list(range(1, nodes + 1))
    seq = 4
    rings: dict[int, _Ring] = {}
    down: set[int] = set()
    for node in everyone:
        story.alone(node, seq=seq)
        rings[node] = _Ring(seq, node, [node], [node])
    for _ in range(changes):
        _traffic(story, chance, rings)
        for node in [n for n in rings if chance.random() < 0.15]:
            (story.halt if chance.random() < 0.3 else story.crash)(node)
            del rings[node]
            down.add(node)
        for node in [n for n in sorted(down) if chance.random() < 0.5]:
            seq += 4
            down.remove(node)
            story.restart(node)
            story.alone(node, seq=seq)
            rings[node] = _Ring(seq, node, [node], [node])
        seq += 4
        groups: dict[int, list[int]] = {}
        parts = chance.choice([1, 1, 2, 3])
        for node in sorted(rings):
            groups.setdefault(chance.randrange(parts), []).append(node)
        moved: dict[int, _Ring] = {}
        for group in groups.values():
            moved |= _change(story, chance, rings, group, seq)
        down |= rings.keys() - moved.keys()
        rings = moved
    _traffic(story, chance, rings)
    return story


def _traffic(story: Story, chance: Random, rings: dict[int, _Ring]) -> None:
    for _ in range(chance.randrange(40)):
        if not rings:
            return
        node = chance.choice(sorted(rings))
        ring = rings[node]
        if chance.random() < 0.4:
            ring.seq += chance.choice([1, 1, 2, 5])
            for slot in range(chance.choice([1, 1, 3])):
                ring.order.append(story.originate(node, ring.seq, slot, safe=chance.random() < 0.3))
        elif chance.random() < 0.3 and ring.complete:
            ring.had_by_all = chance.randint(ring.had_by_all, len(ring.order))
        else:
            start = ring.done[node]
            stop = ring.whole(start, chance.randint(start, ring.stop(start)))
            story.deliver(node, *ring.order[start:stop])
            ring.done[node] = stop


def _change(
    story: Story, chance: Random, rings: dict[int, _Ring], group: list[int], seq: int
) -> dict[int, _Ring]:
    """Take a group of nodes into one new configuration. Some may crash on the way."""
    by_old: dict[Id, list[int]] = {}
    for node in group:
        by_old.setdefault(rings[node].id, []).append(node)
    arrived = []
    for together in by_old.values():
        old = rings[together[0]]
        start = max(old.done[node] for node in together)
        gap = chance.randint(max(start, old.had_by_all), len(old.order))
        stop = old.whole(start, chance.randint(start, min(gap, old.stop(start))))
        rest = old.order[stop:gap] + [message for message in old.order[gap:] if message.origin in together]
        for node in together:
            story.deliver(node, *old.order[old.done[node] : stop])
            if chance.random() < 0.05:
                story.crash(node)
                continue
            story.transitional(seq - 1, min(together), together, at=[node])
            if chance.random() < 0.05:
                story.deliver(node, *rest[: chance.randint(0, len(rest))])
                story.crash(node)
                continue
            story.deliver(node, *rest)
            arrived.append(node)
    arrived.sort()
    ring = _Ring(seq, min(group), group, arrived)
    story.regular(seq, min(group), group, at=arrived)
    return dict.fromkeys(arrived, ring)

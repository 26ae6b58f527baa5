"""A small run, written by hand: five nodes, a crash and a restart, a partition and a remerge."""

from __future__ import annotations

from collections import defaultdict
from itertools import count

from ordercast.core.identity import NodeId
from ordercast.trace.schema import Row


class Pen:
    """Writes trace rows as a driver would: a node's steps count up, its configuration is remembered."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._steps: dict[NodeId, count[int]] = defaultdict(count)
        self._lives: dict[NodeId, int] = defaultdict(int)
        self._in: dict[NodeId, tuple[int, int, str]] = {}

    def _write(
        self,
        node: NodeId,
        time_us: int,
        event: str,
        *,
        members: tuple[int, ...] | None = None,
        message: tuple[int, int, int] | tuple[None, None, None] = (None, None, None),
        guarantee: str | None = None,
        size: int | None = None,
        ended: tuple[int, int, int] | tuple[None, None, None] = (None, None, None),
    ) -> None:
        seq, rep, kind = self._in.get(node, (None, None, None))
        step = next(self._steps[node])
        head = (node, self._lives[node], step, time_us, event, seq, rep, kind, members)
        self.rows.append(
            (*head, *message, seq, rep, None, None, guarantee, None, size, None, *ended, *(None,) * 3)
        )

    def install(
        self,
        at: int,
        nodes: list[int],
        members: list[int],
        seq: int,
        kind: str = "regular",
        place: int | None = None,
    ) -> None:
        """With a `place`, each node names the configuration that it was in, and that place."""
        for late, node in enumerate(nodes):
            before = self._in.get(node)
            self._in[node] = (seq, min(members), kind)
            told = (None, None, None) if place is None or before is None else (*before[:2], place)
            self._write(node, at + 300 * late, "install", members=tuple(members), ended=told)

    def change(self, at: int, nodes: list[int], stay: list[int], members: list[int], seq: int) -> None:
        """Through the transitional configuration into the next regular one, node after node."""
        for late, node in enumerate(nodes):
            self.install(at + 300 * late, [node], stay, seq - 1, "transitional")
            self.install(at + 300 * late, [node], members, seq)

    def submit(self, at: int, origin: int, number: int, guarantee: str = "agreed", size: int = 100) -> None:
        message = (origin, self._lives[origin], number)
        self._write(origin, at, "submit", message=message, guarantee=guarantee, size=size)

    def originate(
        self, at: int, origin: int, number: int, guarantee: str = "agreed", size: int = 100
    ) -> None:
        message = (origin, self._lives[origin], number)
        self._write(origin, at, "originate", message=message, guarantee=guarantee, size=size)

    def deliver(
        self, at: int, node: int, message: tuple[int, int, int], guarantee: str = "agreed", size: int = 100
    ) -> None:
        self._write(node, at, "deliver", message=message, guarantee=guarantee, size=size)

    def stream(self, start: int, end: int, nodes: list[int], messages: int, first: int = 0) -> None:
        """Messages of the first node, delivered by all; every fourth is safe."""
        origin = (nodes[0], self._lives[nodes[0]])
        for i in range(messages):
            at = start + (end - start) * i // messages
            for node in nodes:
                self.deliver(at, node, (*origin, first + i), "safe" if i % 4 == 0 else "agreed")

    def crash(self, at: int, node: int, event: str = "crash") -> None:
        self._write(node, at, event)
        self._in.pop(node, None)

    def restart(self, at: int, node: int) -> None:
        self._lives[node] += 1
        self._write(node, at, "restart")


NOTES = [
    (400_000, "crash 5"),
    (900_000, "partition 1 2 | 3 4"),
    (1_500_000, "restart 5"),
    (2_000_000, "heal"),
]


def told_run() -> list[Row]:
    """Two seconds and a half in which everything happens that a drawing has to show."""
    pen = Pen()
    for node in (1, 2, 3, 4, 5):
        pen.install(0, [node], [node], 4)
    pen.change(45_000, [1], [1], [1, 2, 3, 4, 5], 8)
    for node in (2, 3, 4, 5):
        pen._in[node] = (7, node, "transitional")
        pen._write(node, 45_000 + 300 * node, "install", members=(node,))
        pen._in[node] = (8, 1, "regular")
        pen._write(node, 45_000 + 300 * node, "install", members=(1, 2, 3, 4, 5))
    pen.stream(60_000, 399_000, [1, 2, 3, 4, 5], 120)
    pen.crash(400_000, 5)
    for node in (1, 2, 3, 4):
        pen.install(540_000 + 300 * node, [node], [1, 2, 3, 4], 11, "transitional")
        pen.deliver(540_000 + 300 * node, node, (1, 0, 200), "safe")
        pen.install(540_000 + 300 * node, [node], [1, 2, 3, 4], 12)
    pen.stream(550_000, 899_000, [1, 2, 3, 4], 90, 300)
    pen.change(1_040_000, [1, 2], [1, 2], [1, 2], 16)
    pen.change(1_043_000, [3, 4], [3, 4], [3, 4], 16)
    pen.stream(1_050_000, 1_990_000, [1, 2], 300, 500)
    pen.stream(1_050_000, 1_990_000, [3, 4], 40, 0)
    pen.restart(1_500_000, 5)
    pen.install(1_500_100, [5], [5], 8)
    pen.crash(1_700_000, 2, "halt")
    pen.change(1_840_000, [1], [1], [1], 20)
    pen.change(2_045_000, [1], [1], [1, 3, 4, 5], 24)
    pen.change(2_045_300, [3, 4], [3, 4], [1, 3, 4, 5], 24)
    pen.change(2_046_000, [5], [5], [1, 3, 4, 5], 24)
    pen.stream(2_060_000, 2_500_000, [1, 3, 4, 5], 200, 900)
    return pen.rows

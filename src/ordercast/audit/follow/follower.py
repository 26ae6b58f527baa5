"""Follows a trace that nodes are writing: reads what has come, and says what is broken in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ordercast.audit.explain import Report, Violation, merge
from ordercast.audit.follow.window import Window
from ordercast.audit.properties import Promises, unjudged
from ordercast.core.identity import NodeId
from ordercast.storage import Where
from ordercast.trace.growing import GrowingTrace, Position, Stream

SLICE = 20_000
"""Rows that are read of a stream at a time."""

MOST_AHEAD = 60_000
"""Rows of a node that are held while other nodes' rows wait to be read."""

MOST_HELD = 400_000
"""Rows of a run that are held: beyond, nobody is waited for any more."""


class Follower:
    """Reads a growing trace, and judges its runs."""

    def __init__(
        self,
        where: Where,
        patience: float,
        checks: Promises | None = None,
        *,
        positions: Mapping[str, Position] | None = None,
        windows: Iterable[Window] = (),
    ) -> None:
        """Begin at the beginning; or behind `positions`, with what was held then."""
        self.trace = GrowingTrace(where, positions)
        self.windows = {window.run: window for window in windows}
        self._patience = patience
        self._checks = checks
        self._nodes: dict[str, set[tuple[str, NodeId]]] = {}
        """Whose rows each stream had, when it was read last."""

    @property
    def events(self) -> int:
        """Rows that were read."""
        return sum(window.events for window in self.windows.values())

    @property
    def held(self) -> int:
        """Rows that something may come of yet."""
        return sum(window.held for window in self.windows.values())

    @property
    def last_us(self) -> int:
        """The latest time that a row has told, by the clock of its node."""
        return max((window.last_us for window in self.windows.values()), default=0)

    def read(self) -> int:
        """Read what has come, a slice of each node's rows; answers how many. Raises `TraceError`."""
        self.trace.look()
        before = self.events
        ahead = [stream for stream in self.trace.streams.values() if self._is_ahead(stream)]
        for stream in self.trace.streams.values():
            if stream not in ahead:
                self._take(stream)
        if self.events == before:
            for stream in ahead:
                self._take(stream)
        return self.events - before

    def judge(self, now: float, *, ended: bool = False) -> list[Violation]:
        """What is broken and was not told before; `now` in seconds. With `ended`, nothing more comes."""
        found: list[Violation] = []
        for window in self.windows.values():
            if window.held > MOST_HELD:
                window.give_way()
            if ended or window.undecided:
                found += window.judge(now, ended=ended)
        return found

    def report(self) -> Report:
        """All that was found so far."""
        return merge(map(_report, self.windows.values()))

    def close(self) -> None:
        """Read no more."""
        self.trace.close()

    def _is_ahead(self, stream: Stream) -> bool:
        held = (len(self.windows[run].rows.get(node, ())) for run, node in self._nodes.get(stream.name, ()))
        return sum(held) > MOST_AHEAD

    def _take(self, stream: Stream) -> None:
        for run, about, rows in self.trace.take(stream, SLICE):
            window = self.windows.get(run)
            if window is None:
                window = self.windows[run] = Window(run, about, self._patience, self._checks)
            window.add(rows)
            self._nodes[stream.name] = {(run, row[0]) for row in rows}


def _report(window: Window) -> Report:
    promises = window.promises
    counts = {code: window.counts[code] for code in promises}
    notes = [
        f"rows of node {node} came so late that they are judged from its next configuration on only"
        for node in sorted(window.left_behind)
    ]
    return Report(
        window.events,
        counts,
        tuple(window.told.values()),
        unjudged(promises),
        (promises.name,),
        1,
        tuple(notes),
    )

"""Replicas of one ordered log, any of which can serve: when one cannot, another one goes on.

What is read is named by positions in the total order, which mean the same everywhere. So a range that one
replica began is finished by another, from the last row that was had: nothing is lost or comes twice.

Replicas that were parted for a while hold the same before and after, and others in between. So a range of a
stream ends with its configuration at the latest: who holds both its ends holds the same between them. And
before a stream goes on to another configuration, the other replicas are asked whether they have more of this
one: what was delivered in it is not passed by because the replica that is read was cut off before. A range of
a table may be of several configurations, and says which: it is read where they followed each other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import pyarrow as pa

from ordercast.errors import LogError, NotYet, Trimmed, Unreachable
from ordercast.log import Position, Replica, Selection
from ordercast.log.selection import ALL
from ordercast.streaming.options import Access
from ordercast.streaming.ranges import (
    UNLIMITED,
    Limit,
    Place,
    batches,
    beginning,
    changes,
    check_path,
    end_within,
    last_of,
    leaves,
)
from ordercast.streaming.ranges import end_of as range_end

LOG = logging.getLogger("ordercast")

REPLICA_TIMEOUT_S = 20.0
"""How long replicas may take to come back, to catch up, or to agree on who is still there."""
UNKNOWN_S = 3.0
"""The same, where none of them has ever answered: the names may be wrong."""
AGAIN_S = 0.05
"""How soon they are asked again."""
ELSEWHERE_S = 1.0
"""A replica that has had nothing new for so long may be cut off: another one is asked as well."""
PARTED_S = 5.0
"""How long a replica that may have more of a configuration is waited for, where another one has left it."""
QUICK_S = 1.0
"""A connection that fails within so long was closed, and may be made anew; else nobody answers."""
_MOST_TURNS = 100
"""How often a read goes on with another replica where one was away."""


T = TypeVar("T")


class NoReplica(LogError):
    """None of the replicas can serve: the message has a sentence of each."""

    def __init__(self, what: str, reasons: dict[str, LogError]) -> None:
        several = "\n".join(f"- {where}: {reason}" for where, reason in reasons.items())
        super().__init__(f"no replica can {what}:\n{several}")
        self.what = what
        self.reasons = reasons

    def __reduce__(self) -> tuple[type[NoReplica], tuple[str, dict[str, LogError]]]:
        return type(self), (self.what, self.reasons)

    @property
    def passing(self) -> bool:
        """Whether waiting may help."""
        return any(isinstance(reason, NotYet | Unreachable) for reason in self.reasons.values())

    @property
    def trimmed(self) -> list[str]:
        """The replicas that had it once."""
        return [where for where, reason in self.reasons.items() if isinstance(reason, Trimmed)]


class Replicas:
    """Several replicas, and connections to them. The one that served last is asked first."""

    def __init__(self, access: Access, first: int = 0) -> None:
        nodes = access.nodes
        self._order = [*nodes[first % len(nodes) :], *nodes[: first % len(nodes)]]
        self._key = access.key
        self._open: dict[str, Replica] = {}
        self._answered = False
        self._served = time.monotonic()
        self._news = time.monotonic()
        self._parting: tuple[Place, float] = (Place(), 0.0)
        """Where some replicas have left a configuration and others have not, and since when that is known."""

    def close(self) -> None:
        """Give all connections back."""
        for where in list(self._open):
            self._close(where)

    def _close(self, where: str) -> None:
        replica = self._open.pop(where, None)
        if replica is not None:
            replica.close()

    @property
    def first(self) -> str:
        """The one that is asked first."""
        return self._order[0]

    # --- asking ---------------------------------------------------------------------------------

    def _ask(self, what: str, question: Callable[[Replica], T]) -> T:
        """The answer of the first replica that has one; it is the first one from now on."""
        reasons: dict[str, LogError] = {}
        for where in list(self._order):
            try:
                answer = self._ask_one(where, question)
            except LogError as error:
                reasons[where] = error
                continue
            self._prefer(where)
            self._served = time.monotonic()
            return answer
        raise NoReplica(what, reasons)

    def _ask_one(self, where: str, question: Callable[[Replica], T]) -> T:
        known = self._open.pop(where, None)
        asked = time.monotonic()
        try:
            return self._ask_open(where, known or Replica(where, self._key), question)
        except Unreachable:
            if known is None or time.monotonic() - asked > QUICK_S:
                raise
        return self._ask_open(where, Replica(where, self._key), question)  # it may be there again

    def _ask_open(self, where: str, replica: Replica, question: Callable[[Replica], T]) -> T:
        try:
            answer = question(replica)
        except Unreachable:
            replica.close()
            raise
        except LogError:
            self._open[where] = replica
            raise
        self._open[where] = replica
        self._answered = True
        return answer

    def _prefer(self, where: str) -> None:
        self._order.remove(where)
        self._order.insert(0, where)

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Try again while that may help, for a while."""
        begun = time.monotonic()
        while True:
            try:
                return attempt()
            except NoReplica as error:
                timeout_s = REPLICA_TIMEOUT_S if self._answered else UNKNOWN_S
                if not error.passing or time.monotonic() - begun > timeout_s:
                    raise
            time.sleep(AGAIN_S)

    # --- where there is something ---------------------------------------------------------------

    def oldest(self) -> Place:
        """The first message that any of them keeps, or rather the change of the members before it.

        What is before that are the configurations that a node was in until it had found the others.
        """
        return Place(self._patiently(lambda: min(self._of_each(beginning).values(), default=None)))

    def _oldest_of_each(self) -> dict[str, Position]:
        return self._of_each(lambda replica: replica.bounds().oldest)

    def _of_each(self, question: Callable[[Replica], Position | None]) -> dict[str, Position]:
        """The answers of all that have one."""
        found: dict[str, Position] = {}
        reasons: dict[str, LogError] = {}
        for where in self._order:
            try:
                answer = self._ask_one(where, question)
            except LogError as error:
                reasons[where] = error
            else:
                if answer is not None:
                    found[where] = answer
        for where in self._order[1:]:
            self._close(where)  # seldom asked
        if len(reasons) == len(self._order):
            raise NoReplica("say what it has", reasons)
        return found

    def newest(self) -> Place:
        """Behind the last entry of the one that is furthest."""
        head = self._patiently(
            lambda: max(self._of_each(lambda replica: replica.bounds().head).values(), default=None)
        )
        return Place() if head is None else Place.after(head)

    def head(self) -> Position | None:
        """The last entry of the first that answers."""
        return self._ask("be asked", lambda replica: replica.bounds().head)

    def furthest(self, start: Place) -> Position | None:
        """The last entry that can be reached from `start`, of whichever replica; None if there is nothing."""
        end: Position | None = None
        for _ in range(_MOST_TURNS):
            at = start if end is None else Place.after(end)
            ends = self._patiently(lambda: self._of_each(lambda replica: range_end(replica, at, UNLIMITED)))  # noqa: B023
            if not ends:
                return end
            more = self._of_each(lambda replica: end_within(replica, at, UNLIMITED))  # noqa: B023
            same = [each for each in more.values() if not leaves(at, each)]
            end = max(same or ends.values())
        return end

    def end_of(self, start: Place, limit: Limit = UNLIMITED) -> Position | None:
        """Where about so much of one configuration from `start` on end; None while there is nothing new.

        Does not wait: with nobody to ask there is nothing new, for a while.
        """
        now = time.monotonic()
        if now - self._news > ELSEWHERE_S:
            self._news = now
            self._close(self._order[0])
            self._order.append(self._order.pop(0))
        try:
            end = self._ask(f"go on {start}", lambda replica: end_within(replica, start, limit))
        except NoReplica as error:
            if not error.passing or now - self._served > REPLICA_TIMEOUT_S:
                raise
            time.sleep(AGAIN_S)
            return None
        if end is not None:
            self._news = time.monotonic()
            if leaves(start, end):
                return self._left_by_all(start, end, limit)
        return end

    def _left_by_all(self, start: Place, end: Position, limit: Limit) -> Position | None:
        """Where the range ends at a replica that has more of the configuration that ends behind `start` here.

        `end` if none has, and None while that cannot be told.
        """
        undecided = False
        for where in self._order[1:]:
            try:
                further = self._ask_one(where, lambda replica: end_within(replica, start, limit))
            except NotYet:
                undecided = undecided or self._is_there(where, start)
            except LogError:
                continue
            else:
                if further is None:
                    undecided = True
                elif not leaves(start, further):
                    self._prefer(where)
                    end, undecided = further, False
                    break
        for where in self._order[1:]:
            self._close(where)  # seldom asked
        now = time.monotonic()
        if self._parting[0] != start:
            self._parting = (start, now)
        return None if undecided and now - self._parting[1] < PARTED_S else end

    def _is_there(self, where: str, start: Place) -> bool:
        """Whether a replica is still in the configuration of `start`."""
        try:
            head = self._ask_one(where, lambda replica: replica.bounds().head)
        except LogError:
            return False
        return head is not None and not leaves(start, head)

    def split(self, start: Place, end: Position, limit: Limit) -> list[Position]:
        """Where parts of about so much end; where that cannot be known, the rest is one part."""
        ends: list[Position] = []
        at = start
        while True:
            try:
                upto = self._ask(f"go on {at}", lambda replica: range_end(replica, at, limit))  # noqa: B023
            except NoReplica:
                upto = None
            if upto is None or upto >= end:
                return [*ends, end]
            ends.append(upto)
            at = Place.after(upto)

    def sent_at(self, time_us: int) -> Position | None:
        """The first message, of all that are kept, that was sent then or later."""
        question = partial(self._of_each, lambda replica: replica.sent_at(time_us))
        return min(self._patiently(question).values(), default=None)

    def before(self, position: Position) -> Position | None:
        """The entry before one; None if that is the oldest."""
        return self._ask(f"tell what is before {position}", lambda replica: replica.before(position, 1))

    def groups(self) -> set[str]:
        """The groups that any of them has messages of."""
        found: set[str] = set()

        def ask(replica: Replica) -> None:
            found.update(replica.groups())

        self._patiently(partial(self._of_each, ask))
        return found

    def count(self, start: Place, end: Position, selected: Selection) -> tuple[int, int]:
        """How many entries are selected from `start` to `end`, and their bytes."""

        def ask(replica: Replica) -> tuple[int, int]:
            after = start.position
            if start.included and after is not None:
                after = replica.before(after, 1)
            return replica.count(after, end, selected)

        return self._ask(f"count what is {start}, up to {end}", ask)

    def path(self, start: Place, end: Position) -> tuple[Position, ...]:
        """The changes of the configuration between `start` and `end`, at a replica that has both."""
        if start.position is not None and not leaves(start, end):
            return ()
        return self._patiently(
            lambda: self._ask(
                f"go from {start} to {end}",
                lambda replica: tuple(change for change, _ in changes(replica, start, end)),
            )
        )

    def oldest_left(self, error: NoReplica) -> Place | None:
        """Where to go on at a replica that had what was asked for, and let go of it; None if none had."""
        kept = [position for where, position in self._oldest_of_each().items() if where in error.trimmed]
        return Place(min(kept)) if kept else None

    # --- reading --------------------------------------------------------------------------------

    def read(
        self,
        start: Place,
        end: Position,
        selected: Selection = ALL,
        fail_on_loss: bool = True,
        path: tuple[Position, ...] = (),
    ) -> Iterator[pa.RecordBatch]:
        """The rows from `start` to `end`, from any replica that has them, and went that `path` between them.

        Without a path that is not asked; a range of one configuration needs none.
        """
        at = start
        until = time.monotonic() + REPLICA_TIMEOUT_S
        while at.included or at.position != end:
            try:
                for batch in self._read_on(at, end, selected, path):
                    yield batch
                    at = Place.after(last_of(batch))
                    until = time.monotonic() + REPLICA_TIMEOUT_S
                return
            except NoReplica as error:
                left = None if fail_on_loss else self.oldest_left(error)
                if left is not None:
                    LOG.warning("rows from %s on are lost: going on %s (failOnDataLoss is false)", at, left)
                    at = left
                elif not error.passing or time.monotonic() > until:
                    raise
                else:
                    time.sleep(AGAIN_S)

    def _read_on(
        self, at: Place, end: Position, selected: Selection, path: tuple[Position, ...]
    ) -> Iterator[pa.RecordBatch]:
        """From one replica to the next, each once."""
        reasons: dict[str, LogError] = {}
        for where in list(self._order):
            if at == Place.after(end):
                return
            replica = None
            try:
                replica = self._open.pop(where, None) or Replica(where, self._key)
                if path:
                    check_path(replica, at, end, path)
                for batch in batches(replica, at, end, selected):
                    yield batch
                    at = Place.after(last_of(batch))
                self._open[where] = replica
                self._prefer(where)
                return
            except LogError as error:
                reasons[where] = error
                if replica is not None:
                    replica.close()
        raise NoReplica(f"read from {at} up to {end}", reasons)

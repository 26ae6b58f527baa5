"""Rows of producers that try again, each delivered once: what a group remembers of who has sent how much.

A *producer* is a task of a query that writes rows into a group, and that may fail, be tried again elsewhere,
or be run twice. Its rows are numbered within a *batch*. An attempt first multicasts a *fence*: from its
delivery on, rows of earlier attempts are dropped, and whoever sent it knows how many rows have been
delivered, so that only those behind them are sent. What is kept of a producer is little, and changes by what
is delivered alone, so it is the same at every member that delivers the same; members drop the same rows.

Members that come together may know different things, and who is new knows nothing. So in each configuration
nothing of a producer is taken before all its members have said, in the order itself, what they know; of each
producer the furthest is kept. That is done when somebody asks for it: a group without producers pays nothing.
What is remembered, and for how long, is in `producer_table.py`.

Everything here travels as safe messages. A packet has one guarantee, so that a look at that tells that none
of this is in it; and what a member delivers of a producer in a regular configuration cannot be lost with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat

from ordercast.core.addresses import HEADED, MESSAGE, NO_STAMP, STAMP_SIZE, WITHHELD, address
from ordercast.core.checksum import checksum
from ordercast.core.identity import Batch, Configuration, Guarantee, Kind, NodeId
from ordercast.core.wire import UNREADABLE
from ordercast.groups.notes import (
    AT_A_TIME,
    HEADED_ROW,
    NOTE,
    OWNER_SIZE,
    ROW,
    Ask,
    Clock,
    Commit,
    Fence,
    Job,
    Known,
    Progress,
    Slow,
    decode,
    written,
)
from ordercast.groups.producer_table import Answer, Outcome, ProducerTable
from ordercast.process_groups.notes import check_name

GUARANTEE = Guarantee.SAFE
_STAMP_AT = 1 + OWNER_SIZE + 8
FRONT_SIZE = _STAMP_AT + STAMP_SIZE
"""Bytes in front of a row: what it is, whose it is, its number, and when it was sent."""
_ORDINARY = (bytes((MESSAGE,)), bytes((HEADED,)), bytes((WITHHELD,)))


def row_fronts(
    owner: bytes, first: int, count: int, stamped: bytes = NO_STAMP, *, headed: bool = False
) -> Iterable[bytes]:
    """What stands in front of each of these rows, which are sent at one time; `headed`: they have heads."""
    start = bytes((HEADED_ROW if headed else ROW,)) + owner
    return (start + number.to_bytes(8, "big") + stamped for number in range(first, first + count))


def concern(payloads: Sequence[bytes]) -> bool:
    """Whether some of these messages are not ordinary ones."""
    return not all(map(bytes.startswith, payloads, repeat(_ORDINARY)))


@lru_cache(maxsize=1024)
def _front(group: str, headed: bool) -> bytes:
    """What stands before the stamp of a row of this group."""
    return address(0, (group,), headed=headed, stamped=b"")


class Producers:
    """What a member knows of producers; told of every configuration and of all that is safe, in order."""

    def __init__(
        self,
        now_us: Callable[[], int] = lambda: 0,
        changed: Callable[[], None] = lambda: None,
        slow: Callable[[NodeId, Sequence[str]], None] = lambda member, groups: None,
    ) -> None:
        """`now_us`: the time at this member, which it tells the others when they ask.

        `changed` is called when somebody who waits may have waited long enough, `slow` when a member says
        which groups it slows down.
        """
        self.table = ProducerTable()
        self.clock_us = 0
        """The time that more than half of the members have reached: one wrong clock of three does nothing."""
        self.settled = False
        """All members of the configuration have said what they know."""
        self.malformed = 0
        """Notes that could not be read."""
        self.epoch = 0
        """How many regular configurations there were: owners are of one alone."""
        self.to_send: list[bytes] = []
        """Notes that this member is to send now."""
        self.answers: dict[bytes, Answer | None] = {}
        """By owner, what became of the fences and commits that somebody here waits for."""
        self._configuration: Configuration | None = None
        self._said = False
        self._heard: dict[NodeId, list[Known]] = {}
        self._owners: dict[bytes, tuple[bytes, str]] = {}
        """By owner: the producer, and the group it writes to."""
        self._owner_of: dict[bytes, bytes] = {}
        self._now_us = now_us
        self._changed = changed
        self._slow = slow
        self._times: dict[NodeId, int] = {}

    # --- configurations -------------------------------------------------------------------------

    def install(self, configuration: Configuration) -> None:
        """A configuration, in its place. A transitional one only goes on with what the last one began."""
        if configuration.kind is not Kind.REGULAR:
            return
        self._configuration = configuration
        self.epoch += 1
        self.settled = self._said = False
        self._heard.clear()
        self._times.clear()
        self._owners.clear()
        self._owner_of.clear()
        self._changed()

    def owns(self, owner: bytes) -> Progress | None:
        """The progress of the producer whose rows come from this owner; None if they are taken no more."""
        held = self._owners.get(owner)
        return None if held is None else self.table.progress.get(held[0])

    # --- messages -------------------------------------------------------------------------------

    def admit(self, batch: Batch) -> list[Batch]:
        """The messages of the batch that are to be delivered: rows of producers as ordinary messages."""
        runs: list[Batch] = []
        kept: list[bytes] = []
        for place, payload in enumerate(batch.payloads):
            ordinary = self._ordinary(batch.origin, payload)
            if ordinary is not None:
                kept.append(ordinary)
            elif kept:
                runs.append(batch.part(place - len(kept), kept))
                kept = []
        if kept:
            runs.append(batch.part(len(batch.payloads) - len(kept), kept))
        self._changed()
        return runs

    def _ordinary(self, origin: NodeId, payload: bytes) -> bytes | None:
        kind = payload[0] if payload else 0
        if kind in (ROW, HEADED_ROW):
            return self._on_row(payload)
        if kind == NOTE:
            self._on_note(origin, payload)
            return None
        return payload

    def _on_row(self, payload: bytes) -> bytes | None:
        held = self._owners.get(payload[1 : 1 + OWNER_SIZE])
        if held is None or len(payload) < FRONT_SIZE:
            return None  # of an earlier attempt, or of an earlier configuration
        producer, group = held
        progress = self.table.progress.get(producer)
        if progress is None:
            return None  # released: the batch is done
        if int.from_bytes(payload[1 + OWNER_SIZE : _STAMP_AT], "big") != progress.count:
            return None
        row = payload[FRONT_SIZE:]
        progress.count += 1
        progress.checksum = checksum((row,), progress.checksum)
        self.table.changed(producer)
        return _front(group, payload[0] == HEADED_ROW) + payload[_STAMP_AT:]

    def _on_note(self, origin: NodeId, payload: bytes) -> None:
        try:
            note = decode(payload)
        except UNREADABLE:
            self.malformed += 1
            return  # of a later version, perhaps; everybody here leaves it
        match note:
            case Ask():
                self._say()
            case Known():
                self._hear(origin, note)
            case Clock():
                self._hear_time(origin, note.time_us)
            case Fence() | Commit():
                self._hear_time(origin, note.time_us)
                answer = self._on_fence(note) if isinstance(note, Fence) else self._on_commit(note)
                if note.owner in self.answers:
                    self.answers[note.owner] = answer
            case Slow():
                self._slow(origin, note.groups)

    # --- agreeing -------------------------------------------------------------------------------

    def _say(self) -> None:
        """Tell the others, once a configuration, what is known here: nothing changes it until all have.

        Once that is settled, the time is all that is told.
        """
        if self._configuration is None:
            return
        if self._said:
            if self.settled:
                self.to_send.append(written(Clock(self._now_us())))
            return
        self._said = True
        every = [*sorted(self.table.jobs.items()), *sorted(self.table.progress.items())]
        parts = max(1, -(-len(every) // AT_A_TIME))
        for part in range(parts):
            some = every[part * AT_A_TIME : (part + 1) * AT_A_TIME]
            jobs = {name: it for name, it in some if isinstance(it, Job)}
            progress = {name: it for name, it in some if isinstance(it, Progress)}
            known = Known(self._configuration.id, part, parts, self._now_us(), jobs, progress)
            self.to_send.append(written(known))

    def _hear(self, origin: NodeId, known: Known) -> None:
        configuration = self._configuration
        if self.settled or configuration is None or known.configuration != configuration.id:
            return
        heard = self._heard.setdefault(origin, [])
        if known.part >= known.parts or any(known.part == before.part for before in heard):
            return
        heard.append(known)
        self._hear_time(origin, known.time_us)
        if all(
            (parts := self._heard.get(member)) and len(parts) == parts[0].parts
            for member in configuration.members
        ):
            self._settle()

    def _settle(self) -> None:
        """All have said what they know: of each producer, the furthest counts from now on."""
        said = [known for member in sorted(self._heard) for known in self._heard[member]]
        self.table.merge((known.jobs for known in said), (known.progress for known in said))
        self._heard.clear()
        self.settled = True
        self.clock_us = self._agreed_us()
        self.table.expire(self.clock_us)

    def _hear_time(self, origin: NodeId, time_us: int) -> None:
        self._times[origin] = max(self._times.get(origin, 0), time_us)
        if self.settled:
            self.clock_us = max(self.clock_us, self._agreed_us())

    def _agreed_us(self) -> int:
        """The latest time that more than half of the members have reached."""
        assert self._configuration is not None
        times = sorted(self._times.get(member, 0) for member in self._configuration.members)
        return times[(len(times) - 1) // 2]

    # --- fences ---------------------------------------------------------------------------------

    def _on_fence(self, fence: Fence) -> Answer:
        if not self.settled:
            return Answer(Outcome.UNSETTLED)
        try:
            check_name(fence.group)
            _front(fence.group, headed=False)
        except ValueError:
            return Answer(Outcome.UNSETTLED)  # whoever sent this has not looked at the name
        answer = self.table.fence(fence, self.clock_us)
        if answer.outcome is Outcome.TAKEN:
            self._owners.pop(self._owner_of.get(fence.producer, b""), None)
            self._owners[fence.owner] = fence.producer, fence.group
            self._owner_of[fence.producer] = fence.owner
            self._drop_owners()
        return answer

    def _on_commit(self, commit: Commit) -> Answer:
        if not self.settled:
            return Answer(Outcome.UNSETTLED)
        answer = self.table.commit(commit, self.clock_us)
        self._drop_owners()
        return answer

    def _drop_owners(self) -> None:
        """Forget who writes for producers that were released or forgotten."""
        if len(self._owner_of) > len(self.table.progress):
            for producer in [known for known in self._owner_of if known not in self.table.progress]:
                self._owners.pop(self._owner_of.pop(producer), None)

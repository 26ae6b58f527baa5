"""The replica of an object whose commands the primary alone carries out (004 §4.3).

Requests travel in the order, to all replicas, and are no part of the history: they wait at each. The primary
tries those that wait (`at_primary.tried`) and sends one *update*, an entry of the history: all take it over
where it is delivered, and the caller gets the answer. Until then the primary tries nothing else: "Once
acknowledgement have been received, the primary returns the reply to the client, and then it is ready to
handle the next request" (§4.3.1). All requests that wait by then make one update.

An update says behind which place of the history it was made. If the history went on otherwise, by another
round or another update, it is void at all replicas alike; void ones do not count as having gone on. So two
that believe to be primary do no harm: the one whose update comes first is right, and the other one tries
again. That makes it easy to do without a primary that is slow: a replica at which a request waits for too
long makes the update itself, and who made the last one is the primary (§4.3.5, the rotating coordinator).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ordercast.errors import ConfigProblem, NotReplicated
from ordercast.process_groups.views import Process
from ordercast.replicated.at_primary import tried
from ordercast.replicated.effects import Effect, Failed, LookAgain, Send
from ordercast.replicated.levels import Level
from ordercast.replicated.machine import Machine
from ordercast.replicated.notes import Calls, Entry, Mark, Update
from ordercast.replicated.quorum import Quorum
from ordercast.replicated.replicated import Subject
from ordercast.replicated.state import Outdated

PATIENCE_US = 300_000
"""A replica waits for so long for the update of a request, and one behind it in the group so much longer."""
MOST_BYTES = 256 * 1024
"""Bytes of requests that make one update, unless the first has more."""
MOST_REQUESTS = 65_536
"""Messages with requests that wait at a replica for the update of another one."""


class PrimaryMachine(Machine):
    """One replica of an object whose commands the primary alone carries out."""

    at_primary = True

    def __init__(
        self,
        subject: Subject,
        quorum: Quorum,
        session: int,
        initial: Sequence[bytes],
        level: Level = Level.MEMORY,
        *,
        durable: bool = False,
        most: int,
    ) -> None:
        """`most`: bytes that an update may have."""
        super().__init__(subject, quorum, session, initial, level, durable=durable)
        self._most = most
        self._requests: dict[tuple[int, int], tuple[Process, Calls]] = {}
        """Those that wait, by session and the number of their first command, as they were delivered."""
        self._outstanding: Update | None = None
        """What this replica has sent and was not delivered yet."""
        self._oldest: tuple[int, int] | None = None
        """The request that waited longest when this replica last looked; None: it does not look."""
        self._impatient = False
        """This replica makes the next update, whoever is primary."""
        self.execution.on_update = self._updated

    @property
    def is_primary(self) -> bool:
        """Whether it is for this replica to make the next update."""
        agreement = self.agreement
        last = self.execution.primary
        if last in agreement.members:
            return last == self.me
        return self.me == min(agreement.holders or agreement.members, default=None)

    # --- requests -------------------------------------------------------------------------------

    def _counts(self, sender: Process, note: Entry | Mark) -> bool:
        if not isinstance(note, Calls):
            return super()._counts(sender, note)
        requests = self._requests
        requests[note.session, note.first] = sender, note
        if len(requests) > MOST_REQUESTS:
            del requests[next(iter(requests))]
        self._make_update()
        return False

    def _begin_round(self, number: int) -> None:
        super()._begin_round(number)
        self._outstanding, self._impatient = None, False

    def advance(self, more: int = 0) -> None:
        """Carry out what can be; then make an update of the requests that wait."""
        super().advance(more)
        self._make_update()

    def _make_update(self) -> None:
        agreement = self.agreement
        if not self._requests or agreement.round is None:
            return
        if self._oldest is None:
            self._look_again()
        history = self._mine
        waits = self._outstanding is not None or self._pauses or history is None or history.log
        if waits or not self.up_to_date or not (self.is_primary or self._impatient):
            return
        try:
            update = tried(self.execution, agreement.round, list(self._some()), self._most)
        except Outdated as error:
            self._out.append(Failed(ConfigProblem(str(error))))
            return
        except NotReplicated as problem:
            self._out.append(Failed(problem))
            return
        self._outstanding = update
        self._out.append(Send(update))

    def _some(self) -> Iterator[tuple[Process, Calls]]:
        """The requests of the next update, in order."""
        size = 0
        for sender, calls in self._requests.values():
            yield sender, calls
            size += sum(memoryview(run.calls).nbytes for run in calls.runs)
            if size > MOST_BYTES:
                return

    # --- updates --------------------------------------------------------------------------------

    def _updated(self, sender: Process, update: Update, *, holds: bool) -> None:
        """An update was delivered; if it does not hold, it is void."""
        if sender == self.me:
            self._outstanding = None
        if holds:
            self._impatient = False
            for done in update.done:
                self._requests.pop((done.session, done.first), None)

    # --- a primary that is slow -----------------------------------------------------------------

    def _look_again(self) -> None:
        members = self.agreement.members
        self._oldest = next(iter(self._requests))
        rank = members.index(self.me) if self.me in members else len(members)
        self._out.append(LookAgain(PATIENCE_US * (1 + rank)))

    def overdue(self) -> list[Effect]:
        """The time that `LookAgain` said is over: has the request had its update?"""
        oldest, self._oldest = self._oldest, None
        self._impatient = oldest in self._requests
        self._outstanding = None  # should it come, one of two is void
        self._make_update()
        return self._out.take()

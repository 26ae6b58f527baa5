"""The replica of one object: a pure machine over what its process group delivers.

It is told of configurations, of views of the object's group, of messages in it, and of a state that came from
another replica; it answers with effects. Its *history* is a row of entries: commands, ticks, and what rounds
settled (`agreement.py`). Entries are carried out only while a round is active in a regular configuration;
others wait in the history's log, as long as it is not known whether they count: those of a transitional
configuration, and those that are delivered while replicas tell what they have.

A replica whose history is not the chosen one keeps its state until the round is active, and meanwhile gets
that of another (`Fetch`). What is delivered until it comes waits, and is carried out behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import msgspec

from ordercast.core.identity import Configuration, Kind
from ordercast.process_groups.views import Process, View
from ordercast.replicated.agreement import Agreement
from ordercast.replicated.command import length, listed, several
from ordercast.replicated.durable.heads import START, Head
from ordercast.replicated.effects import (
    Answers,
    Begun,
    Effect,
    Fetch,
    Reached,
    Send,
    StopFetching,
    Told,
    Wake,
)
from ordercast.replicated.history import History
from ordercast.replicated.notes import (
    Calls,
    Entry,
    Have,
    Mark,
    Members,
    Report,
    RoundId,
    Run,
    Tick,
    read,
    written,
)
from ordercast.replicated.outcome import forgotten, unknown
from ordercast.replicated.quorum import Quorum
from ordercast.replicated.replicated import Subject, Turn
from ordercast.replicated.sessions import Known, Sessions
from ordercast.replicated.snapshot import Common, Restored, Snapshot

NOBODY = Process(0, 0, 0)
TICK_STEP_US = 50_000
"""Replicas tell each other that time has passed, one after the other, until one was heard."""


class Machine:
    """One replica."""

    def __init__(self, subject: Subject, quorum: Quorum, session: int, initial: Sequence[bytes]) -> None:
        """`session`: random, and of this replica alone. `initial`: the pieces of the object's state."""
        self.subject = subject
        self.session = session
        self.port = 0
        """Where states are given to other replicas."""
        self.agreement = Agreement(quorum)
        self.me = NOBODY
        self._pauses = 0
        """How many read the state: nothing is carried out meanwhile."""
        self.sessions = Sessions()
        self._initial = initial
        checksum = 0
        for piece in initial:
            checksum = crc32(piece, checksum)
        self._mine: History | None = History(Head(START.epoch, START.position, checksum))
        """The history that the object's state is of; None if that is no state any more."""
        self.applied = Head(START.epoch, START.position, checksum)
        """Up to where it was carried out."""
        self._wanted: History | None = None
        """The history that counts, where the object has no state of it yet."""
        self._since: list[tuple[Process, Entry | Mark, bytes]] = []
        """What was delivered since the round began, until it is settled."""
        self._began: tuple[Head | None, Head | None] = (None, None)
        """Where both histories were when the round began."""
        self._arrived: Restored | None = None
        """A state of which it cannot be said yet whether it is of the history that counts."""
        self._common = Common(0, [], {}, subject.known, 0, 0)
        self._configuration: Configuration | None = None
        self._regular = False
        self._group: tuple[Process, ...] = ()
        self._wake: int | None = None
        self._out: list[Effect] = []
        self._withheld: list[Effect] = []
        """Effects of what was carried out before it was certain that it stays."""

    # --- looking --------------------------------------------------------------------------------

    @property
    def up_to_date(self) -> bool:
        """Whether this replica carries out what is delivered."""
        return self.agreement.active and self._regular and self._mine is not None and self._wanted is None

    @property
    def waiting_bytes(self) -> int:
        """Bytes of what waits to be carried out."""
        return sum(history.bytes for history in (self._mine, self._wanted) if history is not None)

    @property
    def has_state(self) -> bool:
        """Whether the object's state is of the history that counts, as far as this replica knows."""
        return self._mine is not None and self._wanted is None

    @property
    def common(self) -> Common:
        """What is state of every object, at `applied`."""
        return msgspec.structs.replace(self._common, forgotten=self.sessions.forgotten)

    # --- who is there ---------------------------------------------------------------------------

    def configuration(self, configuration: Configuration, me: Process, *, rejoined: bool) -> list[Effect]:
        """A configuration of nodes begins; `rejoined`: it is the first of another life of this node."""
        self._configuration, self.me = configuration, me
        self._regular = configuration.kind is Kind.REGULAR
        if rejoined:
            self._group = ()
        self._group = tuple(each for each in self._group if each.node in configuration.members)
        if self._regular:
            self._begin_round(1)
        return self._take()

    def view(self, view: View, me: Process) -> list[Effect]:
        """The object's group has a view in which this replica is."""
        self.me = me
        self._group = tuple(each.process for each in view.members)
        if view.id.part is None:
            self._begin_round(view.id.number)
        return self._take()

    def left(self) -> list[Effect]:
        """This replica is in the object's group no longer."""
        self._group = ()
        self._keep_since()
        self.agreement.end()
        return self._take()

    def _begin_round(self, number: int) -> None:
        self._keep_since()
        if self.me not in self._group or self._configuration is None:
            self.agreement.end()
            return
        round = RoundId(*self._configuration.id, number)
        self.agreement.begin(round, self._group, self._configuration.members)
        mine, wanted = self._mine, self._wanted
        self._began = (None if mine is None else mine.head, None if wanted is None else wanted.head)
        self._out.append(Send(Report(round, self._began[0], sorted(self.subject.known), self.port)))

    def _keep_since(self) -> None:
        """The round is over without having been settled: what was delivered in it goes behind what was
        before."""
        history = self._wanted or self._mine
        if history is not None:
            history.extend(self._since)
        self._since.clear()

    # --- what is delivered ----------------------------------------------------------------------

    def deliver(self, sender: Process, payload: bytes) -> list[Effect]:
        """A message in the object's group."""
        note = read(payload)
        if isinstance(note, Report):
            if self.agreement.report(sender, note):
                self._settle()
        elif isinstance(note, Have):
            self.agreement.have(sender, note)
            self._activate()
        elif note is not None and not (isinstance(note, Mark) and sender != self.me):
            if self.agreement.round is not None and not self.agreement.settled:
                self._since.append((sender, note, payload))
            else:
                history = self._wanted or self._mine
                if history is not None:
                    history.append(sender, note, payload)
                self._look_at_arrived()
                self.advance()
        return self._take()

    def _settle(self) -> None:
        """All have told what they have: go on with the history that counts."""
        agreement, chosen = self.agreement, self.agreement.chosen
        assert chosen is not None
        mine_at, wanted_at = self._began
        settlement = agreement.settlement()
        since = [(NOBODY, settlement, written(settlement)), *self._since]
        self._since.clear()
        if self._mine is not None and mine_at == chosen:
            self._stop_fetching()
            self._mine.extend(since)
            if self.me not in agreement.holders and agreement.round is not None:
                self._out.append(Send(Have(agreement.round)))  # it came after this replica had told
        else:
            self._withheld.clear()
            if self._wanted is None or wanted_at != chosen:
                self._arrived = None
                self._wanted = History(chosen)
            self._wanted.extend(since)
            self._out.append(Fetch(chosen, agreement.sources(self.me)))
            self._look_at_arrived()
        self._activate()
        self.advance()

    def _activate(self) -> None:
        if not self.agreement.activate():
            return
        assert self.agreement.round is not None
        history = self._wanted or self._mine
        assert history is not None
        assert self.agreement.chosen is not None
        history.enter(self.agreement.round.seq, self.agreement.chosen.position)
        if self._wanted is not None:
            self._mine = None
        if self.up_to_date:
            self._begin(anew=False)

    def _begin(self, *, anew: bool) -> None:
        self._out += self._withheld
        self._withheld.clear()
        self.advance()
        self._out.append(Begun(anew))

    # --- carrying out ---------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state as it is now. Nothing is carried out until `resume`, unless it is `complete`."""
        assert self.has_state, "else there is none"
        snapshot = Snapshot(self.applied, self.common, self.sessions, self.subject.target)
        if not snapshot.complete:
            self._pauses += 1
        return snapshot

    def resume(self) -> list[Effect]:
        """A snapshot that was not complete is."""
        self._pauses -= 1
        self.advance()
        return self._take()

    def advance(self) -> None:
        """Carry out what can be."""
        mine, agreement = self._mine, self.agreement
        if mine is None or self._wanted is not None or not (self._regular and agreement.settled):
            return
        assert agreement.chosen is not None
        log, last = mine.log, None if agreement.active else agreement.chosen.position
        while log and not self._pauses and (last is None or log[0][0].position <= last):
            head, sender, note, size = log.popleft()
            mine.bytes -= size
            mine.base = self.applied = head
            self._carry_out(head, sender, note)
        if agreement.active:
            self._wake_up()

    def _carry_out(self, head: Head, sender: Process, note: Entry | Mark) -> None:
        match note:
            case Mark(number):
                self._emit(Reached(number))
            case Calls():
                self._pass_time(sender, note.time_us)
                self._call(head, sender, note)
            case Tick(time_us):
                self._pass_time(sender, time_us)
            case Members(there, ahead_us, known):
                common, before = self._common, self._common.there
                common.there = there
                common.ahead_us = dict(zip(there, ahead_us, strict=True))
                common.known = frozenset(known)
                for gone in sorted(set(before) - set(there)):
                    self.subject.left(self._next_turn(), gone)

    def _call(self, head: Head, sender: Process, calls: Calls) -> None:
        session, number, outcomes = calls.session, calls.first, list[bytes]()
        for run in calls.runs:
            count = length(run.calls)
            if count is None:
                continue  # it says nothing
            if self.sessions.all_new(session, number, count, calls.since):
                found = self._run(sender, run, count)
                self.sessions.keep(session, number, calls.floor, head.position, found)
            else:
                found = [
                    self._call_again(head, sender, calls, number + at, Run(run.shape, listed((bytes(call),))))
                    for at, call in enumerate(several(run.calls))
                ]
            outcomes += found
            number += len(found)
        if session == self.session:
            self._emit(Answers(calls.first, outcomes))

    def _call_again(self, head: Head, sender: Process, calls: Calls, number: int, run: Run) -> bytes:
        """A command that may have been carried out already."""
        outcome = self.sessions.look(calls.session, number, calls.since)
        if outcome is Known.FORGOTTEN:
            return forgotten()
        if outcome is Known.NEW:
            found = self._run(sender, run, 1)
            self.sessions.keep(calls.session, number, calls.floor, head.position, found)
            return found[0]
        return outcome

    def _run(self, sender: Process, run: Run, count: int) -> list[bytes]:
        common = self._common
        if run.shape not in common.known:
            return [unknown(run.shape)] * count
        turn = Turn(common.now_us, common.position, sender)
        outcomes = self.subject.run(turn, run)
        common.position = turn.position
        return outcomes

    def _next_turn(self) -> Turn:
        """Of what nobody called."""
        self._common.position += 1
        return Turn(self._common.now_us, self._common.position, NOBODY)

    def _pass_time(self, sender: Process, time_us: int) -> None:
        """Ordered time is the sender's, as far ahead as its clock is, and never falls."""
        common = self._common
        common.now_us = max(common.now_us, time_us - common.ahead_us.get(sender, 0))
        due = self.subject.wake_at_us
        if due is not None and common.now_us >= due:
            self.subject.tick(self._next_turn())

    def tell(self, event: object) -> None:
        """The object tells those who watch it, while it carries something out."""
        self._emit(Told(event))

    def _emit(self, effect: Effect) -> None:
        (self._out if self.agreement.active else self._withheld).append(effect)

    # --- time -----------------------------------------------------------------------------------

    def _wake_up(self) -> None:
        due, there = self.subject.wake_at_us, self._common.there
        if due is not None and self.me in there:
            rank_us = there.index(self.me) * TICK_STEP_US
            due += self._common.ahead_us[self.me] + rank_us
        if due != self._wake:
            self._wake = due
            self._out.append(Wake(due))

    def alarm(self, now_us: int) -> list[Effect]:
        """This node's clock is where `Wake` said."""
        if self._wake is not None:
            if self.up_to_date:
                self._out.append(Send(Tick(now_us)))
            self._out.append(Wake(now_us + 20 * TICK_STEP_US))
        return self._take()

    # --- a state from elsewhere -----------------------------------------------------------------

    def arrive(self, state: Restored) -> list[Effect]:
        """The state of another replica."""
        if self._wanted is not None:
            self._arrived = state
            self._look_at_arrived()
        return self._take()

    def _look_at_arrived(self) -> None:
        if self._arrived is None or self._wanted is None:
            return
        state, found = self._arrived, self._wanted.has(self._arrived.head)
        if found is None:
            return
        self._arrived = None
        if not found:
            assert self.agreement.chosen is not None or not self.agreement.settled
            self._out.append(Fetch(self._wanted.base, self.agreement.sources(self.me)))
            return
        state.install(self._initial)
        self.sessions, self._common = state.sessions, state.common
        self.subject.target._turn = Turn(self._common.now_us, self._common.position, NOBODY)
        self._mine, self._wanted = self._wanted, None
        self._mine.begin_at(state.head)
        self.applied = state.head
        self._began = (self._began[1], None)
        if self.agreement.settled and self.agreement.round is not None:
            self._out.append(Send(Have(self.agreement.round)))
        if self.up_to_date:
            self._begin(anew=True)
        else:
            self.advance()

    def _stop_fetching(self) -> None:
        if self._wanted is not None:
            self._wanted = self._arrived = None
            self._out.append(StopFetching())

    def _take(self) -> list[Effect]:
        out, self._out = self._out, []
        return out

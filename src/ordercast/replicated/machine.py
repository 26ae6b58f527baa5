"""The replica of one object: a pure machine over what its process group delivers.

It is told of configurations, of views of the object's group, of messages in it, and of a state that came from
another replica; it answers with effects. Its *history* is a row of entries: commands, ticks, and what rounds
settled (`agreement.py`). Entries are carried out only while a round is active in a regular configuration;
others wait in the history's log, as long as it is not known whether they count: those of a transitional
configuration, and those that are delivered while replicas tell what they have. A replica whose history is not
the chosen one keeps its state until the round is active, and meanwhile gets that of another (`Fetch`); what
is delivered until it comes is carried out behind it. Where histories are merged, replicas that tell of
different ones carry theirs out up to where they told, get the states of the others (`Wanted`), and make one
of these, at the same place of the order. With a disk the history is kept as it is delivered, and carried out
once on as many disks as the level asks for (``decisions/durability.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from ordercast.core.identity import Configuration
from ordercast.process_groups.views import Process, View
from ordercast.replicated.agreement import Agreement, unlike
from ordercast.replicated.durable.heads import START, Head
from ordercast.replicated.effects import (
    Begun,
    Dropped,
    Effect,
    Effects,
    Failed,
    Fetch,
    GoOn,
    Keep,
    Offer,
    Promise,
    Reached,
    Send,
    StopFetching,
    Store,
    Told,
    Wake,
)
from ordercast.replicated.execution import NOBODY, Execution
from ordercast.replicated.history import History, Recent, Tail
from ordercast.replicated.levels import Level
from ordercast.replicated.notes import (
    Calls,
    Entry,
    Have,
    Mark,
    Members,
    Report,
    Synced,
    Tick,
    read,
    written,
)
from ordercast.replicated.on_disk import OnDisk
from ordercast.replicated.presence import Presence
from ordercast.replicated.quorum import Quorum
from ordercast.replicated.replicated import Subject
from ordercast.replicated.snapshot import Restored, Snapshot
from ordercast.replicated.wanted import Wanted
from ordercast.replicated.watching import Missed

TICK_STEP_US = 50_000
"""Replicas tell each other that time has passed, one after the other, until one was heard."""
AT_A_TIME = 100
"""Entries of a backlog that are carried out before others have their turn: about a millisecond."""
MOST_WAITING = 256 * 1024 * 1024


class Machine:
    """One replica of an object: takes what is delivered and what is on disk, and answers with `Effects`."""

    at_primary = False
    """Whether commands are carried out by the primary alone."""

    def __init__(
        self,
        subject: Subject,
        quorum: Quorum,
        session: int,
        initial: Sequence[bytes],
        level: Level = Level.MEMORY,
        *,
        durable: bool = False,
    ) -> None:
        """`session`: random, and of this replica alone. `initial`: the pieces of the object's state.
        `durable`: there is a disk."""
        self.session = session
        self.port = 0
        """Where states are given to other replicas."""
        self.most_waiting = MOST_WAITING
        """Bytes that may wait for a state; with more, they are dropped, and a later state is asked for."""
        self.agreement = Agreement(quorum)
        self._presence = Presence()
        self._pauses = 0
        """How many read the state: nothing is carried out meanwhile."""
        self._initial = list(initial)
        self._known, self._fields = sorted(subject.known), sorted(subject.fields)
        self.disk = OnDisk(level, durable=durable)
        begin = Head(START.epoch, START.position, crc32(b"".join(initial)))
        self.execution = Execution(subject, session, begin, merges=self.agreement.merges)
        """The state, and what is carried out on it."""
        self._mine: History | None = History(begin)
        """The history that the object's state is of; None if that is no state any more."""
        self._old: History | None = None
        """The history that the object's state is of, where it is not the one that counts."""
        self.recent = Recent(begin)
        """What was carried out last."""
        self._wanted: Wanted | None = None
        """The history that counts, where the object has no state of it yet."""
        self._since: list[tuple[Process, Entry | Mark, bytes]] = []
        """What was delivered since the round began, until it is settled."""
        self._began: tuple[Head | None, Head | None] = (None, None)
        """Where both histories were when the round began."""
        self._backlog = 0
        """So many entries were left when others had to have their turn: `go_on` carries them out."""
        self._wake: int | None = None
        self._out = Effects()

    # --- looking --------------------------------------------------------------------------------

    @property
    def me(self) -> Process:
        """This replica."""
        return self._presence.me

    @property
    def up_to_date(self) -> bool:
        """Whether this replica carries out what is delivered."""
        return self.agreement.active and self._presence.regular and self.has_state

    @property
    def is_certain(self) -> bool:
        """Whether what was carried out stays."""
        return self.up_to_date and self._out.certain

    @property
    def holds_commands(self) -> bool:
        """Whether commands are sent when `Begun` says so, and not now."""
        return self.agreement.merges and not self.up_to_date

    @property
    def has_state(self) -> bool:
        """Whether the object's state is of the history that counts, as far as this replica knows."""
        return self._mine is not None and self._wanted is None

    @property
    def gives_state(self) -> bool:
        """Whether other replicas may need the object's state as it is now."""
        return self.has_state or (self._wanted is not None and self._wanted.own == self.applied)

    @property
    def applied(self) -> Head:
        """Up to where the history was carried out."""
        return self.execution.applied

    # --- who is there ---------------------------------------------------------------------------

    def configuration(self, configuration: Configuration, me: Process, *, rejoined: bool) -> list[Effect]:
        """A configuration of nodes begins; `rejoined`: it is the first of another life of this node."""
        self._presence.begin(configuration, me, rejoined=rejoined)
        if self._presence.regular:
            self._begin_round(1)
        return self._out.take()

    def view(self, view: View, me: Process) -> list[Effect]:
        """The object's group has a view in which this replica is."""
        self._presence.view(view, me)
        if view.id.part is None:
            self._begin_round(view.id.number)
        return self._out.take()

    def left(self) -> list[Effect]:
        """This replica is in the object's group no longer."""
        self._presence.group = ()
        self._keep_since()
        self.agreement.end()
        return self._out.take()

    def _begin_round(self, number: int) -> None:
        self._keep_since()
        if self._wanted is not None:
            self._wanted.give_up_parts()
        round, presence = self._presence.round(number), self._presence
        if round is None or presence.configuration is None:
            self.agreement.end()
            return
        self.disk.synced = 0
        self.agreement.begin(round, presence.group, presence.configuration.members)
        mine, wanted = self._mine, self._wanted
        self._began = (None if mine is None else mine.head, None if wanted is None else wanted.head)
        passed = list(mine.passed) if mine is not None and self.agreement.merges else []
        told = self._known, self.port, *self.disk.told, 0, passed, self._fields, self.at_primary
        self._out.append(Send(Report(round, self._began[0], *told)))

    def _keep_since(self) -> None:
        """The round is over without having been settled: what was delivered in it goes behind what was
        before. Where histories are merged, this one may lack what its senders have carried out: it is let go,
        and they send it again."""
        self._out.certain = False
        history = self._wanted or self._mine
        if history is not None and not self.agreement.merges:
            history.extend(self._since)
        self._since.clear()

    # --- what is delivered ----------------------------------------------------------------------

    def deliver(self, sender: Process, payload: bytes) -> list[Effect]:
        """A message in the object's group."""
        note = read(payload)
        if isinstance(note, Report):
            self._out.fail(unlike(note, self.at_primary, self.applied))
            if self.agreement.report(sender, note):
                self._settle()
        elif isinstance(note, Have):
            self.agreement.have(sender, note)
            self._activate()
        elif isinstance(note, Synced):
            self.agreement.sync(sender, note)
            self.advance()
        elif note is not None and self._counts(sender, note):
            if self.agreement.round is not None and not self.agreement.settled:
                self._since.append((sender, note, payload))
            else:
                history = self._wanted or self._mine
                if history is not None:
                    history.append(sender, note, payload)
                self._look_at_arrived()
                self._bound_waiting()
                self.advance()
        return self._out.take()

    def _counts(self, sender: Process, note: Entry | Mark) -> bool:
        """Whether somebody wants it. Where histories are merged, commands count in the round in which they
        were sent: so those of a caller are carried out in their order."""
        if isinstance(note, Calls) and self.agreement.merges:
            return note.round == self.agreement.round
        return not isinstance(note, Mark) or sender == self.me

    def _settle(self) -> None:
        """All have told what they have: go on with the history that counts, as a new epoch of it."""
        agreement, chosen = self.agreement, self.agreement.chosen
        assert chosen is not None
        mine_at, wanted_at = self._began
        settlement = agreement.settlement()
        since = [(NOBODY, settlement, written(settlement)), *self._since]
        self._since.clear()
        if self._mine is not None and mine_at == chosen:
            self._stop_fetching()
            self._mine.extend(since)
        else:
            if self._wanted is None or wanted_at != chosen:
                own = mine_at if mine_at in agreement.parts else None
                self._wanted = Wanted(chosen, agreement.passed, agreement.parts, own)
            self._wanted.extend(since)
            self._fetch(self._wanted)
            self._look_at_arrived()
        self.disk.promised = agreement.epoch
        if self.disk.durable:
            self._out.append(Promise(agreement.epoch))
        self._say_have()
        self._activate()
        self.advance()

    def _say_have(self) -> None:
        """Tell the others that this replica has the state and takes part, unless they know."""
        agreement = self.agreement
        says_so = self.has_state and self.disk.takes_part(agreement.epoch)
        if agreement.round is not None and agreement.settled and says_so and self.me not in agreement.holders:
            self._out.append(Send(Have(agreement.round)))

    def _activate(self) -> None:
        if not self.agreement.activate():
            return
        history = self._wanted or self._mine
        assert history is not None
        assert self.agreement.chosen is not None
        history.enter(self.agreement.epoch, self.agreement.chosen.position)
        if self._wanted is not None and self._mine is not None and not self.agreement.merges:
            self._old, self._mine = self._mine, None
        if self.up_to_date:
            self._begin(anew=self.agreement.merges)

    def _begin(self, *, anew: bool) -> None:
        if self.disk.durable and self.disk.kept is None:
            self._out.append(Store())  # the disk has another history, or nothing
        self.advance()
        self._out.append(Begun(anew))

    # --- carrying out ---------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state as it is now. Nothing is carried out until `resume`, unless it is `complete`."""
        assert self.gives_state, "else there is none"
        snapshot = self.execution.snapshot()
        if not snapshot.complete:
            self._pauses += 1
        return snapshot

    def resume(self) -> list[Effect]:
        """A snapshot that was not complete is."""
        self._pauses -= 1
        self._look_at_arrived()
        self.advance()
        return self._out.take()

    def go_on(self) -> list[Effect]:
        """`GoOn` was asked for: carry out some more, and as many as came meanwhile: the backlog shrinks."""
        backlog, self._backlog = self._backlog, 0
        came = 0 if self._mine is None else len(self._mine.log) - backlog
        self.advance(more=max(0, came))
        return self._out.take()

    def _offer(self) -> None:
        """Keep the state as it is now, if others are to get it from this replica and it costs no encoding."""
        if self.execution.immutable and self.agreement.gives(self.me):
            self._out.append(Offer(self.snapshot()))

    def advance(self, more: int = 0) -> None:
        """Carry out what can be, but at most `AT_A_TIME` entries and so many more: `go_on` does the rest."""
        mine, wanted, agreement = self._mine, self._wanted, self.agreement
        carries_out = self._presence.regular and agreement.settled
        if mine is None or not carries_out or (wanted is not None and wanted.own is None):
            return
        entries = self.disk.keep(mine, agreement)
        if entries:
            self._out.append(Keep(entries))
        last = self.disk.reached(agreement) if wanted is None else mine.head.position
        if not self._out.certain and agreement.active:
            assert agreement.chosen is not None
            if last is None or last > agreement.chosen.position:
                self._out.become_certain()
        log, carry_out, count = mine.log, self.execution.carry_out, 0
        while log and not (self._pauses or self._backlog) and (last is None or log[0][0].position <= last):
            if count == AT_A_TIME + more:
                self._backlog = len(log)
                self._out.append(GoOn())
                break
            count += 1
            head, sender, note, payload = log.popleft()
            mine.bytes -= len(payload)
            mine.base = head
            if isinstance(note, Mark):
                self._out.of_history(Reached(note.number))
                continue
            done = carry_out(head, sender, note)
            if isinstance(done, Failed):
                self._out.append(done)
                return
            self.recent.add(head, sender, payload)
            for answers in done:
                self._out.of_history(answers)
            if isinstance(note, Members):
                self._offer()
        self._look_at_arrived()
        if agreement.active:
            self._wake_up()

    # --- the disk of this replica -----------------------------------------------------------------

    def take_part_from(self, epoch: int) -> None:
        """Begin as one that took part in this epoch, by what its disk says, and told nothing that it has not
        on disk."""
        self.disk.promised, self.disk.remembers = epoch, epoch > 0

    def begin_without_state(self, epoch: int) -> None:
        """Begin with nothing: what was on disk is damaged, so that this replica does not know what it had. It
        took part in this epoch, or a later one."""
        self._mine, self.disk.promised, self.disk.remembers = None, epoch, False

    def restore(self, state: Restored, entries: Sequence[tuple[Process, Entry, bytes, Head]]) -> None:
        """Begin with what is on disk: a state, and what follows it."""
        self.execution.take(state, self._initial)
        history = History(state.head)
        for sender, note, payload, head in entries:
            history.restore(sender, note, payload, head)
        self._mine, self.recent, self.disk.kept = history, Recent(state.head), history.head.position

    def promised(self, epoch: int) -> list[Effect]:
        """What `Promise` asked for is on disk."""
        self.disk.promise_kept = epoch
        self._say_have()
        return self._out.take()

    def storing(self, head: Head) -> list[Effect]:
        """The state at this head is on its way to the disk: what follows it is to be appended."""
        self.disk.kept = head.position
        self.advance()
        return self._out.take()

    def synced(self, head: Head) -> list[Effect]:
        """The history is on disk up to here."""
        agreement, round = self.agreement, self.agreement.round
        if agreement.active and round is not None and head.epoch == agreement.epoch:
            self.disk.synced = head.position
            agreement.sync(self.me, synced := Synced(round, head.position))
            self._out.append(Send(synced))
            self.advance()
        return self._out.take()

    def tell(self, event: object) -> None:
        """The object tells those who watch it, while it carries something out."""
        self._out.of_history(Told(event))

    # --- time -----------------------------------------------------------------------------------

    def _wake_up(self) -> None:
        due = self.execution.wake_at_us(self.me, TICK_STEP_US)
        if due != self._wake:
            self._wake = due
            self._out.append(Wake(due))

    def alarm(self, now_us: int) -> list[Effect]:
        """This node's clock is where `Wake` said."""
        if self._wake is not None:
            if self.up_to_date:
                self._out.append(Send(Tick(now_us)))
            self._out.append(Wake(now_us + 20 * TICK_STEP_US))
        return self._out.take()

    # --- a state from elsewhere -----------------------------------------------------------------

    def _fetch(self, wanted: Wanted) -> None:
        """Get the state where that history begins, or what leads there from here; or that of a part."""
        part, old = wanted.missing, self._mine or self._old
        places = () if old is None or wanted.merged else (old.head, self.applied)
        known = [each for each in places if each.position > START.position]
        if part is not None or not wanted.merged:
            self._out.append(Fetch(part or wanted.base, self.agreement.sources(self.me, part), known))

    def arrive(self, state: Restored | Tail) -> list[Effect]:
        """The state of another replica, or what leads there from a place that this one told. Where histories
        are merged, others may need the state that is here until it is settled which are."""
        if self._wanted is not None and (self.agreement.settled or not self.agreement.merges):
            if self._wanted.arrive(state):
                self._fetch(self._wanted)
            self._look_at_arrived()
        return self._out.take()

    def _look_at_arrived(self) -> None:
        wanted = self._wanted
        if wanted is None:
            return
        state, parts = wanted.taken(), wanted.parts_at(self.applied)
        if parts is not None and not self._pauses:
            self._out.withheld.clear()
            failed = self.execution.merge(wanted.base, parts, self._initial)
            if failed is not None:
                wanted.give_up_parts()
                self._out.append(failed)
                return
            self._begin_with(wanted, wanted.base)
        elif state is None:
            return
        elif not wanted.has(state.head) or not self._reach(state, wanted):
            self._fetch(wanted)
            return
        self._stop_fetching()
        self._old, self._began = None, (self._began[1], None)
        self._say_have()
        if self.up_to_date:
            self._begin(anew=parts is not None or isinstance(state, Restored))
        else:
            self.advance()

    def _reach(self, state: Restored | Tail, wanted: Wanted) -> bool:
        """Bring the object to the history that counts; whether what has arrived leads there from here."""
        if isinstance(state, Restored):
            self._out.withheld.clear()  # of a state that is no more
            self.execution.take(state, self._initial)
            self._begin_with(wanted, state.head)
            return True
        old = self._mine or self._old
        followed = None if old is None else old.followed_by(state, self.applied, wanted)
        if old is None or followed is None:
            return False
        self.disk.kept = self.disk.kept_of(followed, state.base.position == old.head.position)
        self._mine = followed
        return True

    def _begin_with(self, wanted: Wanted, head: Head) -> None:
        """The object has another state, of this place of that history."""
        self._out.of_history(Told(Missed()))  # what is carried out behind the state is told behind that
        wanted.begin_at(head)
        self._mine, self.recent, self.disk.kept = wanted, Recent(head), None

    def _bound_waiting(self) -> None:
        """Where too much waits for a state, let it go, and wait for a later one, unless all wait for it."""
        wanted = self._wanted
        if wanted is not None and not wanted.merged and wanted.bytes > self.most_waiting:
            self._out.append(Dropped(wanted.bytes))
            wanted.begin_at(wanted.head)
            self._fetch(wanted)

    def _stop_fetching(self) -> None:
        if self._wanted is not None:
            self._wanted = None
            self._out.append(StopFetching())

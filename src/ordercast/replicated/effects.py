"""What the machine of a replica wants of the replica at its node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ordercast.errors import OrdercastError
from ordercast.process_groups.views import Process
from ordercast.replicated.durable.heads import Entry, Head
from ordercast.replicated.notes import Have, Report, Synced, Tick, Update
from ordercast.replicated.snapshot import Snapshot


class Send(NamedTuple):
    """Tell the other replicas, in the order, by a safe message; the time is to be filled in."""

    note: Report | Have | Synced | Tick | Update


class Answers(NamedTuple):
    """Commands that were called at this replica were carried out, or will not be."""

    session: int
    first: int
    """The number of the first one; the others' follow it."""
    outcomes: Sequence[bytes]


class Reached(NamedTuple):
    """Everything before a mark of this replica was carried out here."""

    number: int


class Told(NamedTuple):
    """Commands tell those who watch."""

    event: object


class Fetch(NamedTuple):
    """Get the state at this head, or behind it, from one of these replicas, at that port."""

    head: Head
    sources: Sequence[tuple[Process, int]]
    known: Sequence[Head] = ()
    """Or what follows one of these places: there this replica is already."""


class StopFetching(NamedTuple):
    """No state is needed any more."""


class Dropped(NamedTuple):
    """So many bytes waited for a state, too many: they are let go, and a later state is fetched."""

    size: int


class Offer(NamedTuple):
    """Keep the state as it is now for replicas that lack it; the snapshot has begun (`Machine.snapshot`)."""

    snapshot: Snapshot


class Failed(NamedTuple):
    """There is no state that this replica could go on with."""

    problem: OrdercastError


class Wake(NamedTuple):
    """Call `Machine.alarm` when this node's clock is there; None: never."""

    at_us: int | None


class Promise(NamedTuple):
    """Note on disk that this replica takes part in no earlier epoch; then call `Machine.promised`."""

    epoch: int


class Keep(NamedTuple):
    """Append these to the log on disk."""

    entries: Sequence[Entry]


class Store(NamedTuple):
    """Keep the state as it is now on disk, in place of what is there (`Machine.storing`)."""


class LookAgain(NamedTuple):
    """Call `PrimaryMachine.overdue` after so many microseconds."""

    after_us: int


class GoOn(NamedTuple):
    """Call `Machine.go_on` when others had their turn."""


class Begun(NamedTuple):
    """The replica has the state, and commands are answered from now on. What was asked for in an earlier
    configuration and has no answer is to be asked for again."""

    anew: bool
    """So is all else: answers may have passed this replica by, or commands were let go."""


Effect: TypeAlias = (
    Send
    | Answers
    | Reached
    | Told
    | Fetch
    | StopFetching
    | Dropped
    | Offer
    | Failed
    | Wake
    | Promise
    | Keep
    | Store
    | GoOn
    | LookAgain
    | Begun
)


class Effects:
    """What a machine wants, one thing after the other."""

    def __init__(self) -> None:
        self.certain = False
        """What was carried out in this round stays."""
        self.withheld: list[Effect] = []
        """What follows from the history, as long as that is not certain."""
        self._effects: list[Effect] = []

    def append(self, effect: Effect) -> None:
        """Add something that the machine wants."""
        self._effects.append(effect)

    def fail(self, problem: OrdercastError | None) -> None:
        """Go no further, if there is a problem."""
        if problem is not None:
            self._effects.append(Failed(problem))

    def of_history(self, effect: Effect) -> None:
        """Add something that the machine wants if what was carried out stays."""
        (self._effects if self.certain else self.withheld).append(effect)

    def become_certain(self) -> None:
        """What was carried out stays."""
        self.certain = True
        self._effects += self.withheld
        self.withheld.clear()

    def take(self) -> list[Effect]:
        """All that is wanted, and has not been taken."""
        effects, self._effects = self._effects, []
        return effects

"""The base of classes whose objects are replicated: what commands see beside the state."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from ordercast.errors import ConfigProblem, NotReplicated
from ordercast.process_groups.views import Process
from ordercast.replicated.command import CallId, Command, command
from ordercast.replicated.fingerprint import fingerprint
from ordercast.replicated.notes import Run
from ordercast.replicated.outcome import NOTHING, failed, succeeded
from ordercast.replicated.state import Fields, Outdated
from ordercast.replicated.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable


LOG = logging.getLogger("ordercast")
OF_CLASS = "__orig_class__"
"""What Python sets at an object that is made as `Map[str](str)`: no part of the state."""


class Turn(msgspec.Struct):
    """What is carried out now, or was last."""

    now_us: int = 0
    position: int = 0
    caller: Process = Process(0, 0, 0)
    sent_us: int = 0
    number: int = 0


_NEVER = (-1, -1)
MOST_FINGERPRINTS = 1_000
"""So many fingerprints of an object are remembered at a replica."""


class Attached(Protocol):
    """A replica, as its object knows it."""

    def call(
        self, command: Command[Any, Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Awaitable[Any]:
        """Have a command carried out at all replicas; its result."""

    async def sync(self) -> None:
        """Wait until everything that was answered anywhere before is here."""

    def tell(self, event: Any) -> None:
        """Tell those who watch."""

    def watch(self) -> Watch:
        """Watch the object from now on."""

    def raised(self, where: str, error: Exception) -> None:
        """A method of the object that nobody waits for has raised something; it is logged already."""


class Replicated:
    """An object that is the same at every node that replicates it (`Node.replicate`).

    The annotations of the class name the fields of its state, and say how they are encoded. Fields are read
    as those of any object: that gives the state as this replica has it, which may be behind others' until
    `sync`. They are changed by commands (`ordercast.command`), by `left` and by `tick`, and by nobody else.

    The state of one replica is given to others, and written to disk, while commands go on. What elements of a
    list, dict, set or deque are decides what that costs: where their types say that nothing can change them
    (numbers, texts, bytes, enums, times, and tuples, frozensets, NamedTuples, frozen dataclasses and frozen
    `msgspec.Struct` of such), references to them are copied, 8 bytes for an element of a list and 16 for one
    of a dict. Else the field is encoded before commands go on at that replica, and the bytes are kept. So
    values have to be of the types that are annotated.

    With ``partition="merge"`` every partition goes on by itself, and the class has a plain method
    ``def merge(self, others: Sequence[Self]) -> None``. It is called when partitions meet again, at one place
    in the order, on an object with the state of one of them and with objects that have the states of the
    others, and makes of ``self`` what follows from all. The others' objects are its own to take things from.
    What it does has to follow from these states alone, as in a command (`knows` helps).
    """

    wake_at_us: int | None = None
    """When `tick` is called, in ordered time: set it in a command, in `left` or in `tick`. None: never."""

    _replica: Attached | None = None
    _turn: Turn = Turn()
    _applying = False
    _merged = False
    _seen: Mapping[Process, tuple[int, int]] = {}
    """Of each caller, the last command in the history of this object: for `merge`."""
    _shared: frozenset[str] | None = None
    """The fields that count; None: all."""
    _fingerprints: deque[str] | None = None
    """Those that were taken here, the last ones."""
    _commands: dict[str, Command[Any, Any, Any]] = {}  # noqa: RUF012 - each class has its own
    _fields: Fields = Fields({})

    def __init_subclass__(cls, **more: Any) -> None:
        """Look at the class: what is wrong with its annotations is said where it is written."""
        super().__init_subclass__(**more)
        found = {
            name: each
            for base in reversed(cls.__mro__)
            for name, each in vars(base).items()
            if isinstance(each, Command)
        }
        for name, each in found.items():
            if name != each.name:
                raise ConfigProblem(f"the command {each.name} is called {name}, too: give it one name")
            each.form(cls)
        cls._commands = found
        cls._fields = Fields.of(cls, Replicated)

    # --- within a command -----------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """Ordered time: microseconds since the epoch, near the clocks of the replicas, or ahead of them once
        some were wrong. It is the same at all of them, goes on as their clocks do, and never falls."""
        return self._turn.now_us

    @property
    def position(self) -> int:
        """The number of what is carried out now, in the history of the object: the same at all replicas, and
        higher by one for each command, so it serves as a fencing token. Outside of commands, of what was
        carried out last."""
        return self._turn.position

    @property
    def caller(self) -> Process:
        """Who called the command: a replica of the object at a node (`Process`)."""
        return self._turn.caller

    @property
    def call_id(self) -> CallId:
        """Identifies the command that is carried out now. Where partitions go on by themselves, both sides
        may carry out a command that was under way when they parted; it has the same identifier there."""
        turn = self._turn
        return CallId(turn.caller, turn.sent_us, turn.number)

    @property
    def is_merged(self) -> bool:
        """Whether the object is replicated with ``partition="merge"``."""
        return self._merged

    def knows(self, call: CallId) -> bool:
        """Within ``merge``: whether the history of this object has a command, or a later one of its caller.
        So what is not here any more was taken away, and was not merely added elsewhere."""
        return self._seen.get(call.caller, _NEVER) >= call[1:]

    def tell(self, event: Any) -> None:
        """Tell those who watch the object at this replica (`ordercast.watch`); they get a copy."""
        if self._replica is not None:
            self._replica.tell(event)

    def left(self, process: Process) -> None:
        """A replica is no longer there: it left, it ended, or it is outside the primary partition. Should
        that come back, it has no part in what it had: forget what it held.

        Called at one place in the order; may change the state, and `tell`. Override it as needed.
        """

    def tick(self) -> None:
        """Ordered time has passed `wake_at_us`, which is None again. Override it as needed."""

    # --- at a replica ---------------------------------------------------------------------------

    @command
    def fingerprint(self) -> str:
        """A command that takes the fingerprint of the state at every replica, at one place of the history: a
        short text, which begins with that place and is the same wherever the state is (`agrees`). It looks at
        the whole state, about 0.1 s for a million entries, and nothing else is done meanwhile."""
        shared = self._fields.names if self._shared is None else self._shared
        fields = ((each.name, getattr(self, each.name), each.has_sets) for each in self._fields.sorted())
        taken = fingerprint(self.position, self.now_us, (each for each in fields if each[0] in shared))
        if self._fingerprints is None:
            self._fingerprints = deque(maxlen=MOST_FINGERPRINTS)
        self._fingerprints.append(taken)
        return taken

    def agrees(self, fingerprint: str | bytes) -> bool | None:
        """Whether a fingerprint that was taken elsewhere is the one that was taken here at that place. None:
        none was, or that is too long ago."""
        theirs = fingerprint.decode() if isinstance(fingerprint, bytes) else fingerprint
        place = theirs.partition("/")[0] + "/"
        mine = next((each for each in reversed(self._fingerprints or ()) if each.startswith(place)), None)
        return None if mine is None else mine == theirs

    async def sync(self) -> None:
        """Wait until this replica has carried out everything that was answered, anywhere, before this call:
        what is read then is not older than that. Raises as commands do."""
        await self._attached.sync()

    @property
    def _attached(self) -> Attached:
        if self._replica is None:
            raise NotReplicated(
                f"this {type(self).__name__} is not replicated: await node.replicate(obj, name) first"
            )
        return self._replica

    def _call(self, command: Command[Any, Any, Any], /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        if self._applying:
            raise NotReplicated(
                f"{command.name} was called from within a command: a command is carried out as a whole; put "
                "what commands share into a plain method"
            )
        return (self._replica or self._attached).call(command, args, kwargs)


def watch(target: Replicated) -> Watch:
    """What the commands of an object tell (`Replicated.tell`) at this replica, from now on: iterate over it
    with ``async for``. Each who watches gets copies of its own; who leaves too much unread gets `Evicted`.

    Where `Missed` is among it, this replica was away and got the state of another one: what was told
    meanwhile did not come by here, so look at the object."""
    return target._attached.watch()


class Subject:
    """A replicated object as its machine knows it: it carries out commands and has a state."""

    def __init__(self, target: Replicated) -> None:
        """Raises what is wrong with the object."""
        if not isinstance(target, Replicated):
            raise ConfigProblem(
                f"a {type(target).__name__} cannot be replicated: derive its class from ordercast.Replicated"
            )
        unknown = sorted(vars(target).keys() - target._fields.names - {OF_CLASS})
        if unknown:
            raise ConfigProblem(
                f"{type(target).__name__}.{unknown[0]} is no field of its state: annotate it in the class, "
                "as "
                f"in `{unknown[0]}: int`, so that it is replicated"
            )
        missing = sorted(name for name in target._fields.names if not hasattr(target, name))
        if missing:
            raise ConfigProblem(
                f"{type(target).__name__}.{missing[0]} has no value: give it one in __init__, since all "
                "replicas begin with that"
            )
        self.target = target
        self.known = frozenset(each.shape for each in target._commands.values())
        self.fields = target._fields.names
        self.initial = target._fields.begun(target)
        """The state that the object begins with."""
        self._unshared = Fields({})
        """Fields that other replicas may lack: they keep their initial values."""
        self._by_shape = {each.shape: each for each in target._commands.values()}

    @property
    def wake_at_us(self) -> int | None:
        """When `tick` is to be called."""
        return self.target.wake_at_us

    def share(self, fields: frozenset[str]) -> None:
        """These fields count; others stay as they were in the beginning. Raises `Outdated`."""
        lacking = sorted(fields - self.fields)
        if lacking:
            raise Outdated(f"it lacks the field {lacking[0]}, which the others have")
        self._unshared = self.target._fields.only(self.fields - fields)
        self.target._shared = fields & self.fields
        self._undo_unshared()

    def _undo_unshared(self) -> None:
        if self._unshared.names:
            self._unshared.taking().finish(self.initial, self.target)

    def run(self, turn: Turn, run: Run) -> list[bytes]:
        """Carry out calls of a command, whose positions follow that of the turn; their outcomes, each encoded
        at once (`ordercast.replicated.outcome`)."""
        command, target, outcomes = self._by_shape[run.shape], self.target, list[bytes]()
        form = command.form(type(target))
        function, unshared = form.callee(command.function), bool(self._unshared.names)
        target._turn, target._applying = turn, True
        try:
            for arguments in form.calls(run.calls):
                turn.position += 1
                turn.number += 1
                try:
                    if type(arguments) is not tuple:
                        raise arguments  # type: ignore[misc]
                    result = function(target, *arguments)
                    outcomes.append(NOTHING if result is None else succeeded(result))
                except (MemoryError, RecursionError):
                    raise  # who runs out of something does so alone, and is not like the others any more
                except Exception as error:  # noqa: BLE001 - of the application: it is what comes of the command
                    outcomes.append(failed(error))
                if unshared:
                    self._undo_unshared()
        finally:
            target._applying = False
        return outcomes

    @property
    def why_not_merged(self) -> str:
        """Why histories of such an object cannot be merged; empty: they can."""
        kind = type(self.target)
        if inspect.isfunction(getattr(kind, "merge", None)):
            return ""
        return (
            f"{kind.__name__} says nothing of how histories are merged: give it a plain method "
            "merge(self, others), which makes one state of those of several partitions, or replicate it in a "
            "primary partition"
        )

    def copy(self) -> Replicated:
        """An object of the same class whose state can be replaced; it is no replica."""
        copied = copy(self.target)
        copied._replica = None
        return copied

    def merge(self, turn: Turn, states: Sequence[Replicated]) -> None:
        """Make one state of several, which are objects of the class, and take it."""
        first, *others = states
        due = [each.wake_at_us for each in states if each.wake_at_us is not None]
        first.wake_at_us = min(due, default=None)
        first._turn, first._applying = turn, True
        first.merge(others)  # type: ignore[attr-defined]
        for name in self.target._fields.names:
            setattr(self.target, name, getattr(first, name))
        self.target._turn = turn

    def left(self, turn: Turn, process: Process) -> None:
        """A replica is no longer there."""
        self._do(turn, "left", lambda: self.target.left(process))

    def tick(self, turn: Turn) -> None:
        """The time that the object waits for has come."""
        self.target.wake_at_us = None
        self._do(turn, "tick", self.target.tick)

    def _do(self, turn: Turn, name: str, what: Callable[[], Any]) -> None:
        target = self.target
        target._turn, target._applying = turn, True
        try:
            what()
        except (MemoryError, RecursionError):
            raise  # as in a command
        except Exception as error:  # of the application: it happens at all replicas alike
            called = f"{type(target).__name__}.{name}"
            LOG.error("%s raised %r, at every replica", called, error, exc_info=error)
            if target._replica is not None:
                target._replica.raised(called, error)
        finally:
            target._applying = False
            self._undo_unshared()

    def attach(self, replica: Attached) -> Self:
        """The object is replicated from now on. What is in its fields is its own: what it was made of may be
        an attribute of the class, or something that others change."""
        self.target._fields.renew(self.initial, self.target)
        self.target._replica = replica
        return self

"""A task that writes rows into a group through any of its nodes, each once over retries and restarts.

`ordercast.groups.producing` has what is said. Rows stay here until the group has delivered them and a node
has them in its log; when a node goes, another one says how far the group is, and the rest is sent there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import msgspec

from ordercast.core.wire import UNREADABLE
from ordercast.errors import LogError, OrdercastError, Unreachable
from ordercast.streaming.backlog import Backlog
from ordercast.streaming.options import Access

CHUNK = 64 * 1024
"""Bytes of rows that are sent together."""
WINDOW = 4 * 1024 * 1024
"""Bytes of rows that are on their way at most."""
FIND_NODE_TIMEOUT_S = 30.0
"""How long a task looks for a node that serves it."""
SILENCE_S = 15.0
"""A node that says nothing for so long while rows are on their way is given up."""
AGAIN_S = 0.1
LARGEST = 8 * 1024 * 1024 - 4096
"""Bytes of a row that a node takes over a line at most; what a group carries may be less."""
_LASTING = ("MessageTooLarge", "ConfigProblem", "LogError")
"""Errors of a node that no other node would not have."""


class Superseded(OrdercastError):
    """Another attempt of the task has taken over; this one has nothing more to do."""


class Refused(OrdercastError):
    """The group does not take what a task or a job says, and will not later."""


class Task(NamedTuple):
    """The task of a Spark job that writes rows."""

    group: str
    producer: bytes
    """The same whenever the task is tried again, or its query is started again."""
    batch: int
    run: bytes
    attempt: int
    """Rises within a run."""
    anew: bool = False
    """Write though the group does not know the batches before this one."""
    headed: bool = False
    """Whether each row begins with its head: key, headers and the like (`core.headers`)."""


Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class NodeReply(msgspec.Struct):
    """What a node says to a task or a job."""

    outcome: str = ""
    kept: Count | None = None
    """How many rows of the task were delivered and are in the node's log."""
    batches: Count = 0
    """How many batches of the job the node knows, where that is too few."""
    most: Count = 0
    """How many producers the node remembers at most."""
    error: str = ""
    """The name of one of our errors."""
    message: str = "it said something that is not understood"


class TaskStart(msgspec.Struct):
    """The rest of what it says where it takes a task: how far that task is, and who may go on with it."""

    rows: Count
    checksum: Count
    fence: Count


_Form = TypeVar("_Form", NodeReply, TaskStart)


def _read(said: dict[str, Any], form: type[_Form]) -> _Form:
    """What a node said, if a node could have; else it is as one that is not there."""
    try:
        return msgspec.convert(said, form)
    except UNREADABLE as error:
        raise Unreachable("it said something that is not understood") from error


class Connection(Protocol):
    """A connection to a node's log service."""

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send a frame: a header, and a body behind it."""

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """What the node says next; None if it says nothing for so long."""

    def close(self) -> None:
        """Close the socket."""


class Producer:
    """Writes the rows of one task. With ``with``; `finish` says that all of them are delivered."""

    def __init__(
        self,
        connect: Callable[[str], Connection],
        access: Access,
        task: Task,
        first: int = 0,
        connect_s: float | None = None,
    ) -> None:
        """`first`: which of the nodes is tried first. `connect_s`: how long, before any has served it, unless
        `FIND_NODE_TIMEOUT_S`."""
        nodes = access.nodes
        self._nodes = [*nodes[first % len(nodes) :], *nodes[: first % len(nodes)]]
        self._connect = connect
        self._task = task
        self._connect_s = connect_s
        self._served = False
        self._connection: Connection | None = None
        self._rows = Backlog()
        self._next = 0
        """The row that is sent next."""
        self._fence = 0
        self._whole = False
        """The whole batch was delivered some time ago."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    # --- rows -----------------------------------------------------------------------------------

    def write(self, rows: list[bytes]) -> None:
        """Rows, behind all others. Waits while too many are on their way."""
        longest = max(map(len, rows), default=0)
        if longest > LARGEST:
            raise Refused(f"a row of {longest:,} bytes is too large: at most {LARGEST:,} can be written")
        self._rows.add(rows)
        while not self._whole and self._rows.size and (self._is_to_send or self._rows.size > WINDOW):
            self._go_on()

    def finish(self) -> tuple[int, int]:
        """Wait until all are delivered and kept; how many there were, and how many were new."""
        self._rows.end()
        while not self._whole and self._rows.known < self._rows.total:
            self._go_on()
        return self._rows.total, 0 if self._whole else self._rows.total - (self._rows.skipped or 0)

    @property
    def _is_to_send(self) -> bool:
        return self._connection is None or self._next < self._rows.total

    # --- the line -------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Send some rows, or wait for an answer; where the node has gone, find another."""
        try:
            connection = self._connection or self._begin()
            if self._next < self._rows.total and not self._whole:
                rows = self._rows.between(self._next, CHUNK)
                connection.send({"rows": self._next, "fence": self._fence}, msgspec.msgpack.encode(rows))
                self._next += len(rows)
                said = connection.receive(0.0)
            elif self._whole or self._rows.known >= self._rows.total:
                return
            else:
                said = connection.receive(SILENCE_S)
                if said is None:
                    raise Unreachable(f"it said nothing for {SILENCE_S:g} s")
            while said is not None:
                self._hear(said)
                said = connection.receive(0.0)
        except Unreachable:
            self._drop()
            self._nodes.append(self._nodes.pop(0))

    def _hear(self, header: dict[str, Any]) -> None:
        said = _read(header, NodeReply)
        if said.kept is not None:
            self._rows.keep(said.kept)
            return
        match said.outcome:
            case "":
                raise (Refused if said.error in _LASTING else Unreachable)(said.message)
            case "taken":
                taken = _read(header, TaskStart)
                self._fence, self._next = taken.fence, taken.rows
                self._rows.resume(taken.rows, taken.checksum)
            case "before":
                self._whole = True
            case "unknown":
                raise Refused(_unknown(self._task, said.batches))
            case "full":
                raise Refused(_full(self._task.group, said.most))
            case _:
                raise Superseded(
                    "another attempt of this task has taken over, and writes its rows: nothing is lost, and "
                    "nothing is to be done"
                )

    def _begin(self) -> Connection:
        """Find a node that serves this task."""
        patience = None if self._served else self._connect_s
        until = time.monotonic() + (FIND_NODE_TIMEOUT_S if patience is None else patience)
        reasons: dict[str, str] = {}
        while True:
            for _ in range(len(self._nodes)):
                where = self._nodes[0]
                try:
                    return self._begin_at(where)
                except LogError as error:
                    self._drop()
                    reasons[where] = str(error)
                    self._nodes.append(self._nodes.pop(0))
            if time.monotonic() > until:
                several = "\n".join(f"- {where}: {reason}" for where, reason in reasons.items())
                raise LogError(f"no node takes rows for the group {self._task.group}:\n{several}")
            time.sleep(AGAIN_S)

    def _begin_at(self, where: str) -> Connection:
        connection = self._connection = self._connect(where)
        connection.send({"op": "produce", **self._task._asdict()})
        said = connection.receive(SILENCE_S)
        if said is None:
            raise Unreachable(f"it did not answer for {SILENCE_S:g} s")
        self._hear(said)
        self._served = True
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def check_reachable(connect: Callable[[str], Connection], access: Access, connect_s: float) -> None:
    """Raise `Unreachable`, with a sentence of each, if no node can be connected to for so many seconds."""
    until = time.monotonic() + connect_s
    while True:
        reasons: dict[str, str] = {}
        for where in access.nodes:
            try:
                connect(where).close()
            except Unreachable as error:
                reasons[where] = str(error)
            else:
                return
        if time.monotonic() > until:
            several = "\n".join(f"- {where}: {reason}" for where, reason in reasons.items())
            raise Unreachable(f"no node that nodes names can be reached:\n{several}")
        time.sleep(AGAIN_S)


def commit(
    connect: Callable[[str], Connection], access: Access, group: str, job: bytes, batch: int, *, done: bool
) -> None:
    """Tell the group that all tasks of a batch are done, so that it need not remember them any more.

    `done`: and that no batch comes after it.
    """
    until = time.monotonic() + FIND_NODE_TIMEOUT_S
    reasons: dict[str, str] = {}
    while True:
        for where in access.nodes:
            try:
                said = _told(connect, where, {"op": "commit", "job": job, "batch": batch, "done": done})
            except LogError as error:
                reasons[where] = str(error)
                continue
            if said.outcome == "taken":
                return
            if said.outcome == "full":
                raise Refused(_full(group, 0))
            reasons[where] = said.message
            if said.error in _LASTING:
                raise Refused(said.message)
        if time.monotonic() > until:
            several = "\n".join(f"- {where}: {reason}" for where, reason in reasons.items())
            raise LogError(f"no node of the group {group} takes the commit of batch {batch}:\n{several}")
        time.sleep(AGAIN_S)


def _told(connect: Callable[[str], Connection], where: str, request: dict[str, Any]) -> NodeReply:
    connection = connect(where)
    try:
        connection.send(request)
        said = connection.receive(SILENCE_S)
    finally:
        connection.close()
    if said is None:
        raise Unreachable(f"it did not answer for {SILENCE_S:g} s")
    return _read(said, NodeReply)


def _unknown(task: Task, batches: int) -> str:
    known = f"only {batches} batches of this query" if batches else "nothing of this query"
    return (
        f"the group {task.group} knows {known}, and is to take batch {task.batch}: whether rows of it were "
        "delivered before cannot be told. A group forgets a query after a week, or when all its logs are "
        "lost, and knows none whose checkpoint was made with another group or an earlier version. If rows "
        'may come twice, write once with option("acceptUnknown", "true"); else begin with a new checkpoint'
    )


def _full(group: str, most: int) -> str:
    return (
        f"the group {group} remembers {f'{most:,}' if most else 'too many'} producers, and has no room for "
        "another: write with fewer partitions (df.coalesce(n)), or wait until other jobs are done; "
        "what a job left that ended without a word is forgotten after a week"
    )

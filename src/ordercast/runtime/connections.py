"""Stream connections of a node: how many there may be, from whom, for how long, and what memory they take.

Log service, metrics and control socket accept through a `Listener`, which counts in `Connections`. There,

- a connection is *unproven* until its client has shown that it may be here (a frame sealed with the group
  key; without a key, a sound request). Unproven clients have `HANDSHAKE_S` for that;
- when there are too many, of one address or in all, the oldest unproven connection goes, then the one that
  has done nothing for longest; a crowd of silent connections pushes out itself, not those who are served;
- the limit leaves `RESERVE` descriptors of the process to the node, which opens files when members change;
- large frames, in either direction, share `MOST_BYTES` of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from ordercast.errors import AddressProblem, ConfigProblem
from ordercast.transport.address import format_address, source_of

LOG = logging.getLogger("ordercast")

MOST = 512
"""Connections of a node to its log and its metrics, where it may have enough descriptors."""
LEAST = 8
"""With fewer, a node with a log or metrics does not start."""
RESERVE = 64
"""Descriptors that connections leave to the node and its application."""
WANTED = 1024
"""A lower soft limit of descriptors is raised to this, where the hard limit allows; `select` can do it."""
HANDSHAKE_S = 5.0
"""How long a client may take until it is proven."""
IDLE_S = 600.0
"""A proven client that says and takes nothing for so long is cut off."""
SPARED_S = 1.0
"""A proven client that said or took something within this time keeps its place when there are too many."""
STALLED_S = 3.0
"""A client that takes none of its frames for so long is cut off if others wait for the memory."""
MOST_BYTES = 256 * 1024 * 1024
"""Memory for the frames of all connections."""
BACKLOG = 128
ACCEPTS_A_TURN = 16
"""Connections accepted before the event loop has its turn again."""
CROWDED_S = 0.01
"""How long a listener rests after so many, while more than half of the places are taken."""
PAUSE_S = 0.1
"""How long a listener waits where the system has no descriptor or memory for another connection."""
READ_BUFFER, WRITE_BUFFER = 64 * 1024, 256 * 1024
"""Bytes that wait for a connection's reader, and on their way to its client, beside those in the kernel."""


class Connection:
    """One client of a listener."""

    __slots__ = ("ended", "held", "key_id", "proven", "source", "task", "touched", "transport")

    def __init__(self, source: str, now: float) -> None:
        self.source = source
        """The address it comes from: that of a host, or the network of an IPv6 host."""
        self.touched = now
        """When it last said or took something."""
        self.proven = False
        self.key_id: int | None = None
        """The group key that it was opened with; it ends when that key is no longer one of the group's."""
        self.held = 0
        """Bytes of memory that its frames take."""
        self.ended = ""
        """Why it was ended by this node; empty if it was not."""
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.WriteTransport | None = None

    def end(self, why: str) -> None:
        """Cut it off, with whatever is on its way."""
        if not self.ended:
            self.ended = why
            if self.transport is not None:
                self.transport.abort()
            if self.task is not None:
                self.task.cancel()


class Connections:
    """The connections of a node, over all listeners that share a limit."""

    def __init__(
        self,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
        *,
        spares_idle: bool = False,
    ) -> None:
        """With `spares_idle`, a client that is proven keeps its place though it does nothing for long."""
        self.most = most
        self.most_of_one = most if spares_idle else max(1, most * 3 // 4)
        """The most connections of one source."""
        self.most_proven = max(1, most * 3 // 4)
        """The others are for those who have yet to prove themselves."""
        self.drops: Counter[str] = Counter()
        """Connections that were refused or ended because of a limit, by reason."""
        self._open: dict[Connection, None] = {}
        """All that have a descriptor, in the order in which they came."""
        self._by_source: Counter[str] = Counter()
        self._proven = 0
        self._most_bytes = most_bytes
        self._held = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._clock = clock
        self._spares_idle = spares_idle
        self._freed: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._open)

    # --- places ---------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether there is no descriptor for another one; those that are being closed still have theirs."""
        return len(self._open) >= self.most

    @property
    def crowded(self) -> bool:
        """Whether more than half of the places are taken."""
        return 2 * len(self._open) > self.most

    def make_room(self, source: str | None = None) -> bool:
        """End some that are worth least, of one source or of all; whether there were any."""
        going = sum(1 for one in self._open if one.ended)
        some = 1 if source is not None else max(1, min(ACCEPTS_A_TURN, self.most // 4) - going)
        found = self._least_worth(source, some)
        for one in found:
            one.end("too many connections")
        return bool(found) or (source is None and going > 0)

    def _least_worth(self, source: str | None, count: int) -> list[Connection]:
        there = [one for one in self._open if not one.ended and source in (None, one.source)]
        found = [one for one in there if not one.proven][:count]
        if not found and not self._spares_idle:
            idle = [one for one in there if self._clock() - one.touched >= SPARED_S]
            found = sorted(idle, key=lambda one: one.touched)[:1]
        return found

    def admit(self, source: str) -> Connection | None:
        """Count another one in; None if its source has too many already, all of them at work."""
        if self._by_source[source] >= self.most_of_one and not self.make_room(source):
            self.drops["too many connections"] += 1
            return None
        connection = Connection(source, self._clock())
        self._open[connection] = None
        self._by_source[source] += 1
        return connection

    @property
    def busy(self) -> bool:
        """Whether there is no place for another client that proves itself: all are served, none is idle."""
        return self._proven >= self.most_proven and self._longest_idle() is None

    def _longest_idle(self) -> Connection | None:
        if self._spares_idle:
            return None
        there = [one for one in self._open if one.proven and not one.ended]
        longest = min(there, key=lambda one: one.touched, default=None)
        return None if longest is None or self._clock() - longest.touched < SPARED_S else longest

    def prove(self, connection: Connection) -> bool:
        """Record that a connection's client has a right to be served; False if there is no place for it."""
        if not connection.proven:
            if self._proven >= self.most_proven:
                idle = self._longest_idle()
                if idle is None:
                    self.drops["busy"] += 1
                    return False
                idle.end("too many connections")
            connection.proven = True
            self._proven += 1
        connection.touched = self._clock()
        return True

    def touch(self, connection: Connection) -> None:
        """Record that the client of a connection sent or received something just now."""
        connection.touched = self._clock()

    def closed(self, connection: Connection) -> None:
        """Forget a connection whose descriptor is closed."""
        if connection in self._open:
            del self._open[connection]
            self._proven -= connection.proven
            self._by_source[connection.source] -= 1
            if not self._by_source[connection.source]:
                del self._by_source[connection.source]
            if connection.ended:
                self.drops[connection.ended] += 1
        freed, self._freed = self._freed, []
        for resume in freed:
            resume()

    def when_freed(self, resume: Callable[[], None]) -> None:
        """Have this called once a descriptor was given back."""
        self._freed.append(resume)

    def end_of_other_keys(self, ids: Iterable[int]) -> None:
        """End those that were opened with a key that is none of these."""
        known = frozenset(ids)
        for one in list(self._open):
            if one.key_id is not None and one.key_id not in known:
                one.end("the key was pruned")

    # --- memory ---------------------------------------------------------------------------------

    async def take(self, connection: Connection, size: int) -> None:
        """Wait for so many bytes, in turn. Who takes none of its frames for long goes, since others wait."""
        first = True
        while (first and self._waiting) or (self._held and self._held + size > self._most_bytes):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            (self._waiting.append if first else self._waiting.appendleft)(turn)
            first = False
            self._end_stalled(connection)
            try:
                await asyncio.wait((turn,), timeout=STALLED_S / 3)
            finally:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(turn)
        self._held += size
        connection.held += size
        self._wake()  # what is left may be enough for the next

    def try_take(self, connection: Connection, size: int) -> bool:
        """Take so many bytes if nobody waits and half of the memory is free."""
        if self._waiting or self._held + size > self._most_bytes // 2:
            return False
        self._held += size
        connection.held += size
        return True

    def give(self, connection: Connection, size: int) -> None:
        """Give so many bytes back."""
        self._held -= size
        connection.held -= size
        self._wake()

    def _wake(self) -> None:
        """Have the one look that has waited for longest."""
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        if self._waiting and self._held < self._most_bytes:
            self._waiting.popleft().set_result(None)

    def _end_stalled(self, but: Connection) -> None:
        now = self._clock()
        for one in list(self._open):
            if one.held and one is not but and now - one.touched >= STALLED_S:
                one.end("stalled")

    def status(self) -> dict[str, Any]:
        """How many there are, and why others are not."""
        return {
            "open": len(self._open),
            "most": self.most,
            "proven": self._proven,
            "bytes": self._held,
            "ended": dict(sorted(self.drops.items())),
        }


Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Connection], Awaitable[None]]
"""Serves one connection, and returns when it is done with it."""


class Listener:
    """A listening socket on the event loop: what comes there is counted, served, and ended."""

    def __init__(
        self, listening: socket.socket, connections: Connections, serve: Serve | None, refusal: bytes = b""
    ) -> None:
        """`listening` is bound; it is this listener's from now on. Who is refused gets the `refusal`."""
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._socket = listening
        self._connections = connections
        self._serve = serve
        self._refusal = refusal
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], Connection] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False
        self._resume()

    @property
    def address(self) -> Any:
        """Where it listens, as the system says it."""
        return self._socket.getsockname()

    def __len__(self) -> int:
        return len(self._tasks)

    def _resume(self) -> None:
        self._pause = None
        if not self._closed:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            refused = False
            if self._connections.full:
                if self._connections.make_room():  # goes on when the descriptors were given back
                    self._loop.remove_reader(self._socket.fileno())
                    self._connections.when_freed(self._resume)
                    return
                refused = True
            try:
                line, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno == errno.ECONNABORTED:
                    continue
                # No descriptor or no memory in the whole process or system: trying on would keep it busy.
                self._connections.drops["no descriptor"] += 1
                self._connections.make_room()
                self._rest(PAUSE_S)
                return
            connection = None if refused else self._connections.admit(source_of(address))
            if connection is None:
                self._connections.drops["refused"] += refused
                with contextlib.suppress(OSError):
                    line.send(self._refusal, socket.MSG_DONTWAIT)
                line.close()
            else:
                self._begin(line, connection)
        if self._connections.crowded:
            self._rest(CROWDED_S)

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._pause = self._loop.call_later(seconds, self._resume)

    def _begin(self, line: socket.socket, connection: Connection) -> None:
        line.setblocking(False)
        task = self._loop.create_task(self._run(line, connection))
        connection.task = task
        self._tasks[task] = connection
        task.add_done_callback(lambda _: self._over(task, line, connection))

    async def _run(self, line: socket.socket, connection: Connection) -> None:
        reader = asyncio.StreamReader(limit=READ_BUFFER, loop=self._loop)
        protocol = _Protocol(reader, self._connections, connection)
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, line)
        connection.transport = transport
        transport.set_write_buffer_limits(WRITE_BUFFER)
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        try:
            assert self._serve is not None, "else somebody else runs connections"
            await self._serve(reader, writer, connection)
            async with asyncio.timeout(HANDSHAKE_S):  # what was said last is to arrive
                writer.close()
                await writer.wait_closed()
        except (asyncio.CancelledError, ConnectionError, TimeoutError):
            pass  # ended by this node, by the other side, or by neither for too long
        finally:
            transport.abort()

    def _over(self, task: asyncio.Task[None], line: socket.socket, connection: Connection) -> None:
        del self._tasks[task]
        if connection.transport is None:  # else that closes the socket, and its protocol says when
            line.close()
            self._connections.closed(connection)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._connections.drops["defect"] += 1
            LOG.critical("a connection ends: a defect in ordercast", exc_info=error)

    def refuse(self) -> None:
        """Accept no more."""
        if self._closed:
            return
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    async def close(self) -> None:
        """Accept no more, and end all connections."""
        self.refuse()
        for connection in list(self._tasks.values()):
            connection.end("closing")
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Protocol(asyncio.StreamReaderProtocol):
    """Says when a connection's descriptor was given back."""

    def __init__(
        self, reader: asyncio.StreamReader, connections: Connections, connection: Connection
    ) -> None:
        super().__init__(reader, loop=asyncio.get_running_loop())
        self._counted = connections, connection

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        connections, connection = self._counted
        asyncio.get_running_loop().call_soon(
            connections.closed, connection
        )  # the socket is closed behind this


async def bound(host: str, port: int, what: str, advice: str) -> socket.socket:
    """A socket that is bound, for a `Listener`.

    Raises `AddressProblem`, that `what` cannot be served there, with the `advice`, if it cannot be had.
    """
    try:
        return await asyncio.to_thread(_bound, host, port)
    except OSError as error:
        where = format_address(host, port)
        raise AddressProblem(
            f"{what} cannot be served at {where}: {error.strerror or error}; {advice}"
        ) from error


def _bound(host: str, port: int) -> socket.socket:
    family, kind, proto, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def allowance(serves: bool = True, clients: int = 0) -> int:
    """How many connections a node that `serves` log or metrics has descriptors for; raises if too few.

    A soft limit below `WANTED`, and so many more for `clients`, is raised as far as the hard one allows.
    """
    if not serves and not clients:
        return LEAST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST
    wanted = WANTED + clients if hard == resource.RLIM_INFINITY else min(WANTED + clients, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    used = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else RESERVE
    spare = soft - used - RESERVE - clients
    if spare < LEAST:
        raise ConfigProblem(
            f"this process may have {soft} files and sockets open and has {used}: a node that serves a log, "
            f"metrics or {clients} clients needs {used + RESERVE + LEAST + clients}; raise the limit with "
            f"`ulimit -n {WANTED + clients}`, allow fewer clients (client_connections), or leave them out"
        )
    return min(MOST, spare)

"""Keeps a client connected: to one of its servers at a time, over fail-overs, with all its subscriptions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from ordercast.client import wire
from ordercast.client.connection import Connection, Login, Lost
from ordercast.client.environment import Environment
from ordercast.client.parser import Delivered, Info, Ok, Ping, Pong, Refusal
from ordercast.client.servers import Server, ServerPool
from ordercast.errors import AccessDenied, ClientClosed, MessageTooLarge, NotConnected, OrdercastError

PING_S = 10.0
"""A server is asked as often whether it is still there; one that owes two answers is left."""
CONNECT_S = 2.0
"""How long one server may take to let a client in, before the next one is tried."""

NOT_PUBLISHED = "Permissions Violation for Publish"
"""So begins what a server says that does not send a message on, and goes on serving the client."""

_LOG = logging.getLogger(__name__)
Handler = Callable[[Delivered], None]


class _Wanted(NamedTuple):
    """A subscription, which every new server is told of."""

    subject: str
    queue: str
    handler: Handler


class Link:
    """The connection of a client, whichever it is at the moment."""

    def __init__(
        self,
        pool: ServerPool,
        login: Login,
        give_up_s: float | None,
        ping_s: float,
        environment: Environment,
    ) -> None:
        self._pool = pool
        self._environment = environment
        self._login = login
        self._give_up_s = give_up_s
        self._ping_s = ping_s
        self._connection: Connection | None = None
        self._ready: asyncio.Future[Connection] | None = None
        self._ended: OrdercastError | None = ClientClosed(
            "the client is not started: use `async with Client(…) as client`"
        )
        self._keeping: asyncio.Task[None] | None = None
        self._wanted: dict[int, _Wanted] = {}
        self._last_sid = 0
        self._pongs: deque[asyncio.Future[None]] = deque()
        self._inbox = f"_INBOX.{environment.chance.getrandbits(88):022x}"
        self._answers: dict[str, asyncio.Future[Delivered]] = {}
        self._last_answer = 0
        self._answering = False
        self._refusal = ""
        """Why a message was not sent on, if that has not been told yet."""
        self.on_connected: list[Callable[[], None]] = []
        """Called with every new connection, after the server was told of the subscriptions."""
        self.on_ended: list[Callable[[OrdercastError], None]] = []
        """Called once: there will be no further connection, and why."""
        self.connections = 0
        """How many connections there were."""

    # --- life -----------------------------------------------------------------------------------

    async def start(self, timeout: float) -> None:
        """Make the first connection. Raises `NotConnected` or `AccessDenied`."""
        if self._keeping is not None:
            raise ClientClosed("this client was started before: make a new Client")
        self._ended = None
        self._ready = asyncio.get_running_loop().create_future()
        first = await self._connect(None, timeout)
        self._attach(first)
        self._keeping = asyncio.create_task(self._keep(first), name="ordercast-client")

    async def stop(self) -> None:
        """Say what waits to be said, and close the connection. Stopping again does nothing."""
        if self._keeping is None or self._ended is not None:
            return
        if self._connection is not None:
            with suppress(Lost, TimeoutError):
                async with asyncio.timeout(CONNECT_S):
                    await self.flush()
        self._end(ClientClosed("the client was closed: make a new Client to go on"))
        if self._connection is not None:
            self._connection.close()
        self._keeping.cancel()
        with suppress(asyncio.CancelledError):
            await self._keeping

    async def _keep(self, connection: Connection) -> None:
        while True:
            pinging = asyncio.create_task(self._ping(connection))
            try:
                async for events in connection.events():
                    self._handle(connection, events)
            except Lost as lost:
                self._detach(lost)
            finally:
                pinging.cancel()
                connection.abort()
            try:
                connection = await self._connect(connection.server, self._give_up_s)
            except (NotConnected, AccessDenied) as error:
                self._end(error)
                return
            self._attach(connection)

    async def _connect(self, last: Server | None, timeout: float | None) -> Connection:
        """The first server that lets this client in, within so many seconds."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        failures: dict[str, Exception] = {}
        for server, wait in self._pool.attempts(last):
            left = CONNECT_S if deadline is None else deadline - loop.time()
            if left <= wait:
                break
            await asyncio.sleep(wait)
            try:
                return await Connection.open(server, self._login, min(CONNECT_S, left), self._environment)
            except (Lost, AccessDenied) as error:
                if left >= CONNECT_S or server.address not in failures:  # else it had too little time
                    failures[server.address] = error
            denied = [error for error in failures.values() if isinstance(error, AccessDenied)]
            if len(denied) == len(self._pool.known):
                raise denied[0]
        told = "; ".join(map(str, failures.values())) or "none answers"
        raise NotConnected(
            f"no node lets this client in within {timeout:g} s: {told}. See that a node runs there with "
            'clients = "HOST:PORT", and may be reached'
        )

    def _attach(self, connection: Connection) -> None:
        self._connection = connection
        self.connections += 1
        self._pool.learn(connection.info.get("connect_urls") or (), connection.server)
        for sid, wanted in self._wanted.items():
            connection.write(wire.subscribe(sid, wanted.subject, wanted.queue))
        assert self._ready is not None
        if not self._ready.done():
            self._ready.set_result(connection)
        for call in self.on_connected:
            call()

    def _detach(self, lost: Lost) -> None:
        _LOG.info("connection lost: %s", lost)
        self._connection = None
        self._ready = asyncio.get_running_loop().create_future()
        self._fail(lost)

    def _end(self, error: OrdercastError) -> None:
        self._ended = error
        self._fail(error)
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # whether or not somebody waits for it
        for call in self.on_ended:
            call(error)

    def _fail(self, error: Exception) -> None:
        """Nobody will answer what was asked over the connection that is gone."""
        waiting: list[asyncio.Future[Any]] = [*self._pongs, *self._answers.values()]
        self._pongs.clear()
        self._answers.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()

    async def _ping(self, connection: Connection) -> None:
        """Abort the connection when its server does not answer."""
        while True:
            await asyncio.sleep(self._ping_s)
            answered, _ = await asyncio.wait([self._pong(connection)], timeout=self._ping_s)
            if not answered:
                connection.abort()
                return

    def _pong(self, connection: Connection) -> asyncio.Future[None]:
        """Asks the server for a sign, which comes behind all that it has to say before."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pongs.append(future)
        connection.write(b"PING\r\n")
        return future

    # --- what servers say -----------------------------------------------------------------------

    def _handle(self, connection: Connection, events: list[Any]) -> None:
        for event in events:
            match event:
                case Delivered(sid):
                    wanted = self._wanted.get(sid)
                    if wanted is not None:
                        wanted.handler(event)
                case Ping():
                    connection.write(b"PONG\r\n")
                case Pong():
                    if self._pongs:
                        future = self._pongs.popleft()
                        if not future.done():
                            future.set_result(None)
                case Info(fields):
                    connection.info = fields
                    self._pool.learn(fields.get("connect_urls") or (), connection.server)
                    if fields.get("ldm") and len(self._pool.known) > 1:
                        connection.close()  # it is about to end: another one takes over
                case Refusal(reason):
                    _LOG.warning("%s: %s", connection.server.address, reason)
                    if reason.startswith(NOT_PUBLISHED):
                        self._refusal = f"{connection.server.address}: {reason}"
                        if len(self._pool.known) > 1:
                            connection.close()  # another one may take what is sent next
                case Ok():
                    pass

    # --- what is said ---------------------------------------------------------------------------

    @property
    def connection(self) -> Connection | None:
        """The connection there is; None between two. Raises once there will be no other."""
        if self._ended is not None:
            raise self._ended
        return self._connection

    async def connected(self) -> Connection:
        """The connection there is, or else the next one."""
        connection = self.connection
        if connection is None:
            assert self._ready is not None
            connection = await asyncio.shield(self._ready)
        return connection

    async def write(self, line: bytes) -> None:
        """Say it: over this connection, or the next one. It may get lost with the connection."""
        connection = self.connection or await self.connected()
        connection.write(line)
        if connection.full:
            with suppress(Lost):
                await connection.drain()

    def check_size(self, payload: bytes) -> None:
        """Raises `MessageTooLarge` if the server does not take it."""
        connection = self.connection
        most = None if connection is None else connection.info.get("max_payload")
        if isinstance(most, int) and len(payload) > most:
            raise MessageTooLarge(
                f"a message of {len(payload):,} bytes is too large: this node takes {most:,}; split it"
            )

    async def flush(self) -> None:
        """Wait until the server has handled all that was said so far. Raises `Lost`."""
        await self._pong(await self.connected())

    def take_refusal(self) -> str:
        """Why a message was not sent on since this was asked last; empty if none was."""
        refusal, self._refusal = self._refusal, ""
        return refusal

    def subscribe(self, subject: str, handler: Handler, queue: str = "") -> int:
        """Have the handler called with what is sent to the subject, from this connection on."""
        self._last_sid += 1
        self._wanted[self._last_sid] = _Wanted(subject, queue, handler)
        if self._connection is not None:
            self._connection.write(wire.subscribe(self._last_sid, subject, queue))
        return self._last_sid

    def unsubscribe(self, sid: int) -> None:
        """End a subscription: its handler is not called any more."""
        if self._wanted.pop(sid, None) is not None and self._connection is not None:
            self._connection.write(wire.unsubscribe(sid))

    @property
    def known_servers(self) -> int:
        """How many servers there are to go to."""
        return len(self._pool.known)

    def move_on(self) -> None:
        """Go to another server, if there is one: this one lacks what is wanted."""
        if self._connection is not None and len(self._pool.known) > 1:
            self._connection.close()

    def new_inbox(self) -> str:
        """A subject that nobody else has."""
        self._last_answer += 1
        return f"{self._inbox}-{self._last_answer}"

    async def request(self, subject: str, payload: bytes, headers: bytes = b"") -> Delivered:
        """The first answer. Raises `Lost` if the connection ends before it."""
        connection = await self.connected()
        if not self._answering:
            self._answering = True
            self.subscribe(f"{self._inbox}.*", self._on_answer)
        self._last_answer += 1
        reply = f"{self._inbox}.{self._last_answer}"
        future: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()
        self._answers[reply] = future
        try:
            connection.write(wire.publish(subject, payload, reply, headers))
            if connection.full:
                await connection.drain()
            return await future
        finally:
            self._answers.pop(reply, None)

    def _on_answer(self, delivered: Delivered) -> None:
        future = self._answers.pop(delivered.subject, None)
        if future is not None and not future.done():
            future.set_result(delivered)

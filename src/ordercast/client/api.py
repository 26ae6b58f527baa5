"""What an application uses: a `Client`, which sends to groups and receives from them, and is no member.

`ordercast.threads` has the same with calls that block.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, overload

from ordercast.client import wire
from ordercast.client.connection import Login, Lost
from ordercast.client.environment import Environment, system
from ordercast.client.events import Acknowledged, Message
from ordercast.client.link import PING_S, Link
from ordercast.client.log_reader import RETRY_S, LogReader, find_stream
from ordercast.client.parser import Delivered
from ordercast.client.servers import ServerPool, parse_servers
from ordercast.client.subscription import Inbox, Subscription
from ordercast.errors import (
    AccessDenied,
    ConfigProblem,
    NoResponders,
    NotAcknowledged,
    NotConnected,
    OrdercastError,
    RequestTimeout,
    SendTimeout,
)

MOST_UNACKNOWLEDGED = 1_024
"""Safe messages that may wait for their acknowledgement at once; further ones wait to be sent."""
AGAIN_S = 2.0
"""A safe message that is not acknowledged for so long is sent again."""
MOST_STREAMS = 1_024
"""Groups of which it is remembered which stream keeps them."""
EXPECTED_STREAM = "Nats-Expected-Stream"
MESSAGE_ID = "Nats-Msg-Id"
_HOW_TO_KEEP = (
    "give its nodes log = DIR and client_stream = [GROUP] (of a nats-server: add a stream with this subject)"
)


class Client:
    """A client of one node at a time, which goes over to another one when that ends.

    Start it with ``async with``, or with `start` and `stop`.
    """

    def __init__(
        self,
        servers: str | Sequence[str] = "127.0.0.1:4222",
        *,
        user: str = "",
        password: str = "",
        token: str = "",
        tls: ssl.SSLContext | str | Path | None = None,
        name: str = "",
        session: str | None = None,
        number: int = 1,
        connect_timeout: float = 10.0,
        give_up_after: float | None = None,
        ping_interval: float = PING_S,
        environment: Environment | None = None,
    ) -> None:
        """``servers``: addresses of nodes that serve clients, as in ``"10.0.0.1:4222,10.0.0.2:4222"``; other
        nodes of their group, of which they tell, are used as well. ``user`` and ``password``, or ``token``,
        as the nodes want them. ``tls``: an SSL context, or the file with the certificate of their signer.

        ``session``: a name for this sender that outlives the process. Safe messages are numbered from
        ``number`` on; one that is sent again with its session and number is acknowledged, and delivered once.

        ``connect_timeout``: seconds to reach the first node. ``give_up_after``: seconds without any node
        after which everything fails with `NotConnected`; None: never. ``ping_interval``: seconds after which
        a node that says nothing is asked whether it is there. ``environment``: the world around the client,
        where that is not the system's (`ordercast.testing`).
        """
        if session is not None and not (session and session.isprintable() and " " not in session):
            raise ConfigProblem(f"{session!r} is no name of a session: letters and digits, without spaces")
        if number < 1:
            raise ConfigProblem(f"number is {number}: the first message of a session is number 1")
        if token and user:
            raise ConfigProblem("user and token are both given: a node wants one of them")
        if ping_interval <= 0 or connect_timeout <= 0:
            raise ConfigProblem("ping_interval and connect_timeout are in seconds, more than 0")
        environment = system() if environment is None else environment
        pool = ServerPool(parse_servers(servers), environment.chance)
        login = Login(name, user, password, token, _context(tls))
        self._link = Link(pool, login, give_up_after, ping_interval, environment)
        self._link.on_ended.append(self._on_ended)
        self._connect_timeout = connect_timeout
        self.session = session
        self._session = session or f"client-{environment.chance.getrandbits(64):016x}"
        self._number = number
        self._streams: dict[str, str] = {}
        self._unacknowledged = asyncio.Semaphore(MOST_UNACKNOWLEDGED)
        self._plain: dict[int, Inbox] = {}

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to a node. Raises `NotConnected` or `AccessDenied`."""
        await self._link.start(self._connect_timeout)

    async def stop(self) -> None:
        """Send what was accepted, and disconnect. Stopping again does nothing."""
        await self._link.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- sending --------------------------------------------------------------------------------

    @overload
    async def send(
        self,
        group: str,
        payload: bytes,
        *,
        safe: Literal[False] = False,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        reply: str = "",
        timeout: float | None = None,
    ) -> None: ...

    @overload
    async def send(
        self,
        group: str,
        payload: bytes,
        *,
        safe: Literal[True],
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        number: int | None = None,
        timeout: float | None = None,
    ) -> Acknowledged: ...

    async def send(
        self,
        group: str,
        payload: bytes,
        *,
        safe: bool = False,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        reply: str = "",
        number: int | None = None,
        timeout: float | None = None,
    ) -> Acknowledged | None:
        """Send a message to a group.

        As a rule it is on its way when this returns, and gets lost if the node ends before it was ordered.
        ``safe``: this returns when it is in the group's log, with its place; it is sent again over
        fail-overs, and delivered once. ``number``: its number in the `session`, where it is not the next one.
        ``timeout``: seconds to wait at most, then `SendTimeout`. ``key`` and ``headers``: texts that go with
        it; the key is the header ``Key``.
        """
        wire.check_group(group)
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise TypeError(f"a message is bytes, not {type(payload).__name__}: encode it first")
        payload = bytes(payload)
        self._link.check_size(payload)
        try:
            if safe:
                return await self._send_safe(group, payload, key, headers, number, timeout)
            line = wire.publish(group, payload, reply, wire.write_headers(headers, key))
            if timeout is None:
                await self._link.write(line)
            else:
                async with asyncio.timeout(timeout):
                    await self._link.write(line)
            return None
        except TimeoutError:
            raise SendTimeout(
                f"a message to {group} was not {'acknowledged' if safe else 'taken'} within {timeout:g} s: "
                + (
                    "it may be in the log or not; send it again with the same session and number"
                    if safe
                    else "no node is connected, or it does not keep up; send it again"
                )
            ) from None

    async def _send_safe(
        self,
        group: str,
        payload: bytes,
        key: str | None,
        headers: Mapping[str, str] | None,
        number: int | None,
        timeout: float | None,
    ) -> Acknowledged:
        if number is None:
            number = self._number
        elif number < 1:
            raise ValueError(f"number is {number}: the first message of a session is number 1")
        self._number = max(self._number, number + 1)
        async with asyncio.timeout(timeout), self._unacknowledged:
            stream = self._streams.get(group) or await self._stream(group)
            if stream is None:
                raise NotAcknowledged(
                    f"no log keeps {group}, so that nothing is acknowledged: {_HOW_TO_KEEP}, or send without "
                    "safe"
                )
            identity = {MESSAGE_ID: f"{self._session}-{number}", EXPECTED_STREAM: stream}
            front = wire.write_headers({**(headers or {}), **identity}, key)
            while True:
                try:
                    async with asyncio.timeout(AGAIN_S):
                        answer = await self._link.request(group, payload, front)
                except TimeoutError:
                    continue
                except Lost:
                    continue  # `request` waits for the next connection
                found = _acknowledged(group, stream, answer)
                if found is not None:
                    return found
                if answer.payload:
                    self._link.move_on()  # this node cannot: it is outside the primary partition
                await asyncio.sleep(RETRY_S)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the node has taken everything that was sent before. Raises `NotConnected` if it ends,
        `NotAcknowledged` if it did not send a message on: it is outside the primary partition."""
        lost: Lost | None = None
        try:
            async with asyncio.timeout(timeout):
                await self._link.flush()
        except Lost as error:
            lost = error
        refusal = self._link.take_refusal()
        if refusal:
            raise NotAcknowledged(f"a message was not sent: {refusal}")
        if lost is not None:
            raise NotConnected(f"{lost}: what was sent last may be lost; send it again")

    @property
    def number(self) -> int:
        """The number of the next safe message."""
        return self._number

    # --- receiving ------------------------------------------------------------------------------

    async def join(
        self,
        group: str,
        *,
        queue: str = "",
        start: int | None = None,
        log: bool | None = None,
        timeout: float | None = None,
    ) -> Subscription:
        """Receive a group's messages from now on: iterate over what this returns.

        ``group`` may be a pattern: `*` stands for a word, `>` for all words behind. ``queue``: each message
        goes to one of those who give this name. ``start``: the place in the log of the first message that is
        wanted. ``log``: whether to read from the log, so that nothing is lost or repeated over fail-overs; it
        is done where there is a log and no queue is named. Requests are answered without. ``timeout``:
        seconds to wait at most.
        """
        wire.check_group(group, pattern=True)
        if queue:
            wire.check_group(queue)
        if queue and (log or start is not None):
            raise ConfigProblem("queue shares out what is sent from now on: leave out log and start")
        if start is not None and (log is False or start < 1):
            raise ConfigProblem(
                f"start is {start}: it is a place in the log, 1 is the first; leave out log=False"
            )
        async with asyncio.timeout(timeout):
            stream = None if queue or log is False else await self._stream(group)
            if stream is not None:
                reader = LogReader(self._link, stream, group)
                await reader.start(start)
                return Subscription(group, reader.inbox, True, reader.stop)
            if log or start is not None:
                raise NotAcknowledged(f"no log keeps {group}: {_HOW_TO_KEEP}, or join without log and start")
            return await self._join_plain(group, queue)

    async def _join_plain(self, group: str, queue: str) -> Subscription:
        inbox = Inbox(group)

        def received(delivered: Delivered) -> None:
            headers = wire.read_headers(delivered.headers)
            message = Message(delivered.payload, delivered.subject, headers.fields, delivered.reply, None)
            if inbox.has_room(message):
                inbox.put(message)
            else:
                inbox.overflow()
                self._leave(sid)

        sid = self._link.subscribe(group, received, queue)
        self._plain[sid] = inbox
        subscription = Subscription(group, inbox, False, lambda: self._leave(sid))
        while True:
            try:
                await self._link.flush()
                return subscription
            except Lost:
                continue  # the next node is told of it, too

    def _leave(self, sid: int) -> None:
        self._plain.pop(sid, None)
        self._link.unsubscribe(sid)

    async def request(
        self,
        group: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 10.0,
    ) -> Message:
        """Send a request to a group, and wait for the first answer.

        Raises `NoResponders` if nobody is there, `RequestTimeout` after ``timeout`` seconds, `NotConnected`
        if the node ends meanwhile: the request may have been handled or not.
        """
        wire.check_group(group)
        self._link.check_size(payload)
        front = wire.write_headers(headers or {})
        try:
            async with asyncio.timeout(timeout):
                answer = await self._link.request(group, payload, front)
        except TimeoutError:
            raise RequestTimeout(
                f"nobody in {group} answered within {timeout:g} s: see whether those who receive there answer"
            ) from None
        except Lost as lost:
            raise NotConnected(
                f"{lost} before {group} answered: ask again if it may be asked twice"
            ) from None
        told = wire.read_headers(answer.headers)
        if told.status == 503 and not answer.payload:
            raise NoResponders(f"nobody receives in {group}: start who is to answer there, and ask again")
        return Message(answer.payload, answer.subject, told.fields, answer.reply, None)

    async def respond(
        self, request: Message, payload: bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer a request that came over a subscription that was joined with ``log=False`` or a queue."""
        if not request.reply:
            raise ValueError(
                f"this message to {request.group} wants no answer: requests come over a subscription that "
                "was joined with log=False, or with a queue"
            )
        await self.send(request.reply, payload, headers=headers)

    # --- looking --------------------------------------------------------------------------------

    @property
    def address(self) -> str | None:
        """The node that it is connected to; None between two of them."""
        connection = self._link.connection
        return None if connection is None else connection.server.address

    @property
    def info(self) -> dict[str, Any]:
        """What that node tells of itself, in the words of NATS; empty between two of them."""
        connection = self._link.connection
        return {} if connection is None else dict(connection.info)

    @property
    def connections(self) -> int:
        """How many connections it has had: one more with each fail-over."""
        return self._link.connections

    async def _stream(self, group: str) -> str | None:
        """The stream that keeps a group's messages."""
        found = await find_stream(self._link, group)
        if found is not None:
            if len(self._streams) >= MOST_STREAMS:
                self._streams.pop(next(iter(self._streams)))
            self._streams[group] = found
        return found

    def _on_ended(self, error: OrdercastError) -> None:
        """There will be no further connection: readers get why, or just end if it was closed here."""
        failed = isinstance(error, NotConnected | AccessDenied)
        for inbox in self._plain.values():
            inbox.end(error if failed else None)


def _acknowledged(group: str, stream: str, answer: Delivered) -> Acknowledged | None:
    """Where a message is in the log; None: the log cannot say now. Raises `NotAcknowledged` if it refuses."""
    if wire.read_headers(answer.headers).status == 503:
        return None
    try:
        found = json.loads(answer.payload)
        error = found.get("error")
        if error is None:
            return Acknowledged(int(found["seq"]), bool(found.get("duplicate")), str(found["stream"]))
        if error.get("code") == 503:
            return None
        why = str(error.get("description"))
    except (ValueError, TypeError, KeyError, AttributeError):
        why = f"somebody else answered {answer.payload[:80]!r}"
    raise NotAcknowledged(f"the log {stream} does not take a message to {group}: {why}")


def _context(tls: ssl.SSLContext | str | Path | None) -> ssl.SSLContext | None:
    if not isinstance(tls, str | Path):
        return tls
    try:
        return ssl.create_default_context(cafile=str(tls))
    except (OSError, ssl.SSLError) as error:
        raise ConfigProblem(f"{tls} cannot be used as a certificate: {error}") from None

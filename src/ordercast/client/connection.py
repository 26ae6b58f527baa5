"""One connection to a server: opened, greeted and logged in; lines out in batches, events in in batches."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from ordercast.client.environment import READ, Environment
from ordercast.client.parser import Event, Info, Malformed, Ok, Parser, Ping, Pong, Refusal
from ordercast.client.servers import Server
from ordercast.errors import AccessDenied

FULL = 256 * 1024
"""Bytes that may wait to be sent before senders have to wait."""


class Login(NamedTuple):
    """How a client introduces itself."""

    name: str
    user: str
    password: str
    token: str
    tls: ssl.SSLContext | None


class Lost(Exception):
    """The connection could not be made, or has ended: another one is needed."""


class Connection:
    """A connection that is logged in."""

    def __init__(
        self,
        server: Server,
        info: dict[str, Any],
        parser: Parser,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.server = server
        self.info = info
        """What the server tells of itself."""
        self._parser = parser
        self._reader = reader
        self._writer = writer
        self._waiting: list[bytes] = []
        self._size = 0
        self._early: list[Event] = []
        """What came together with the answer to the login."""

    @classmethod
    async def open(cls, server: Server, login: Login, timeout: float, environment: Environment) -> Connection:
        """Connect and log in, within so many seconds. Raises `Lost`, or `AccessDenied` by either side."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await environment.open_connection(server)
                parser = Parser()
                info = await _greeting(parser, reader)
                if info.get("tls_required") or server.tls or login.tls is not None:
                    await _encrypt(writer, server, login)
                connection = cls(server, info, parser, reader, writer)
                await connection._log_in(login)
                return connection
        except ssl.SSLCertVerificationError as error:
            _abort(writer)
            raise AccessDenied(
                f"the certificate of {server.address} is not trusted ({error.verify_message}): name the file "
                "with that of its signer, tls=FILE"
            ) from None
        except (OSError, EOFError, asyncio.LimitOverrunError, Malformed) as error:
            _abort(writer)
            why = f"no answer within {timeout:g} s" if isinstance(error, TimeoutError) else _reason(error)
            raise Lost(f"{server.address}: {why}") from error
        except BaseException:
            _abort(writer)
            raise

    async def _log_in(self, login: Login) -> None:
        server = self.server
        options: dict[str, Any] = {
            "verbose": False,
            "pedantic": False,
            "lang": "python-ordercast",
            "version": "1",
            "protocol": 1,
            "headers": True,
            "no_responders": True,
            "tls_required": False,
        }
        if login.name:
            options["name"] = login.name
        if server.user or login.user:
            options["user"] = server.user or login.user
            options["pass"] = server.password if server.user else login.password
        if login.token:
            options["auth_token"] = login.token
        self._writer.write(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        while True:
            data = await self._reader.read(READ)
            if not data:
                raise EOFError
            events = self._parser.feed(data)
            for number, event in enumerate(events):
                match event:
                    case Pong():
                        self._early = events[number + 1 :]
                        return
                    case Refusal(reason):
                        if "auth" in reason.lower():
                            raise AccessDenied(
                                f"{server.address} does not let this client in ({reason}): see to user, "
                                "password or token"
                            )
                        raise Malformed(reason)
                    case Ok() | Ping():
                        pass
                    case Info(fields):
                        self.info = fields

    async def events(self) -> AsyncIterator[list[Event]]:
        """What the server says, as much at a time as came; ends with `Lost`."""
        events, self._early = self._early, []
        try:
            while True:
                if events:
                    yield events
                data = await self._reader.read(READ)
                if not data:
                    raise Lost(f"{self.server.address} has closed the connection")
                events = self._parser.feed(data)
        except (OSError, Malformed) as error:
            raise Lost(f"{self.server.address}: {_reason(error)}") from error

    # --- what is said ---------------------------------------------------------------------------

    def write(self, line: bytes) -> None:
        """Say it soon, together with what else is said in this turn of the event loop."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(line)
        self._size += len(line)
        if self._size >= FULL:
            self.flush()

    def flush(self) -> None:
        """Hand over to the system what waits."""
        if self._waiting:
            lines, self._waiting, self._size = self._waiting, [], 0
            if not self._writer.is_closing():
                self._writer.write(b"".join(lines))

    @property
    def full(self) -> bool:
        """Whether so much waits to be sent that senders should `drain`."""
        return self._size + self._writer.transport.get_write_buffer_size() > FULL

    async def drain(self) -> None:
        """Wait until there is room. Raises `Lost`."""
        self.flush()
        try:
            await self._writer.drain()
        except OSError as error:
            raise Lost(f"{self.server.address}: {_reason(error)}") from error

    def close(self) -> None:
        """End it; what was written before is still sent."""
        self.flush()
        self._writer.close()

    def abort(self) -> None:
        """End it at once: the server does not answer."""
        self._writer.transport.abort()


async def _greeting(parser: Parser, reader: asyncio.StreamReader) -> dict[str, Any]:
    """The first line: it comes alone, since the rest may be encrypted."""
    line = await reader.readuntil(b"\r\n")
    for event in parser.feed(line):
        if isinstance(event, Info):
            return event.fields
        raise Malformed("it does not greet as a node does that serves clients: is it the right port?")
    raise EOFError


async def _encrypt(writer: asyncio.StreamWriter, server: Server, login: Login) -> None:
    context = login.tls or ssl.create_default_context()
    await writer.start_tls(context, server_hostname=server.host or None)


def _abort(writer: asyncio.StreamWriter | None) -> None:
    if writer is not None:
        writer.transport.abort()


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "it closed the connection without a word"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error)

"""How a running node is asked from outside: a Unix socket in its data directory.

One request a connection: a line of JSON, ``{"what": "status"}``, answered by a line of JSON that holds
either what was asked for, under its name, or an ``error``. Only the node's own user may connect.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.wire import UNREADABLE
from ordercast.errors import OrdercastError, StorageProblem
from ordercast.runtime.connections import READ_BUFFER, Connection, Connections, Listener

SOCKET = "control.sock"
"""Its name in the data directory."""

ANSWER_TIMEOUT_S = 5.0
"""How long either side waits for the other."""

MAX_REQUEST = READ_BUFFER
"""Bytes of a request."""
MOST_CONNECTIONS = 16
"""At a time, beside those to log and metrics: a node can be asked for its status however many there are."""
LONGEST_PATH = 100
"""Bytes of a socket's path; systems allow a few more, 103 at least."""


class Request(msgspec.Struct):
    """What is asked for, by name."""

    what: str


class NoNode(OrdercastError):
    """There is no running node to ask, or it does not answer."""


class Control:
    """The side of the node: answers until it is closed."""

    def __init__(self, path: Path, status: Callable[[], dict[str, Any]]) -> None:
        self.path = path
        self._asked: dict[str, Callable[[], dict[str, Any]]] = {"status": status}
        self._listener: Listener | None = None
        self._made = (0, 0)

    async def start(self) -> None:
        """Listen. A socket that a killed node left behind is replaced; that of a living one is not."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _fitting(self.path) as name:
                self._remove_stale(name)
                listener.bind(name)
            os.chmod(self.path, 0o600)  # nobody can connect before it listens
            self._made = _identity(self.path)
            self._listener = Listener(listener, Connections(MOST_CONNECTIONS), self._serve)
        except OSError as error:
            listener.close()
            raise StorageProblem(
                f"the socket {self.path} cannot be made: {error.strerror or error}; choose a data directory "
                "that the node may write to"
            ) from error
        except BaseException:
            listener.close()
            raise

    async def close(self) -> None:
        """Answer no more, and take the socket away."""
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        await listener.close()
        with suppress(OSError):
            if _identity(self.path) == self._made:  # else it is already that of a successor
                self.path.unlink()

    def _remove_stale(self, name: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(ANSWER_TIMEOUT_S)
            try:
                probe.connect(name)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno == errno.ECONNREFUSED and self.path.is_socket():
                    self.path.unlink()
                    return
                raise
        raise StorageProblem(
            f"a node is already running with {self.path.parent}: give each node a data directory of its own, "
            "or stop the other"
        )

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection
    ) -> None:
        with suppress(OSError, TimeoutError, ValueError):  # gone, silent, or a line without end
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                line = await reader.readline()
                writer.write(json.dumps(self._answer(line)).encode() + b"\n")
                await writer.drain()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            what = msgspec.json.decode(line, type=Request).what
        except UNREADABLE:
            return {"error": 'this is no request: send one line of JSON, as in {"what": "status"}'}
        if what not in self._asked:
            return {"error": f"nothing is known of {what!r}: ask for {', '.join(self._asked)}"}
        return {what: self._asked[what]()}


def ask(path: Path, what: str = "status") -> dict[str, Any]:
    """The side that asks: what the node that serves this socket answers."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, _fitting(path) as name:
            connection.settimeout(ANSWER_TIMEOUT_S)
            connection.connect(name)
            connection.sendall(json.dumps({"what": what}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                line = lines.readline()
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as error:
        raise NoNode(
            f"no node is running with {path.parent}: start one with `ordercast node`, or name the data "
            "directory of one that runs"
        ) from error
    except PermissionError as error:
        raise NoNode(f"the node at {path} belongs to another user: ask as that user, or as root") from error
    except TimeoutError as error:
        raise NoNode(
            f"the node at {path} did not answer for {ANSWER_TIMEOUT_S:g} s: it is stopped, or its event "
            "loop is kept busy by the application"
        ) from error
    except OSError as error:
        raise NoNode(f"the node at {path} cannot be asked: {error.strerror or error}") from error
    return _read(path, what, line)


def _read(path: Path, what: str, line: bytes) -> dict[str, Any]:
    if not line:
        raise NoNode(f"the node at {path} ended before it answered: ask again, or look at its log")
    try:
        answer = json.loads(line)
        if "error" in answer:
            raise NoNode(f"the node at {path} answers: {answer['error']}")
        found: dict[str, Any] = answer[what]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NoNode(f"what answers at {path} is no node of ordercast: name another socket") from error
    return found


@contextmanager
def _fitting(path: Path) -> Iterator[str]:
    """The path, or where it is too long for a socket's address, a short one by way of its directory."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = Path(f"/proc/self/fd/{directory}")
        if not short.exists():
            raise StorageProblem(
                f"{path} is too long for a socket: choose a data directory whose path has less than "
                f"{LONGEST_PATH - len(SOCKET)} bytes"
            )
        yield str(short / path.name)
    finally:
        os.close(directory)


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino

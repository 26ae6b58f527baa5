"""A node's log service, as its clients see it: connections, and a log that is read over one of them."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from ordercast import errors
from ordercast.errors import KeyProblem, LogError, OrdercastError, Unreachable
from ordercast.keys import Keyring
from ordercast.log import wire
from ordercast.log.blocks import checked_batch_of
from ordercast.log.position import Position
from ordercast.log.selection import ALL, Selection
from ordercast.log.view import MOST_BYTES, Bounds
from ordercast.log.wire import Frames, Malformed
from ordercast.transport.address import parse_address

_AT_ONCE = 1 << 20
"""Bytes of an answer that memory is taken for before any of it has come."""
_SENSELESS = (
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    struct.error,
    pa.ArrowException,
)
"""What is raised where an answer is taken apart that no log service gives."""


class Connection:
    """A connection to a node's log service. For one thread at a time."""

    def __init__(self, where: str, keyring: Keyring | None, timeout: float) -> None:
        """Connect and greet. `timeout`: how long the node may take for that, and for each answer."""
        self.where = where
        self._timeout = timeout
        host, port = parse_address(where)
        with self._told():
            self._socket = socket.create_connection((host, port), timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._told():
                self._frames = self._greet(keyring)
        except BaseException:
            self.close()
            raise

    def _greet(self, keyring: Keyring | None) -> Frames:
        own = wire.new_nonce()
        self._socket.sendall(wire.greeting(own, keyring))
        how, service, key_id, length = wire.read_answer(bytes(self._exactly(wire.ANSWER_SIZE)))
        if how in (wire.REFUSED, wire.BUSY):
            reason = bytes(self._exactly(length)).decode(errors="replace")
            kind = KeyProblem if how == wire.REFUSED else Unreachable
            raise kind(f"the log at {self.where} cannot be read: {reason}")
        if keyring is None:
            if how == wire.SEALED:
                raise Malformed("sealed, though no key was named")
            return Frames()
        if how != wire.SEALED or key_id not in keyring.ids:
            raise KeyProblem(
                f"what answers at {self.where} does not seal what it says: it is not a node of your group, "
                "or it has no key; leave the key out only if you trust it."
            )
        key = keyring.keys[keyring.ids.index(key_id)]
        return Frames.sealed(key, own, service, serving=False)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """What goes wrong on the line, in words."""
        try:
            yield
        except TimeoutError as error:
            raise Unreachable(
                f"the log at {self.where} did not answer for {self._timeout:g} s: the node is stopped, busy, "
                "or cut off; ask another replica"
            ) from error
        except EOFError as error:
            raise Unreachable(
                f"the log at {self.where} has ended the connection: ask again, or another replica"
            ) from error
        except (OSError, OverflowError) as error:
            raise Unreachable(
                f"the log at {self.where} cannot be reached ({getattr(error, 'strerror', None) or error}): "
                "check the address, which `ordercast status` shows, and that the node runs"
            ) from error
        except Malformed as error:
            raise Unreachable(
                f"what answers at {self.where} is no log service of an ordercast node, or somebody changes "
                f"what it says ({error}): check the address"
            ) from error

    def _exactly(self, size: int) -> bytearray:
        """So many bytes that come next. Memory is taken as they come: a length may be wrong."""
        data, got = bytearray(min(size, _AT_ONCE)), 0
        while got < size:
            if got == len(data):
                data += bytes(min(size - got, got))
            with memoryview(data) as view:
                count = self._socket.recv_into(view[got:])
            if not count:
                raise EOFError
            got += count
        return data

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send a frame: a header, and a body behind it."""
        with self._told():
            self._socket.sendall(self._frames.made(header, body))

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """What the node says next; None if it has not begun to say anything within `timeout`."""
        if timeout is not None:
            with self._told():
                self._socket.settimeout(timeout)
                try:
                    self._socket.recv(1, socket.MSG_PEEK)
                except (TimeoutError, BlockingIOError):
                    return None
                finally:
                    self._socket.settimeout(self._timeout)
        return self.receive_all()[0]

    def receive_all(self) -> tuple[dict[str, Any], memoryview]:
        """What the node says next, header and body."""
        with self._told():
            (length,) = wire.LENGTH.unpack(self._exactly(wire.LENGTH.size))
            if length > wire.MOST_ANSWER:
                raise Malformed("frame too large")
            return self._frames.taken(self._exactly(length))

    def ask(self, header: dict[str, Any]) -> tuple[dict[str, Any], memoryview]:
        """The answer to a request; raises what stands against it."""
        self.send(header)
        return self.answer()

    def answer(self) -> tuple[dict[str, Any], memoryview]:
        """The next answer; raises what it says is wrong."""
        header, body = self.receive_all()
        if "error" in header:
            name, said = header["error"], header.get("message")
            kind = getattr(errors, name, LogError) if isinstance(name, str) else LogError
            ours = isinstance(kind, type) and issubclass(kind, OrdercastError)
            if not said or not isinstance(said, str):
                said = "the log service says that something is wrong, and not what"
            raise (kind if ours else LogError)(said)
        return header, body

    @contextlib.contextmanager
    def understood(self) -> Iterator[None]:
        """Where an answer is taken apart: one that makes no sense is told as any that is no log service's."""
        with self._told():
            try:
                yield
            except _SENSELESS as error:
                raise Malformed("malformed answer") from error

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(AttributeError):  # it never came to be
            self._socket.close()


class Remote:
    """The log of a node, read over TCP; connects when something is asked, and again where the line broke."""

    def __init__(self, where: str, keyring: Keyring | None, timeout: float) -> None:
        self._where = where
        self._keyring = keyring
        self._timeout = timeout
        self._connection: Connection | None = None

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _asked(self, request: dict[str, Any]) -> tuple[dict[str, Any], memoryview]:
        """The first answer to a request. A line that broke since the last request is no reason to give up."""
        fresh = self._connection is None
        try:
            return self._connected().ask(request)
        except Unreachable:
            self.close()
            if fresh:
                raise
        try:
            return self._connected().ask(request)
        except Unreachable:
            self.close()
            raise

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._where, self._keyring, self._timeout)
        return self._connection

    def bounds(self) -> Bounds:
        """What the log holds now."""
        header, _ = self._asked({"op": "bounds"})
        with self._connected().understood():
            return msgspec.convert(header["bounds"], Bounds)

    def after(
        self, start: Position | None, rows: int, selected: Selection = ALL, most_bytes: int = MOST_BYTES
    ) -> Position | None:
        """Where a range ends."""
        request = {"op": "after", "start": start, "rows": rows, "selected": selected}
        header, _ = self._asked({**request, "most_bytes": most_bytes})
        with self._connected().understood():
            return msgspec.convert(header["end"], Position | None)

    def count(self, start: Position | None, end: Position, selected: Selection = ALL) -> tuple[int, int]:
        """How many entries a range has, and their bytes."""
        header, _ = self._asked({"op": "count", "start": start, "end": end, "selected": selected})
        with self._connected().understood():
            return msgspec.convert(header["count"], tuple[int, int])

    def groups(self) -> list[str]:
        """The groups that it has messages of."""
        header, _ = self._asked({"op": "groups"})
        with self._connected().understood():
            return msgspec.convert(header["groups"], list[str])

    def sent_at(self, time_us: int) -> Position | None:
        """The first message that was sent then or later."""
        header, _ = self._asked({"op": "sent_at", "time_us": time_us})
        with self._connected().understood():
            return msgspec.convert(header["at"], Position | None)

    def before(self, end: Position, rows: int) -> Position | None:
        """Where a range begins."""
        header, _ = self._asked({"op": "before", "end": end, "rows": rows})
        with self._connected().understood():
            return msgspec.convert(header["start"], Position | None)

    def read(
        self, start: Position | None, end: Position, selected: Selection = ALL, *, heads: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The entries of a range. What stands against it is raised now."""
        first = self._asked({"op": "read", "start": start, "end": end, "selected": selected})
        connection, self._connection = self._connection, None
        assert connection is not None
        return self._batches(connection, first, selected, heads)

    def _batches(
        self,
        connection: Connection,
        answer: tuple[dict[str, Any], memoryview],
        selected: Selection,
        heads: bool,
    ) -> Iterator[pa.RecordBatch]:
        """Has the connection for itself; where it is read to its end, the next request can have it."""
        whole = False
        try:
            header, body = answer
            while "done" not in header:
                with connection.understood():
                    begin, end = msgspec.convert(header["rows"], tuple[int, int])
                    batch = checked_batch_of(body, begin, end, selected, heads=heads)
                if batch.num_rows:
                    yield batch
                header, body = connection.answer()
            whole = True
        finally:
            if whole and self._connection is None:
                self._connection = connection
            else:
                connection.close()

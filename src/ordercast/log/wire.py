"""What a node's log service and its clients say to each other over TCP.

They agree on a key first, where there is one (`ordercast.transport.stream_seal`). Then come frames:

    frame     length u32 · what follows, sealed or not
    inside    length of the header u32 · header in msgpack · zeros up to a multiple of 8 · body
"""

from __future__ import annotations

import os
import struct
from typing import Any

import msgspec

from ordercast.core.wire import UNREADABLE
from ordercast.transport.stream_seal import (
    BUSY,
    NONCE_SIZE,
    OPEN,
    REFUSED,
    SEALED,
    Handshake,
    Malformed,
    Seal,
)

__all__ = ["BUSY", "OPEN", "REFUSED", "SEALED", "Malformed"]

HANDSHAKE = Handshake(b"OCLOG\x01", "log", "the log", "not a client of the log", "not a log service")
greeting, read_greeting = HANDSHAKE.greeting, HANDSHAKE.read_greeting
answer, read_answer = HANDSHAKE.answer, HANDSHAKE.read_answer
GREETING_SIZE, ANSWER_SIZE = HANDSHAKE.greeting_size, HANDSHAKE.answer_size
MOST_REQUEST = 8 * 1024 * 1024
"""Bytes of a frame that a service takes."""
MOST_ANSWER = 2**31 - 1
"""Bytes of a frame that a client takes."""
_ALIGNED = 8

LENGTH = struct.Struct(">I")


def new_nonce() -> bytes:
    """Random bytes that no connection had before."""
    return os.urandom(NONCE_SIZE)


class Frames:
    """Frames of one connection, as one of its two sides makes and takes them."""

    __slots__ = ("_seal",)

    def __init__(self, seal: Seal | None = None) -> None:
        self._seal = Seal() if seal is None else seal

    @classmethod
    def sealed(cls, key: bytes, client: bytes, service: bytes, *, serving: bool) -> Frames:
        """Sealed with a group key and the random bytes of both sides."""
        return cls(Seal.of(key, client, service, HANDSHAKE.purpose, serving=serving))

    def made(self, header: dict[str, Any], body: bytes = b"") -> bytes:
        """A frame to be sent next."""
        return b"".join(self.parts(header, body))

    def parts(self, header: dict[str, Any], body: bytes) -> tuple[bytes, bytes]:
        """A frame as two parts to be sent one behind the other: so a large body is copied once at most."""
        packed = msgspec.msgpack.encode(header)
        front = LENGTH.pack(len(packed)) + packed
        front += bytes(-len(front) % _ALIGNED)
        if not self._seal.open:
            front, body = b"", self._seal.sealed(b"".join((front, body)))
        return LENGTH.pack(len(front) + len(body)) + front, body

    def taken(self, inside: bytes | bytearray) -> tuple[dict[str, Any], memoryview]:
        """What the frame that came next says, behind its length."""
        inside = self._seal.opened(inside)
        try:
            (length,) = LENGTH.unpack_from(inside)
            begin = LENGTH.size + length
            header = msgspec.msgpack.decode(memoryview(inside)[LENGTH.size : begin])
        except (struct.error, *UNREADABLE) as error:
            raise Malformed("malformed frame") from error
        if not isinstance(header, dict) or begin > len(inside):
            raise Malformed("malformed frame")
        return header, memoryview(inside)[begin + -begin % _ALIGNED :]

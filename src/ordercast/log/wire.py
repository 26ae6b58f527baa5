"""What a node's log service and its clients say to each other over TCP.

A client greets with ``OCLOG`` and a version, whether it has a key, 16 random bytes and the names of its keys;
the service answers with 16 random bytes of its own and the name of the key it chose, or with a sentence on
why not. From the group key and the random bytes of *both* a key is derived for each direction, so that
nothing of one connection can be said again in another. Then come frames, each sealed with AES-GCM; its number
in its direction is the nonce, so none can be left out, repeated or put elsewhere either. Without a key they
are open.

    frame     length u32 · what follows, sealed or not
    inside    length of the header u32 · header in msgpack · zeros up to a multiple of 8 · body
"""

from __future__ import annotations

import os
import struct
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ordercast.core.wire import UNREADABLE
from ordercast.keys import KEY_SIZE, Keyring, derived

MAGIC = b"OCLOG\x01"
NONCE_SIZE = 16
OPEN, SEALED, REFUSED, BUSY = 0, 1, 2, 3
MOST_REQUEST = 8 * 1024 * 1024
"""Bytes of a frame that a service takes."""
MOST_ANSWER = 2**31 - 1
"""Bytes of a frame that a client takes."""
MOST_KEYS = 16
_TAG_SIZE = 16
_ALIGNED = 8

LENGTH = struct.Struct(">I")
_KEY_ID = struct.Struct(">I")
_GREETING = struct.Struct(f">{len(MAGIC)}sB{NONCE_SIZE}sB")
GREETING_SIZE = _GREETING.size
_ANSWER = struct.Struct(f">{len(MAGIC)}sB{NONCE_SIZE}sIH")
ANSWER_SIZE = _ANSWER.size


class Malformed(Exception):
    """What came is not what the other side would say: the connection is of no use any more."""


# --- greeting -----------------------------------------------------------------------------------


def new_nonce() -> bytes:
    """Random bytes that no connection had before."""
    return os.urandom(NONCE_SIZE)


def greeting(nonce: bytes, keyring: Keyring | None) -> bytes:
    """How a client begins."""
    ids = () if keyring is None else keyring.ids[:MOST_KEYS]
    return _GREETING.pack(MAGIC, SEALED if ids else OPEN, nonce, len(ids)) + b"".join(map(_KEY_ID.pack, ids))


def read_greeting(data: bytes) -> tuple[bool, bytes, int]:
    """Whether the client has keys, its random bytes, and how many names of keys follow."""
    magic, how, nonce, count = _GREETING.unpack(data)
    if magic != MAGIC or how not in (OPEN, SEALED) or count > MOST_KEYS or bool(count) != (how == SEALED):
        raise Malformed("not a client of the log")
    return how == SEALED, nonce, count


def read_key_ids(data: bytes) -> list[int]:
    """The identifiers of keys that a client has."""
    return [number for (number,) in _KEY_ID.iter_unpack(data)]


def answer(nonce: bytes, key_id: int | None = None, refusal: str = "", busy: bool = False) -> bytes:
    """How a service answers a greeting."""
    text = refusal.encode()[:65_535]
    how = BUSY if busy else REFUSED if refusal else OPEN if key_id is None else SEALED
    return _ANSWER.pack(MAGIC, how, nonce, key_id or 0, len(text)) + text


def read_answer(data: bytes) -> tuple[int, bytes, int, int]:
    """How the service goes on, its random bytes, the name of the key, and the length of its sentence."""
    magic, how, nonce, key_id, length = _ANSWER.unpack(data)
    if magic != MAGIC or how not in (OPEN, SEALED, REFUSED, BUSY):
        raise Malformed("not a log service")
    return how, nonce, key_id, length


# --- frames -------------------------------------------------------------------------------------


class Frames:
    """Frames of one connection, as one of its two sides makes and takes them."""

    __slots__ = ("_mine", "_received", "_sent", "_theirs")

    def __init__(self, mine: AESGCM | None = None, theirs: AESGCM | None = None) -> None:
        self._mine = mine
        self._theirs = theirs
        self._sent = self._received = 0

    @classmethod
    def sealed(cls, key: bytes, client: bytes, service: bytes, *, serving: bool) -> Frames:
        """Sealed with a group key and the random bytes of both sides."""
        both = derived(key, client + service, "log", 2 * KEY_SIZE)
        asking, answering = AESGCM(both[:KEY_SIZE]), AESGCM(both[KEY_SIZE:])
        return cls(answering, asking) if serving else cls(asking, answering)

    def made(self, header: dict[str, Any], body: bytes = b"") -> bytes:
        """A frame to be sent next."""
        return b"".join(self.parts(header, body))

    def parts(self, header: dict[str, Any], body: bytes) -> tuple[bytes, bytes]:
        """A frame as two parts to be sent one behind the other: so a large body is copied once at most."""
        packed = msgspec.msgpack.encode(header)
        front = LENGTH.pack(len(packed)) + packed
        front += bytes(-len(front) % _ALIGNED)
        if self._mine is not None:
            number = self._sent.to_bytes(12, "big")
            front, body = b"", self._mine.encrypt(number, b"".join((front, body)), None)
        self._sent += 1
        return LENGTH.pack(len(front) + len(body)) + front, body

    def taken(self, inside: bytes | bytearray) -> tuple[dict[str, Any], memoryview]:
        """What the frame that came next says, behind its length."""
        if self._theirs is not None:
            try:
                inside = self._theirs.decrypt(self._received.to_bytes(12, "big"), inside, None)
            except (InvalidTag, ValueError):
                raise Malformed("not authentic") from None
        self._received += 1
        try:
            (length,) = LENGTH.unpack_from(inside)
            begin = LENGTH.size + length
            header = msgspec.msgpack.decode(memoryview(inside)[LENGTH.size : begin])
        except (struct.error, *UNREADABLE) as error:
            raise Malformed("malformed frame") from error
        if not isinstance(header, dict) or begin > len(inside):
            raise Malformed("malformed frame")
        return header, memoryview(inside)[begin + -begin % _ALIGNED :]

"""What a node sends to NATS clients, and what it sends to other nodes beside a client's message."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from ordercast.core.wire import UNREADABLE

PING, PONG, OK = b"PING\r\n", b"PONG\r\n", b"+OK\r\n"
HEADERS = b"NATS/1.0"
"""Begins the headers of a message."""
_REPLY = struct.Struct(">H")
_BLANK = re.compile(rb"[ \t\r\n]")


def error(words: str) -> bytes:
    """An error, as NATS servers say it."""
    return f"-ERR '{words}'\r\n".encode()


def info(told: Mapping[str, Any]) -> bytes:
    """What a server says of itself."""
    return b"INFO " + msgspec.json.encode(told) + b"\r\n"


def message(front: bytes, reply: bytes, headers: bytes, body: bytes) -> tuple[bytes, ...]:
    """A message to a client; `front` is the subject and the name of the subscription, with blanks behind."""
    reply = reply + b" " if reply else b""
    if headers:
        sizes = b"%d %d\r\n" % (len(headers), len(headers) + len(body))
        return b"HMSG ", front, reply, sizes, headers, body, b"\r\n"
    return b"MSG ", front, reply, b"%d\r\n" % len(body), body, b"\r\n"


def status(code: int, words: str = "", lines: Sequence[tuple[str, str]] = ()) -> bytes:
    """Headers of a message that tells something of the server itself."""
    first = f"NATS/1.0 {code} {words}".rstrip()
    return "\r\n".join([first, *(f"{name}: {value}" for name, value in lines), "", ""]).encode()


def header(headers: bytes, name: str) -> str | None:
    """The first value of a header, whatever the case of its name; None if there is none."""
    wanted = name.lower()
    for line in headers.split(b"\r\n")[1:]:
        found, colon, value = line.partition(b":")
        if colon and found.strip().lower() == wanted.encode():
            return value.strip().decode("utf-8", "replace")
    return None


class Head(NamedTuple):
    """What a client says beside its message."""

    reply: bytes
    headers: bytes


def write_head(reply: str | None, headers: bytes) -> bytes:
    """What a client says beside its message, as bytes for other nodes."""
    name = (reply or "").encode()
    return _REPLY.pack(len(name)) + name + headers


def read_head(words: bytes) -> Head:
    """The head in bytes that a node sent; empty if they are none, as anybody may multicast anything."""
    if len(words) < _REPLY.size:
        return Head(b"", b"")
    end = _REPLY.size + _REPLY.unpack_from(words)[0]
    reply, headers = words[_REPLY.size : end], words[end:]
    if len(reply) != end - _REPLY.size or _BLANK.search(reply) is not None:
        return Head(b"", b"")
    if not headers:
        return Head(reply, b"")
    return Head(reply, headers if headers.startswith(HEADERS) and headers.endswith(b"\r\n\r\n") else b"")


class Options(msgspec.Struct, rename={"password": "pass"}):
    """What a client wants, and who it is (CONNECT)."""

    verbose: bool | None = False
    """To be told of each operation that it was taken."""
    pedantic: bool | None = False
    """To be told of subjects that are none."""
    echo: bool | None = True
    """To get what it publishes itself."""
    headers: bool | None = False
    """It knows headers."""
    no_responders: bool | None = False
    """To be told at once if nobody gets a request."""
    user: str | None = None
    password: str | None = None
    auth_token: str | None = None
    name: Annotated[str, Meta(max_length=1024)] | None = None
    lang: Annotated[str, Meta(max_length=256)] | None = None
    version: Annotated[str, Meta(max_length=256)] | None = None
    protocol: int | None = 0


_options = msgspec.json.Decoder(Options)


def read_options(text: bytes) -> Options | None:
    """What a CONNECT says; None if it is malformed."""
    try:
        return _options.decode(text)
    except UNREADABLE:
        return None

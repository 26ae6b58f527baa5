"""What a node sends to NATS clients, and how they introduce themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ordercast.core.wire import UNREADABLE

PING, PONG, OK = b"PING\r\n", b"PONG\r\n", b"+OK\r\n"


def no_subject(subject: str, pedantic: bool) -> bytes:
    """A message is for what is no subject. Clients that are not pedantic are to stay connected, as with
    nats-server: they do after a violation of permissions."""
    if pedantic:
        return error("Invalid Publish Subject")
    named = subject[:80].encode("unicode_escape").decode()
    return error(f'Permissions Violation for Publish to "{named}": it is no subject')


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


class Options(msgspec.Struct, rename={"password": "pass"}):
    """What a client wants, and who it is (CONNECT)."""

    verbose: bool | None = False
    """To be told of each operation that it was taken."""
    pedantic: bool | None = False
    """Whether the client wants to be told of subjects that are not valid."""
    echo: bool | None = True
    """Whether the client gets what it publishes itself."""
    headers: bool | None = False
    """Whether the client understands messages with headers."""
    no_responders: bool | None = False
    """Whether the client wants to be told at once if nobody receives a request."""
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

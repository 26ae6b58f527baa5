"""What a sender says beside a message: where an answer is wanted, and headers, one of which is the key.

Headers are those of NATS, as text (``NATS/1.0``, then a line each), so that clients of all languages write
and read the same. Between nodes the reply stands in front of them. A message of which nothing is said has
none of this, and costs nothing.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

VERSION = b"NATS/1.0"
"""Begins the headers of a message."""
KEY = "Key"
"""The header that has the key of a message."""
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_REPLY = struct.Struct(">H")
_BLANK = re.compile(rb"[ \t\r\n]")
_NAME = re.compile(r"[!-9;-~]+")
"""Names of headers: printable ASCII without the colon."""


class Head(NamedTuple):
    """What is said beside a message."""

    reply: bytes
    headers: bytes


def write_head(reply: str | None, headers: bytes) -> bytes:
    """What is said beside a message, as bytes for other nodes."""
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
    return Head(reply, headers if headers.startswith(VERSION) and headers.endswith(b"\r\n\r\n") else b"")


def head_of(key: str | None, headers: Mapping[str, str] | None) -> bytes | None:
    """The head of a message with this key and these headers; None without either.

    Raises `ValueError` for what cannot be one.
    """
    if key is None and not headers:
        return None
    lines = [VERSION]
    for name, value in [*([] if key is None else [(KEY, key)]), *(headers or {}).items()]:
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"a key and headers are texts, and {name!r}: {value!r} is not")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header: use letters, digits and dashes")
        if name == KEY and len(lines) > 1 and key is not None:
            raise ValueError(f"key and the header {KEY} are the same, and both are given: give one")
        if value != value.strip() or "\r" in value or "\n" in value:
            what = "key" if name == KEY else f"header {name}"
            raise ValueError(f"the {what} has a line break in it, or blanks at an end: encode its value")
        lines.append(f"{name}: {value}".encode())
    return write_head(None, b"\r\n".join(lines) + b"\r\n\r\n")


def read_headers(text: bytes) -> dict[str, str]:
    """Headers by name; the values of a name that comes twice are joined by a comma."""
    found: dict[str, str] = {}
    for line in text.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            value = value.strip()
            found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def headers_of(head: bytes) -> Mapping[str, str]:
    """The headers in a head as another node sent it; the key, if there is one, is that of the name `KEY`."""
    text = read_head(head).headers if head else b""
    return read_headers(text) if text else NO_HEADERS


def header(headers: bytes, name: str) -> str | None:
    """The first value of a header, whatever the case of its name; None if there is none."""
    wanted = name.lower()
    for line in headers.split(b"\r\n")[1:]:
        found, colon, value = line.partition(b":")
        if colon and found.strip().lower() == wanted.encode():
            return value.strip().decode("utf-8", "replace")
    return None

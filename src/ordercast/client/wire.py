"""What a client says: its lines as bytes, and headers, which both sides write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

VERSION = b"NATS/1.0"
KEY = "Key"
"""The header that has the key of a message."""
_NAME = re.compile(r"[!-9;-~]+")
"""Names of headers: printable ASCII without the colon."""
_TOKEN = re.compile(r"[^\s\0.*>]+")
LONGEST_SUBJECT = 1024


def check_group(group: str, *, pattern: bool = False) -> str:
    """The name of a group that can be sent to, or with ``pattern`` one that may have `*` and `>`."""
    tokens = group.split(".") if isinstance(group, str) else [""]
    for number, token in enumerate(tokens):
        wild = pattern and (token == "*" or (token == ">" and number == len(tokens) - 1))
        if not wild and not _TOKEN.fullmatch(token):
            allowed = "* for a word or > for the rest" if pattern else "no * and >, which are for join"
            raise ValueError(
                f"{group!r} is no name of a group here: words with dots between them, no spaces, {allowed}"
            )
    if len(group.encode()) > LONGEST_SUBJECT:
        raise ValueError(f"the name of a group has {len(group):,} letters: at most {LONGEST_SUBJECT:,}")
    return group


def publish(subject: str, payload: bytes, reply: str = "", headers: bytes = b"") -> bytes:
    """A message, as the client sends it (PUB or HPUB)."""
    word = b"HPUB" if headers else b"PUB"
    middle = f" {subject} {reply} " if reply else f" {subject} "
    sizes = f"{len(headers)} {len(headers) + len(payload)}" if headers else f"{len(payload)}"
    return b"".join((word, middle.encode(), sizes.encode(), b"\r\n", headers, payload, b"\r\n"))


def subscribe(sid: int, subject: str, queue: str = "") -> bytes:
    """Asks for messages to the subject, as subscription `sid`."""
    return f"SUB {subject} {queue + ' ' if queue else ''}{sid}\r\n".encode()


def unsubscribe(sid: int) -> bytes:
    """Ends the subscription `sid`."""
    return f"UNSUB {sid}\r\n".encode()


def write_headers(headers: Mapping[str, str] | None, key: str | None = None) -> bytes:
    """Headers as they are sent, with the key, which is one of them: empty if there are none.

    Raises `ValueError` for what cannot be one.
    """
    if key is not None:
        if headers and KEY in headers:
            raise ValueError(f"key and the header {KEY} are the same, and both are given: give one")
        headers = {KEY: key, **(headers or {})}
    if not headers:
        return b""
    lines = [VERSION]
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header: use letters, digits and dashes")
        if "\r" in value or "\n" in value:
            raise ValueError(f"the header {name} has a line break in it: encode its value")
        lines.append(f"{name}: {value}".encode())
    return b"\r\n".join(lines) + b"\r\n\r\n"


class Headers(NamedTuple):
    """What is in front of a payload."""

    status: int
    """Of an answer by the server itself, as 503: nobody is there. 0 for headers of others."""
    description: str
    fields: dict[str, str]


NONE = Headers(0, "", {})


def read_headers(data: bytes) -> Headers:
    """Headers as they came: those that are none are left out, since it was another client that wrote them."""
    if not data.startswith(VERSION):
        return NONE
    first, *lines = data.decode(errors="replace").split("\r\n")
    status, _, description = first[len(VERSION) :].strip().partition(" ")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            continue
        value = value.strip()
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return Headers(int(status) if status.isdigit() else 0, description, fields)

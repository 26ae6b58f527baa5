"""Reads what a server of the NATS client protocol says: bytes in, events out. It knows no socket.

INFO {json}\\r\\n
MSG subject sid [reply] size\\r\\n payload\\r\\n
HMSG subject sid [reply] size-of-headers size-of-all\\r\\n headers payload\\r\\n
PING\\r\\n  PONG\\r\\n  +OK\\r\\n  -ERR 'reason'\\r\\n
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

LONGEST_LINE = 1024 * 1024
"""Bytes: an INFO names every server of a cluster. A longer line is no line."""
LARGEST_PAYLOAD = 64 * 1024 * 1024
"""Bytes, headers included: no server sends more."""


class Malformed(Exception):
    """The server said something that is not of the protocol. Nothing behind it can be understood."""


class Info(NamedTuple):
    """What the server tells of itself; again when it changes."""

    fields: dict[str, Any]


class Delivered(NamedTuple):
    """A message, for the subscription of this number."""

    sid: int
    subject: str
    reply: str
    headers: bytes
    """As they came, with their first line; empty if there are none."""
    payload: bytes


class Ping(NamedTuple):
    """The server wants to know whether the client is there."""


class Pong(NamedTuple):
    """The server has handled everything up to a PING of the client."""


class Ok(NamedTuple):
    """The server took what the client said; it says so in verbose mode."""


class Refusal(NamedTuple):
    """The server tells of an error; most often it closes the connection then."""

    reason: str


Event = Info | Delivered | Ping | Pong | Ok | Refusal


class Parser:
    """Takes bytes as they come, and gives the events that are whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._needed = 0
        """So many bytes have to be there before it is worth to look again."""
        self._searched = 0
        """There is no end of line in so many bytes from the beginning."""

    def feed(self, data: bytes) -> list[Event]:
        """What is whole with these bytes. Raises `Malformed`, after which nothing more may be fed."""
        buffer = self._buffer
        buffer += data
        events: list[Event] = []
        if len(buffer) < self._needed:
            return events
        at = self._needed = 0
        while (end := buffer.find(b"\r\n", max(at, self._searched - 1))) >= 0:
            if end - at > LONGEST_LINE:
                raise Malformed(f"a line of {end - at:,} bytes")
            line = bytes(buffer[at:end])
            if line[:4] in (b"MSG ", b"MSG\t") or line[:5] in (b"HMSG ", b"HMSG\t"):
                headed = line[:1] == b"H"
                sid, subject, reply, of_headers, size = _head(line, headed)
                begin, behind = end + 2, end + 2 + size
                if len(buffer) < behind + 2:
                    self._needed = behind + 2 - at
                    self._searched = 0
                    break
                if buffer[behind : behind + 2] != b"\r\n":
                    raise Malformed("a payload that is longer than its line says")
                body = bytes(buffer[begin:behind])
                events.append(Delivered(sid, subject, reply, body[:of_headers], body[of_headers:]))
                at = behind + 2
            else:
                events.append(_short(line))
                at = end + 2
            self._searched = 0
        else:
            self._searched = len(buffer) - at
            if self._searched > LONGEST_LINE:
                raise Malformed(f"a line of more than {LONGEST_LINE:,} bytes")
        del buffer[:at]
        return events


def _head(line: bytes, headed: bool) -> tuple[int, str, str, int, int]:
    """Of a message: subscription, subject, reply, bytes of headers, bytes of all."""
    words = line.split()
    numbers = 2 if headed else 1
    if not 3 + numbers <= len(words) <= 4 + numbers:
        raise Malformed(f"{line[:80]!r}: it has {len(words)} words")
    sizes = [_number(word) for word in words[-numbers:]]
    of_headers, size = (sizes[0], sizes[1]) if headed else (0, sizes[0])
    if size > LARGEST_PAYLOAD or of_headers > size:
        raise Malformed(f"{line[:80]!r}: sizes that cannot be")
    reply = _text(words[3]) if len(words) == 4 + numbers else ""
    return _number(words[2]), _text(words[1]), reply, of_headers, size


def _short(line: bytes) -> Event:
    """A line that is whole by itself."""
    word, _, rest = line.partition(b" ")
    match word.upper():
        case b"PING":
            return Ping()
        case b"PONG":
            return Pong()
        case b"+OK":
            return Ok()
        case b"-ERR":
            return Refusal(rest.strip().strip(b"'").decode(errors="replace"))
        case b"INFO":
            try:
                fields = json.loads(rest)
            except (ValueError, RecursionError):
                raise Malformed("an INFO that is no JSON") from None
            if not isinstance(fields, dict):
                raise Malformed("an INFO that is no JSON object")
            return Info(fields)
    raise Malformed(f"{line[:80]!r}: no word of the protocol")


def _number(word: bytes) -> int:
    if not word.isdigit() or len(word) > 18:
        raise Malformed(f"{word[:80]!r} is no number")
    return int(word)


def _text(word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise Malformed(f"{word[:80]!r} is no text") from None

"""What clients send in the NATS client protocol, as operations: bytes in, operations out, no input or output.

https://docs.nats.io/reference/reference-protocols/nats-protocol. A chunk may end anywhere. What a parser
holds is bounded by `LONGEST_LINE` and the largest payload allowed. It never raises: what is no operation is
told as the last one, a `Violation`, and nothing is read after it.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

LONGEST_LINE = 4096
"""Bytes of a line up to its line feed, the operation's name among them."""
_MOST_DIGITS = 10


class Connect(NamedTuple):
    """CONNECT: the client says who it is and what it wants, as JSON that is not looked at here."""

    options: bytes


class Publish(NamedTuple):
    """PUB or HPUB: a message."""

    subject: str
    reply: str | None
    headers: int
    """Bytes at the beginning of `payload` that are headers; 0 if it has none."""
    payload: bytes
    """Headers and message."""


class Subscribe(NamedTuple):
    """SUB: the client wants what is published to a subject, or to all that a pattern describes."""

    subject: str
    queue: str | None
    sid: bytes
    """The client's own name for this subscription."""


class Unsubscribe(NamedTuple):
    """UNSUB: at once, or once it got so many messages over this subscription since it began."""

    sid: bytes
    after: int | None


class Ping(NamedTuple):
    """PING."""


class Pong(NamedTuple):
    """PONG."""


class Violation(NamedTuple):
    """The client does not keep to the protocol: it is told so and cut off."""

    words: str
    """As NATS servers say it, after ``-ERR``."""
    reason: str
    """The reason under which violations are counted."""


Operation: TypeAlias = Connect | Publish | Subscribe | Unsubscribe | Ping | Pong | Violation

UNKNOWN = Violation("Unknown Protocol Operation", "unknown operation")
LINE_TOO_LONG = Violation("maximum control line exceeded", "line too long")
PAYLOAD_TOO_LARGE = Violation("Maximum Payload Violation", "payload too large")
MALFORMED = Violation("Parser Error", "malformed line")
UNTERMINATED = Violation("Unknown Protocol Operation", "payload not followed by a line end")
NOT_TEXT = Violation("Invalid Subject", "subject that is no UTF-8")

REASONS = tuple(
    sorted(
        each.reason for each in (UNKNOWN, LINE_TOO_LONG, PAYLOAD_TOO_LARGE, MALFORMED, UNTERMINATED, NOT_TEXT)
    )
)
"""Why a client may be cut off for what it sent."""

_PUBLISH = re.compile(
    rb"(H?)PUB[ \t]+([^ \t\r\n]+)[ \t]+(?:([^ \t\r\n]+)[ \t]+)??(?:(\d{1,%d})[ \t]+)?(\d{1,%d})[ \t]*\r?\n"
    % (_MOST_DIGITS, _MOST_DIGITS),
    re.IGNORECASE,
)
_WORD_END = re.compile(rb"[ \t\r]")
_BLANKS = re.compile(rb"[ \t]+")


class Parser:
    """Reads what one client sends."""

    def __init__(self, most_payload: int) -> None:
        """A message, with its headers, has at most `most_payload` bytes."""
        self._most_payload = most_payload
        self._held = bytearray()
        self._needed = 1
        """Bytes that have to be held before there can be another operation."""
        self._broken = False

    @property
    def held(self) -> int:
        """Bytes of an operation that has not come whole yet."""
        return len(self._held)

    def feed(self, chunk: bytes) -> list[Operation]:
        """The operations that are whole with this chunk, in order; a `Violation` is the last one ever."""
        if self._broken:
            return []
        if self._held:
            self._held += chunk
            if len(self._held) < self._needed:
                return []
            chunk = bytes(self._held)
            self._held.clear()
        found: list[Operation] = []
        at = self._read(chunk, found)
        if found and isinstance(found[-1], Violation):
            self._broken = True
        else:
            self._held += chunk[at:] if at else chunk
        return found

    def _read(self, data: bytes, found: list[Operation]) -> int:
        """Read operations until none is whole; where the next one begins."""
        at, end = 0, len(data)
        line, subject, reply, headers, size = b"", "", None, 0, 0
        while at < end:
            if line and data.startswith(line, at):  # as the last one: many of one kind come together
                start = at + len(line)
            else:
                match = _PUBLISH.match(data, at, at + LONGEST_LINE + 1)
                if match is None:
                    line_end = data.find(b"\n", at, at + LONGEST_LINE + 1)
                    if line_end < 0:
                        if not _may_begin(data[at : at + 8]):
                            found.append(UNKNOWN)
                        elif end - at > LONGEST_LINE:
                            found.append(LINE_TOO_LONG)
                        break
                    found.append(_operation(data[at:line_end]))
                    if isinstance(found[-1], Violation):
                        break
                    at = line_end + 1
                    continue
                published = _published(match, self._most_payload)
                if isinstance(published, Violation):
                    found.append(published)
                    break
                subject, reply, headers, size = published
                line, start = match.group(), match.end()
            stop = start + size
            if end < stop + 2:
                if end > stop and data[stop] != 13:
                    found.append(UNTERMINATED)
                self._needed = stop + 2 - at
                return at
            if data[stop : stop + 2] != b"\r\n":
                found.append(UNTERMINATED)
                break
            found.append(Publish(subject, reply, headers, data[start:stop]))
            at = stop + 2
        self._needed = end - at + 1
        return at


def _published(match: re.Match[bytes], most: int) -> tuple[str, str | None, int, int] | Violation:
    """Subject, reply, bytes of headers, bytes in all."""
    with_headers, subject, reply, first, last = match.groups()
    if with_headers:
        if first is None:
            return MALFORMED
        headers = int(first)
    else:
        headers = 0
        if first is not None:  # a reply that consists of digits
            if reply is not None:
                return MALFORMED
            reply = first
    size = int(last)
    if headers > size:
        return MALFORMED
    if size > most:
        return PAYLOAD_TOO_LARGE
    try:
        return subject.decode(), None if reply is None else reply.decode(), headers, size
    except UnicodeDecodeError:
        return NOT_TEXT


def _operation(line: bytes) -> Operation:
    """The operation of a line, without its line feed, that is no PUB or HPUB."""
    word, *rest = _BLANKS.split(line.removesuffix(b"\r").rstrip(b" \t"), maxsplit=1)
    name = word.upper()
    if name == b"CONNECT" and rest:
        return Connect(rest[0])
    arguments = _BLANKS.split(rest[0]) if rest else []
    if name == b"PING" and not arguments:
        return Ping()
    if name == b"PONG" and not arguments:
        return Pong()
    if name == b"SUB" and 2 <= len(arguments) <= 3:
        try:
            subject, *queue = (argument.decode() for argument in arguments[:-1])
        except UnicodeDecodeError:
            return NOT_TEXT
        return Subscribe(subject, queue[0] if queue else None, arguments[-1])
    if name == b"UNSUB" and 1 <= len(arguments) <= 2:
        after = None if len(arguments) == 1 else arguments[1]
        if after is None:
            return Unsubscribe(arguments[0], None)
        if after.isdigit() and len(after) <= _MOST_DIGITS:
            return Unsubscribe(arguments[0], int(after))
    return MALFORMED if name in _NAMES else UNKNOWN


_NAMES = (b"CONNECT", b"PING", b"PONG", b"PUB", b"HPUB", b"SUB", b"UNSUB")


def _may_begin(start: bytes) -> bool:
    """Whether an operation may begin like this: what cannot is refused before its line has ended."""
    word, *rest = (part.upper() for part in _WORD_END.split(start, maxsplit=1))
    return word in _NAMES if rest else any(name.startswith(word) for name in _NAMES)

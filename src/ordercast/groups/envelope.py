"""The group a message is for, in front of its payload.

One byte says what it is (a message; a row of a producer, or a note about producers: `producers.py`), one how
long the group's name is, then the name and the message. Everything in front of the message is its *tag*, the
same for all messages of a group, so that telling groups apart is comparing prefixes.
"""

from __future__ import annotations

from ordercast.errors import ConfigProblem

MESSAGE, ROW, NOTE = 1, 2, 3
LONGEST_NAME = 128


def tag(group: str) -> bytes:
    """What stands in front of each message of a group."""
    if not isinstance(group, str):
        raise TypeError(f'a group\'s name is a text, not {type(group).__name__}: write join("orders")')
    try:
        name = group.encode()
    except UnicodeEncodeError:
        name = b""
    if not name or len(name) > LONGEST_NAME:
        raise ConfigProblem(
            f"{group[:40]!r} cannot be a group's name: choose one of 1 to {LONGEST_NAME} bytes in UTF-8"
        )
    return bytes((MESSAGE, len(name))) + name


def tag_of(payload: bytes) -> bytes | None:
    """The tag of a payload off the ring; None if it is not a message to a group."""
    if len(payload) < 2 or payload[0] != MESSAGE or len(payload) < 2 + payload[1]:
        return None
    return payload[: 2 + payload[1]]


def describe(payload: bytes) -> tuple[str | None, int]:
    """The group of a payload, and the size of the message in it: for the trace."""
    found = tag_of(payload)
    if found is None:
        return None, len(payload)
    return found[2:].decode(errors="replace"), len(payload) - len(found)

"""The group a message is for, in front of its payload.

One byte says what it is (a message; a row of a producer, or a note about producers: `producers.py`), one how
long the group's name is, then the name and the message. Everything in front of the message is its *tag*, the
same for all messages of a group, so that telling groups apart is comparing prefixes.
"""

from __future__ import annotations

from functools import lru_cache

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
    """The tag of a payload off the ring; None if it is not a message to a group.

    Anything may have been multicast. What is no message is none at every member alike, since nothing but the
    payload is looked at; and whatever has a tag has a group's name in UTF-8 in it.
    """
    if len(payload) < 3 or payload[0] != MESSAGE:
        return None
    found = payload[: 2 + payload[1]]
    return found if _names_group(found) else None


@lru_cache(maxsize=4096)  # asked once a packet, of few groups
def _names_group(tag: bytes) -> bool:
    name = tag[2:]
    if not 0 < len(name) == tag[1] <= LONGEST_NAME:
        return False
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def describe(payload: bytes) -> tuple[str | None, int]:
    """The group of a payload, and the size of the message in it: for the trace."""
    found = tag_of(payload)
    if found is None:
        return None, len(payload)
    return found[2:].decode(), len(payload) - len(found)

"""What a message to a key asks for, in its headers, and how it is refused."""

from __future__ import annotations

import re
from typing import NamedTuple

from ordercast.clients import problems
from ordercast.clients.buckets.bucket import FULL, TOO_LARGE, WRONG_LAST, Stored
from ordercast.clients.buckets.settings import Settings
from ordercast.clients.problems import (
    BAD_REQUEST,
    NO_ROLLUP,
    NO_TTL,
    OTHER_STREAM,
    WRONG_TTL,
    Problem,
    unsupported,
)
from ordercast.core.headers import header

REFUSED_HEADERS = (
    *(
        "Nats-Expected-Last-Msg-Id",
        "Nats-Expected-Last-Sequence",
        "Nats-Expected-Last-Subject-Sequence-Subject",
    ),
    *("Nats-Incr", "Nats-Schedule", "Nats-Batch-Id"),
)
_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?\Z", re.ASCII)


class Put(NamedTuple):
    """What the headers of a message to a key say: arguments of `Bucket.put`."""

    expected: int | None
    rollup: bool
    lifetime_us: int
    identifier: str


def read_put(headers: bytes, settings: Settings) -> Put | Problem:
    """What the headers of a message to a key say; or why it is refused."""
    if not headers:
        return Put(None, False, 0, "")
    for name in REFUSED_HEADERS:
        if header(headers, name) is not None:
            return unsupported(name)
    if header(headers, "Nats-Expected-Stream") not in (None, settings.name):
        return OTHER_STREAM
    last = header(headers, "Nats-Expected-Last-Subject-Sequence")
    if last is not None and not (last.isascii() and last.isdigit() and len(last) < 19):
        return BAD_REQUEST._replace(description="Nats-Expected-Last-Subject-Sequence is no number")
    rollup = header(headers, "Nats-Rollup")
    if rollup is not None and rollup.lower() != "sub":
        return unsupported(f"Nats-Rollup: {rollup[:20]}")
    if rollup is not None and not settings.allow_rollup_hdrs:
        return NO_ROLLUP
    ttl = header(headers, "Nats-TTL")
    if ttl is not None and not settings.allow_msg_ttl:
        return NO_TTL
    lifetime_us = 0 if ttl is None else _lifetime_us(ttl)
    if lifetime_us is None:
        return WRONG_TTL
    identifier = header(headers, "Nats-Msg-Id") or ""
    return Put(None if last is None else int(last), rollup is not None, lifetime_us, identifier)


def _lifetime_us(text: str) -> int | None:
    """A time to live, in seconds or as in ``1h30m``; 0 for one without an end, None if it is none."""
    if text == "never":
        return 0
    if text.isascii() and text.isdigit() and len(text) < 10:
        seconds = int(text)
    else:
        found = _DURATION.match(text)
        hours, minutes, rest = (0, 0, 0) if found is None else (int(each or 0) for each in found.groups())
        seconds = (hours * 60 + minutes) * 60 + rest
    return seconds * 1_000_000 if seconds >= 1 else None


def refusal(stored: Stored) -> Problem | None:
    """Why a value was not put, as JetStream says it; None if it was."""
    match stored.refused:
        case "":
            return None
        case problem if problem == WRONG_LAST:
            wrong = problems.WRONG_LAST
            return wrong._replace(description=f"{wrong.description}: {stored.revision}")
        case problem if problem == TOO_LARGE:
            return problems.TOO_LARGE
        case problem if problem == FULL:
            return problems.FULL
    raise AssertionError(f"nobody knows what {stored.refused!r} means")

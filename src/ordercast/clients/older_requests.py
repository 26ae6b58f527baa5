"""Requests to JetStream for what is not in memory any more: it is looked up in the log first."""

from __future__ import annotations

from typing import NamedTuple

from ordercast.clients.consumers import read_time
from ordercast.clients.request_bodies import Create, Get, read
from ordercast.clients.stream import Entry, Older, Stream


class Looked(NamedTuple):
    """What was looked up."""

    first: int | None = None
    """The number from which on nothing is missing."""
    entry: Entry | None = None
    """The message that is wanted."""
    start: int | None = None
    """The number of the first message since the time that is wanted."""


def needs_older(stream: Stream, words: list[str], body: bytes) -> bool:
    """Whether the answer may depend on messages that are not in memory any more."""
    if stream.older is None or stream.first == 1:
        return False
    match words:
        case ["STREAM", "INFO", _]:
            return True
        case ["STREAM", "MSG", "GET", _] | ["DIRECT", "GET", _]:
            wanted = read(body, Get)
            return wanted is not None and stream.since <= (wanted.seq or 0) < stream.first
        case ["CONSUMER", "CREATE", *_]:
            return _start_ns(body) is not None
    return False


async def look(older: Older, words: list[str], body: bytes) -> Looked:
    """Look up what the answer needs. Raises `LogError`."""
    if words[1] == "INFO":
        return Looked(first=await older.first())
    if words[0] == "CONSUMER":
        start_ns = _start_ns(body)
        return Looked() if start_ns is None else Looked(start=await older.at_time(start_ns))
    wanted = read(body, Get)
    assert wanted is not None, "it was read before"
    assert wanted.seq is not None, "it is one that is not in memory"
    found = (await older.read(wanted.seq, wanted.next_by_subj)).entries
    if found and (wanted.next_by_subj is not None or found[0].number == wanted.seq):
        return Looked(entry=found[0])
    return Looked()


def _start_ns(body: bytes) -> int | None:
    """The time from which on a consumer is wanted, if it is a time."""
    wanted = read(body, Create)
    if wanted is None or wanted.config is None or wanted.config.deliver_policy != "by_start_time":
        return None
    return read_time(wanted.config.opt_start_time or "")

"""What JetStream tells of the stream."""

from __future__ import annotations

from typing import Any

from ordercast.clients.consumers import rfc3339
from ordercast.clients.stream import NAME, Stream


def account_info(stream: Stream, consumers: int, requests: int) -> dict[str, Any]:
    """What there is of JetStream."""
    return {
        "memory": 0,
        "storage": stream.bytes,
        "streams": 1,
        "consumers": consumers,
        "limits": {"max_memory": -1, "max_storage": -1, "max_streams": 1, "max_consumers": -1},
        "api": {"total": requests, "errors": 0},
    }


def stream_info(stream: Stream, consumers: int, oldest: int | None) -> dict[str, Any]:
    """Its settings and its state; `consumers` is how many there are, and `oldest` the number from which on
    nothing is missing in the log."""
    messages, begin = stream.messages, stream.first
    if oldest and stream.older is not None:
        begin = min(begin, max(oldest, stream.since))
        messages += stream.older.pending(begin, stream.first, None)
    first = next(stream.following(stream.first), None)
    last = stream.get(stream.last)
    never = "0001-01-01T00:00:00Z"
    return {
        "config": {
            "name": NAME,
            "subjects": list(stream.subjects),
            "retention": "limits",
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msgs_per_subject": -1,
            "max_msg_size": -1,
            "discard": "old",
            "storage": "file",
            "num_replicas": 1,
            "duplicate_window": 120_000_000_000,
            "allow_direct": True,
            "mirror_direct": False,
            "sealed": False,
            "deny_delete": True,
            "deny_purge": True,
            "allow_rollup_hdrs": False,
        },
        "created": rfc3339(stream.created_ns),
        "state": {
            "messages": messages,
            "bytes": stream.bytes,
            "first_seq": begin,  # a reader that has what is before it misses nothing here
            "first_ts": rfc3339(first.time_ns) if first is not None else never,
            "last_seq": stream.last,
            "last_ts": rfc3339(last.time_ns) if last is not None else never,
            "consumer_count": consumers,
        },
    }

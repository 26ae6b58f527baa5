"""What clients read of a bucket, as this node has it: values by key or number, and what there is."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from itertools import islice
from typing import Any

from ordercast.clients.buckets.bucket import Bucket, Entry
from ordercast.clients.buckets.settings import PREFIX, SUBJECTS, described
from ordercast.clients.consumers import rfc3339
from ordercast.clients.problems import NO_MESSAGE, Problem
from ordercast.clients.request_bodies import Get, Info

MOST_SUBJECTS = 100_000
"""Keys in one answer."""
NEVER = "0001-01-01T00:00:00Z"


def keys_of(name: str, subject: str) -> str:
    """The keys that a pattern of subjects describes in the bucket of a name, as a pattern of keys; empty if
    it describes none."""
    words = subject.split(".")
    for wanted in (SUBJECTS.rstrip("."), name):
        if words == [">"]:
            return ">"
        if words.pop(0) not in ("*", wanted) or not words:
            return ""
    return ".".join(words)


def find(name: str, bucket: Bucket, wanted: Get) -> int:
    """The number of the value that is wanted; 0 if there is none."""
    if wanted.last_by_subj is not None:
        return bucket.last_of(keys_of(name, wanted.last_by_subj))
    if wanted.next_by_subj is not None:
        keys = bucket.matching((keys_of(name, wanted.next_by_subj),))
        later = (each for key in keys for each in bucket.keys[key] if each >= (wanted.seq or 0))
        return min(later, default=0)
    return wanted.seq or 0


def as_json(name: str, bucket: Bucket, wanted: Get) -> dict[str, Any] | Problem:
    """The value that is wanted, in JSON."""
    revision = find(name, bucket, wanted)
    entry = bucket.entries.get(revision)
    if entry is None:
        return NO_MESSAGE
    told: dict[str, Any] = {
        "subject": f"{SUBJECTS}{name}.{entry.key}",
        "seq": revision,
        "data": base64.b64encode(entry.value).decode(),
        "time": rfc3339(entry.created_us * 1000),
    }
    if entry.headers:
        told["hdrs"] = base64.b64encode(entry.headers).decode()
    return {"message": told}


def as_message(name: str, bucket: Bucket, wanted: Get) -> tuple[bytes, bytes] | None:
    """The value that is wanted, as headers and body; None if there is none."""
    revision = find(name, bucket, wanted)
    entry = bucket.entries.get(revision)
    if entry is None:
        return None
    lines = {
        "Nats-Stream": PREFIX + name,
        "Nats-Subject": f"{SUBJECTS}{name}.{entry.key}",
        "Nats-Sequence": revision,
        "Nats-Time-Stamp": rfc3339(entry.created_us * 1000),
    }
    return more_headers(entry, lines.items()), entry.value


def more_headers(entry: Entry, lines: Iterable[tuple[str, object]]) -> bytes:
    """The headers of a value, and further ones."""
    own = entry.headers.removesuffix(b"\r\n") if entry.headers else b"NATS/1.0\r\n"
    return own + "".join(f"{name}: {value}\r\n" for name, value in lines).encode() + b"\r\n"


def info(name: str, bucket: Bucket, consumers: int, wanted: Info) -> dict[str, Any]:
    """What JetStream tells of a bucket's stream."""
    first = next(iter(bucket.entries), bucket.last + 1)
    state = {
        "messages": len(bucket.entries),
        "bytes": bucket.size,
        "first_seq": first,
        "first_ts": _time_of(bucket, first),
        "last_seq": bucket.last,
        "last_ts": _time_of(bucket, bucket.last),
        "num_subjects": len(bucket.keys),
        "consumer_count": consumers,
    }
    told: dict[str, Any] = {
        "config": described(bucket.settings),
        "created": rfc3339(bucket.created_us * 1000),
        "state": state,
    }
    if wanted.subjects_filter:
        keys, start = bucket.matching((keys_of(name, wanted.subjects_filter),)), wanted.offset or 0
        some = islice(keys, start, start + MOST_SUBJECTS)
        state["subjects"] = {f"{SUBJECTS}{name}.{key}": len(bucket.keys[key]) for key in some}
        told |= {"total": len(keys), "offset": start, "limit": MOST_SUBJECTS}
    return told


def _time_of(bucket: Bucket, revision: int) -> str:
    entry = bucket.entries.get(revision)
    return NEVER if entry is None else rfc3339(entry.created_us * 1000)

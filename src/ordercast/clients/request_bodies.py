"""What clients say in the bodies of their requests to JetStream."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from ordercast.clients.consumer_config import ConsumerConfig
from ordercast.core.wire import UNREADABLE

Number = Annotated[int, Meta(ge=0, lt=2**62)]
R = TypeVar("R")


class Create(msgspec.Struct, forbid_unknown_fields=True):
    """A consumer is wanted."""

    stream_name: str | None = None
    config: ConsumerConfig | None = None
    action: str | None = None
    pedantic: bool | None = None


class Get(msgspec.Struct, forbid_unknown_fields=True):
    """A message is wanted: that of a number, the last one of a subject, or the next one of it."""

    seq: Number | None = None
    last_by_subj: str | None = None
    next_by_subj: str | None = None


class Info(msgspec.Struct):
    """The body of a request to describe a stream."""

    subjects_filter: str | None = None
    offset: Number | None = None


class Names(msgspec.Struct):
    """Streams or consumers are to be named, behind the first so many."""

    subject: str | None = None
    offset: Number | None = None


class Purge(msgspec.Struct, forbid_unknown_fields=True):
    """Messages are to be removed: those below a number, or all but the last so many of each subject."""

    filter: str | None = None
    seq: Number | None = None
    keep: Number | None = None


def read(body: bytes, kind: type[R]) -> R | None:
    """What a request says; None if it is malformed."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except UNREADABLE:
        return None

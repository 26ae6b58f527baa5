"""The settings of a bucket, under the names that JetStream has for those of a stream; what there is not."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ordercast.clients.problems import BAD_REQUEST, Problem, unsupported

PREFIX = "KV_"
"""Begins the name of a bucket's stream."""
SUBJECTS = "$KV."
"""Begins the subjects of a bucket's keys."""
MOST_HISTORY = 64
"""Values of a key that a bucket keeps, at most."""
MOST_REPLICAS = 5
MOST_BYTES = 1024 * 1024 * 1024
"""Bytes that a bucket takes if it was created without a limit; no limit is higher."""
WINDOW_NS = 120_000_000_000
"""How long identifiers of messages (``Nats-Msg-Id``) are remembered, if nobody says how long."""
_BUCKET = re.compile(r"[-\w]{1,128}\Z", re.ASCII)
_Nanoseconds = Annotated[int, Meta(ge=0, lt=2**62)]
_Text = Annotated[str, Meta(max_length=4096)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a bucket is like. What is not here is refused."""

    name: Annotated[str, Meta(max_length=256)] | None = None
    subjects: list[str] | None = None
    description: _Text | None = None
    retention: Literal["limits", "interest", "workqueue"] = "limits"
    max_consumers: int = -1
    max_msgs: int = -1
    max_bytes: Annotated[int, Meta(ge=-1, lt=2**62)] = -1
    max_age: _Nanoseconds = 0
    max_msgs_per_subject: int = 0
    max_msg_size: Annotated[int, Meta(ge=-1, lt=2**31)] = -1
    discard: Literal["new", "old"] = "old"
    storage: Literal["file", "memory"] = "memory"
    """Most clients ask for ``file`` unless they are told otherwise; clients read ``memory``, which it is."""
    num_replicas: int = 1
    no_ack: bool = False
    duplicate_window: _Nanoseconds = 0
    placement: dict[str, Any] | None = None
    mirror: dict[str, Any] | None = None
    sources: list[dict[str, Any]] | None = None
    republish: dict[str, Any] | None = None
    subject_transform: dict[str, Any] | None = None
    subject_delete_marker_ttl: _Nanoseconds | None = None
    consumer_limits: dict[str, Any] | None = None
    discard_new_per_subject: bool = False
    template_owner: str | None = None
    first_seq: int | None = None
    compression: Literal["none", "s2"] = "none"
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    allow_direct: bool = False
    mirror_direct: bool = False
    allow_msg_ttl: bool = False
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: str | None = None
    metadata: Annotated[dict[_Text, _Text], Meta(max_length=64)] | None = None

    @property
    def limit(self) -> int:
        """Bytes that the bucket may take."""
        return MOST_BYTES if self.max_bytes < 0 else self.max_bytes


NEVER = (
    *("placement", "mirror", "sources", "republish", "subject_transform", "subject_delete_marker_ttl"),
    *("consumer_limits", "template_owner", "first_seq", "no_ack", "discard_new_per_subject", "sealed"),
    *(
        "deny_purge",
        "mirror_direct",
        "allow_msg_counter",
        "allow_atomic",
        "allow_msg_schedules",
        "persist_mode",
    ),
)
"""Settings that a bucket does not have, unless they say that something is not to be."""


def bucket_of(stream: str) -> str | None:
    """The bucket that a stream of this name would be; None if it would be none."""
    name = stream.removeprefix(PREFIX)
    return name if stream.startswith(PREFIX) and _BUCKET.match(name) is not None else None


def settled(wanted: Settings, bucket: str) -> Settings | Problem:
    """Settings with the values that stand for none replaced; or why there is no such bucket."""
    for name in NEVER:
        if getattr(wanted, name):
            return unsupported(name)
    subject = f"{SUBJECTS}{bucket}.>"
    refused = {
        f"retention {wanted.retention}": wanted.retention != "limits",
        "max_msgs": wanted.max_msgs > 0,
        "max_consumers": wanted.max_consumers > 0,
        f"discard {wanted.discard}": wanted.discard != "new",
        f"compression {wanted.compression}": wanted.compression != "none",
        f"a stream named {PREFIX}… with other subjects than {subject}": wanted.subjects
        not in (None, [subject]),
        f"a history of more than {MOST_HISTORY}": wanted.max_msgs_per_subject > MOST_HISTORY,
        "a bucket without max_msgs_per_subject": wanted.max_msgs_per_subject < 1,
        f"max_bytes above {MOST_BYTES:,}": wanted.max_bytes > MOST_BYTES,
        f"num_replicas above {MOST_REPLICAS}": not 0 <= wanted.num_replicas <= MOST_REPLICAS,
    }
    for what, there in refused.items():
        if there:
            return unsupported(what)
    stream = PREFIX + bucket
    if wanted.name not in (None, "", stream):
        return BAD_REQUEST._replace(description="stream name in subject does not match request")
    window = wanted.duplicate_window or WINDOW_NS
    return msgspec.structs.replace(
        wanted,
        **dict.fromkeys(NEVER_GIVEN),
        name=stream,
        subjects=[subject],
        description=wanted.description or None,
        metadata=wanted.metadata or None,
        storage="memory",
        max_msgs=-1,
        max_consumers=-1,
        max_bytes=wanted.max_bytes or -1,
        max_msg_size=wanted.max_msg_size or -1,
        num_replicas=wanted.num_replicas or 1,
        duplicate_window=min(window, wanted.max_age) if wanted.max_age else window,
    )


NEVER_GIVEN = tuple(
    each.name for each in msgspec.structs.fields(Settings) if each.name in NEVER and each.default is None
)


def described(settings: Settings) -> dict[str, Any]:
    """Settings as JetStream tells them."""
    told = msgspec.to_builtins(settings)
    return {name: value for name, value in told.items() if value is not None}

"""What a client asks of a consumer: which of JetStream's settings there are, and what the others get."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ordercast.clients.problems import (
    NO_HEARTBEAT,
    PULL_FLOW_CONTROL,
    PULL_HEARTBEAT,
    PUSH_WAITING,
    SHORT_HEARTBEAT,
    START,
    TOO_MANY_REPLICAS,
    Problem,
    unsupported,
)

SECOND = 1_000_000_000
LEAST_HEARTBEAT = SECOND // 10
Nanoseconds = Annotated[int, Meta(ge=0, lt=2**62)]
Text = Annotated[str, Meta(max_length=256)]


class ConsumerConfig(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a client wants of a consumer; what is not here is refused."""

    name: Text | None = None
    durable_name: Text | None = None
    description: Annotated[str, Meta(max_length=4096)] | None = None
    metadata: dict[str, str] | None = None
    deliver_policy: Literal[
        "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"
    ] = "all"
    opt_start_seq: Annotated[int, Meta(ge=0, lt=2**62)] | None = None
    opt_start_time: Text | None = None
    ack_policy: Literal["none", "explicit", "all"] = "none"
    ack_wait: Nanoseconds | None = None
    max_deliver: int | None = None
    filter_subject: Text | None = None
    filter_subjects: list[Text] | None = None
    replay_policy: Literal["instant", "original"] = "instant"
    deliver_subject: Text | None = None
    deliver_group: Text | None = None
    flow_control: bool | None = None
    idle_heartbeat: Nanoseconds | None = None
    headers_only: bool | None = None
    max_ack_pending: int | None = None
    max_waiting: int | None = None
    max_batch: int | None = None
    max_expires: Nanoseconds | None = None
    max_bytes: int | None = None
    inactive_threshold: Nanoseconds | None = None
    num_replicas: int | None = None
    mem_storage: bool | None = None
    sample_freq: Text | None = None
    rate_limit_bps: int | None = None
    backoff: list[int] | None = None
    pause_until: Text | None = None
    priority_groups: list[Text] | None = None
    priority_policy: Text | None = None
    direct: bool | None = None

    def refused(self, *, of_bucket: bool = False) -> Problem | None:
        """What of it there is not; None if there is all of it. Consumers of a bucket have what clients watch
        it with; they are not pulled from, and nothing is acknowledged to them.

        ``num_replicas`` and ``mem_storage`` are what a consumer has anyway: it is kept in the memory of one
        node. ``description`` and ``metadata`` are told again.
        """
        wanted = {
            "durable_name": self.durable_name,
            "filter_subjects": self.filter_subjects and not of_bucket,
            "deliver_group": self.deliver_group,
            "headers_only": self.headers_only and not of_bucket,
            "rate_limit_bps": self.rate_limit_bps,
            "backoff": self.backoff,
            "max_bytes": self.max_bytes,
            "max_batch": self.max_batch,
            "max_expires": self.max_expires,
            "pause_until": self.pause_until,
            "priority_groups": self.priority_groups,
            "priority_policy": self.priority_policy != "none" and self.priority_policy,
            "sample_freq": self.sample_freq,
            "direct": self.direct,
            f"replay_policy {self.replay_policy}": self.replay_policy != "instant",
            f"deliver_policy {self.deliver_policy}": self.deliver_policy == "last_per_subject"
            and not of_bucket,
            f"ack_policy {self.ack_policy}": self.ack_policy == "all"
            or (of_bucket and self.ack_policy != "none"),
            "a pull consumer of a bucket": of_bucket and self.deliver_subject is None,
        }
        for name, value in wanted.items():
            if value:
                return unsupported(name)
        if (self.num_replicas or 0) > 1:
            return TOO_MANY_REPLICAS
        return self._wrong_start() or self._wrong_mode()

    def _wrong_start(self) -> Problem | None:
        policy = self.deliver_policy.replace("_", " ")
        for name, given, wanting in (
            ("sequence", self.opt_start_seq, "by_start_sequence"),
            ("time", self.opt_start_time, "by_start_time"),
        ):
            if bool(given) != (self.deliver_policy == wanting):
                also = "also" if given else "not"
                words = f"{START.description} {policy}, but optional start {name} is {also} set"
                return START._replace(description=words)
        return None

    def _wrong_mode(self) -> Problem | None:
        """What only push consumers have, or only pull consumers."""
        if self.deliver_subject is None:
            if self.idle_heartbeat:
                return PULL_HEARTBEAT
            return PULL_FLOW_CONTROL if self.flow_control else None
        if self.max_waiting:
            return PUSH_WAITING
        if self.flow_control and not self.idle_heartbeat:
            return NO_HEARTBEAT
        return SHORT_HEARTBEAT if 0 < (self.idle_heartbeat or 0) < LEAST_HEARTBEAT else None


class Pull(msgspec.Struct, forbid_unknown_fields=True):
    """A request for messages."""

    batch: Annotated[int, Meta(ge=0, le=1_000_000)] = 1
    expires: Nanoseconds = 0
    no_wait: bool = False
    idle_heartbeat: Nanoseconds = 0
    max_bytes: Annotated[int, Meta(ge=0, lt=2**62)] = 0


class Nak(msgspec.Struct):
    """A message is to be given again, after so long."""

    delay: Nanoseconds = 0

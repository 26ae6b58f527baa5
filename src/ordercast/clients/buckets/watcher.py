"""A client that reads the keys of a bucket: a push consumer (JetStream) of the bucket's stream.

It is kept at the node that the client is connected to, and ends with the connection. What it has not given
yet it knows by number alone, so it takes no more room than there are values in the bucket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.clients.buckets.bucket import Bucket, Entry
from ordercast.clients.buckets.held import Held
from ordercast.clients.buckets.reads import more_headers
from ordercast.clients.buckets.settings import PREFIX, SUBJECTS
from ordercast.clients.consumer_config import SECOND, ConsumerConfig
from ordercast.clients.consumers import PUMPED, read_time, rfc3339
from ordercast.clients.flow_control import FlowControl
from ordercast.clients.stream import fits

if TYPE_CHECKING:
    from ordercast.clients.connection import ClientConnection

INACTIVE_S = 5.0
"""A consumer ends when its client has not subscribed to what it gives for so long, if the client does not say
for how long."""


class Watcher:
    """A consumer of a bucket."""

    def __init__(
        self,
        name: str,
        config: ConsumerConfig,
        patterns: Sequence[str],
        held: Held,
        client: ClientConnection,
    ) -> None:
        """`patterns` describe the keys that it is to give."""
        self.name = name
        self.config = config
        self.client = client
        self.held = held
        self.given = 0
        """Messages that were given."""
        self.last = 0
        """The number of the last of them."""
        self._patterns = patterns
        self._stream = PREFIX + held.name
        self._prefix = f"{SUBJECTS}{held.name}."
        self._deliver = config.deliver_subject or ""
        self._pending = deque(self._first(held.bucket))
        """The numbers of values that were not given yet."""
        self._seen = held.bucket.last
        """The number of the last value that is given or pending."""
        self._removed = held.bucket.removed
        """Values that had been removed when those that are pending were looked at."""
        self._flow = FlowControl(client, self._deliver, self._stream, name)
        self._loop = asyncio.get_running_loop()
        self._active = self._loop.time()
        """When its client was last subscribed to it."""
        self._created_ns = held.bucket.now_us * 1000
        self._pumping = self._ended = False
        self._quiet = True
        self._beat: asyncio.TimerHandle | None = None
        self._beat_later()

    def _first(self, bucket: Bucket) -> list[int]:
        """The numbers of the values that it begins with."""
        config, keys = self.config, bucket.matching(self._patterns)
        match config.deliver_policy:
            case "new":
                return []
            case "last":
                return sorted(bucket.keys[key][-1] for key in keys)[-1:]
            case "last_per_subject":
                return sorted(bucket.keys[key][-1] for key in keys)
        found = sorted(revision for key in keys for revision in bucket.keys[key])
        if config.deliver_policy == "by_start_sequence":
            return [each for each in found if each >= (config.opt_start_seq or 0)]
        if config.deliver_policy == "by_start_time":
            since_us = (read_time(config.opt_start_time or "") or 0) // 1000
            return [each for each in found if bucket.entries[each].created_us >= since_us]
        return found

    # --- giving ---------------------------------------------------------------------------------

    def _look(self) -> None:
        """Take in what has changed in the bucket."""
        bucket = self.held.bucket
        if bucket.removed != self._removed:
            self._removed = bucket.removed
            self._pending = deque(each for each in self._pending if each in bucket.entries)
        if bucket.last != self._seen:
            came = [each for each in bucket.since(self._seen) if self._wants(bucket.entries[each].key)]
            self._pending.extend(reversed(came))
            self._seen = bucket.last

    def _wants(self, key: str) -> bool:
        return any(fits(pattern, key) for pattern in self._patterns)

    def pump_soon(self) -> None:
        """Give what there is, in a turn of its own."""
        if not self._pumping and not self._ended:
            self._pumping = True
            self._loop.call_soon(self.pump)

    def pump(self) -> None:
        """Give what there is, as far as the client takes it."""
        self._pumping = False
        if self._ended or self.client.behind or not self.client.subscriptions.of(self._deliver):
            return
        self._look()
        for _ in range(PUMPED):
            if not self._pending or self.client.behind or self._flow.stalled:
                return
            revision = self._pending.popleft()
            self._give(revision, self.held.bucket.entries[revision])
        self.pump_soon()

    def _give(self, revision: int, entry: Entry) -> None:
        headers, body = entry.headers, entry.value
        if self.config.headers_only:
            headers, body = more_headers(entry, (("Nats-Msg-Size", len(body)),)), b""
        self.given += 1
        self.last = revision
        self._quiet = False
        places = f"1.{revision}.{self.given}.{entry.created_us * 1000}.{len(self._pending)}"
        reply = f"$JS.ACK.{self._stream}.{self.name}.{places}".encode()
        self.client.tell_as(self._deliver, self._prefix + entry.key, headers, body, reply)
        if self.config.flow_control:
            self._flow.sent(entry.size)

    def confirm(self, subject: str) -> None:
        """The client has handled all that came before a question."""
        if self._flow.confirm(subject):
            self.pump_soon()

    def _beat_later(self) -> None:
        if self.config.idle_heartbeat and not self._ended:
            self._beat = self._loop.call_later(self.config.idle_heartbeat / SECOND, self._beat_on)

    def _beat_on(self) -> None:
        """Say that nothing came, if that is so."""
        self._beat_later()
        if self._quiet:
            self.client.tell(self._deliver, self._flow.heartbeat(self.given, self.last), b"")
        self._quiet = True

    # --- its end --------------------------------------------------------------------------------

    @property
    def inactive(self) -> bool:
        """Whether its client has not been subscribed to it for longer than that may take."""
        now = self._loop.time()
        if self.client.subscriptions.of(self._deliver):
            self._active = now
        return now - self._active > ((self.config.inactive_threshold or 0) / SECOND or INACTIVE_S)

    def end(self) -> None:
        """The consumer is deleted."""
        self._ended = True
        if self._beat is not None:
            self._beat.cancel()

    def info(self) -> dict[str, Any]:
        """What JetStream tells of it."""
        self._look()
        return {
            "stream_name": self._stream,
            "name": self.name,
            "created": rfc3339(self._created_ns),
            "config": msgspec.to_builtins(self.config)
            | {
                "deliver_policy": self.config.deliver_policy,
                "ack_policy": self.config.ack_policy,
                "replay_policy": "instant",
            },
            "delivered": {"consumer_seq": self.given, "stream_seq": self.last},
            "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
            "num_ack_pending": 0,
            "num_redelivered": 0,
            "num_waiting": 0,
            "num_pending": len(self._pending),
            "push_bound": bool(self.client.subscriptions.of(self._deliver)),
        }

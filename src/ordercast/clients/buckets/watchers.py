"""The consumers of all buckets at a node, and what clients ask of them."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.clients.buckets.held import Held
from ordercast.clients.buckets.reads import keys_of
from ordercast.clients.buckets.settings import PREFIX
from ordercast.clients.buckets.watcher import Watcher
from ordercast.clients.consumer_config import ConsumerConfig
from ordercast.clients.consumers import read_time
from ordercast.clients.jetstream import MOST_CONSUMERS
from ordercast.clients.problems import (
    BAD_REQUEST,
    NAME_TAKEN,
    NO_CONSUMER,
    TOO_MANY,
    WILDCARDS,
    Problem,
    unsupported,
)
from ordercast.clients.request_bodies import Create
from ordercast.core.subjects import has_wildcards, is_pattern, is_queue, is_subject

if TYPE_CHECKING:
    from ordercast.clients.connection import ClientConnection

MOST_FILTERS = 64
"""Patterns of keys that a consumer may have."""


class Watchers:
    """All of them, by bucket and name."""

    def __init__(self) -> None:
        self._watchers: dict[tuple[str, str], Watcher] = {}
        self._of_clients: Counter[ClientConnection] = Counter()

    def __len__(self) -> int:
        return len(self._watchers)

    def of(self, held: Held) -> list[Watcher]:
        """The consumers of a bucket."""
        return [each for each in self._watchers.values() if each.held is held]

    # --- what clients ask -----------------------------------------------------------------------

    def begin(
        self, client: ClientConnection, held: Held, name: str, config: ConsumerConfig
    ) -> dict[str, Any] | Problem:
        """Give a client what it wants of a bucket."""
        if (held.name, name) in self._watchers:
            return NAME_TAKEN
        if self._of_clients[client] >= MOST_CONSUMERS:
            return TOO_MANY
        subjects = config.filter_subjects or [config.filter_subject or ">"]
        patterns = [keys for each in subjects if (keys := keys_of(held.name, each))]
        config = msgspec.structs.replace(config, name=name)
        watcher = self._watchers[held.name, name] = Watcher(name, config, patterns, held, client)
        self._of_clients[client] += 1
        told = watcher.info()
        watcher.pump_soon()
        return told

    def info(self, bucket: str, name: str) -> dict[str, Any] | Problem:
        """What JetStream tells of a consumer."""
        watcher = self._watchers.get((bucket, name))
        return NO_CONSUMER if watcher is None else watcher.info()

    def delete(self, bucket: str, name: str) -> dict[str, Any] | Problem:
        """A consumer is wanted no longer."""
        watcher = self._watchers.get((bucket, name))
        if watcher is None:
            return NO_CONSUMER
        self._end(watcher)
        return {"success": True}

    def confirm(self, client: ClientConnection, subject: str) -> bool:
        """A client says that it has handled what it got; False if that is no consumer of a bucket."""
        words = subject.split(".")
        if len(words) != 5 or not words[2].startswith(PREFIX):
            return False
        watcher = self._watchers.get((words[2].removeprefix(PREFIX), words[3]))
        if watcher is not None and watcher.client is client:
            watcher.confirm(subject)
        return True

    # --- what happens ---------------------------------------------------------------------------

    def changed(self, name: str, held: Held | None) -> None:
        """A bucket has changed, or is not there any more."""
        for watcher in list(self._watchers.values()):
            if watcher.held.name == name:
                if held is not watcher.held or held.bucket.closed:
                    self._end(watcher)
                else:
                    watcher.pump_soon()

    def look(self) -> None:
        """Called once a second: ends consumers that nobody uses."""
        for watcher in list(self._watchers.values()):
            if watcher.inactive:
                self._end(watcher)

    def drained(self, client: ClientConnection) -> None:
        """A client takes messages again, or over another subscription."""
        if self._of_clients[client]:
            for watcher in self._watchers.values():
                if watcher.client is client:
                    watcher.pump_soon()

    def forget(self, client: ClientConnection) -> None:
        """A client has ended."""
        for watcher in list(self._watchers.values()):
            if watcher.client is client:
                self._end(watcher)
        del self._of_clients[client]

    def close(self) -> None:
        """No client is given anything any more."""
        for watcher in list(self._watchers.values()):
            self._end(watcher)

    def _end(self, watcher: Watcher) -> None:
        watcher.end()
        del self._watchers[watcher.held.name, watcher.name]
        self._of_clients[watcher.client] -= 1


def wanted_of(bucket: str, rest: list[str], wanted: Create) -> tuple[str, ConsumerConfig] | Problem:
    """Name and settings of the consumer that is wanted; or what is wrong with them. `rest`: the words of the
    request's subject behind the stream."""
    config = wanted.config or ConsumerConfig()
    name = rest[0] if rest else config.name or secrets.token_urlsafe(12).replace("-", "a")
    problem = config.refused(of_bucket=True)
    if problem is not None:
        return problem
    patterns = config.filter_subjects or [config.filter_subject or ">"]
    if wanted.stream_name not in (None, PREFIX + bucket):
        return BAD_REQUEST._replace(description="stream name in subject does not match request")
    if wanted.action not in (None, "", "create"):
        return unsupported(f"action {wanted.action[:20]}")
    if (
        not is_queue(name)
        or "." in name
        or len(patterns) > MOST_FILTERS
        or not all(map(is_pattern, patterns))
    ):
        return BAD_REQUEST._replace(description="name or filter_subject is malformed")
    if len(rest) > 1 and ".".join(rest[1:]) != config.filter_subject:
        return BAD_REQUEST._replace(description="filter_subject in subject does not match request")
    deliver = config.deliver_subject or ""
    if not is_subject(deliver) or has_wildcards(deliver):
        return WILDCARDS
    if config.opt_start_time and read_time(config.opt_start_time) is None:
        return BAD_REQUEST._replace(description="opt_start_time is malformed")
    return name, config

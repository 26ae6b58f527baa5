"""What of JetStream there is, on the stream of a node with a log; all else gets JetStream's own errors."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.clients import wire
from ordercast.clients.consumer_config import ConsumerConfig, Pull
from ordercast.clients.consumers import Consumer, read_time, rfc3339
from ordercast.clients.flow_control import FLOW
from ordercast.clients.identifiers import Learning
from ordercast.clients.older_requests import Looked, look, needs_older
from ordercast.clients.parser import Publish
from ordercast.clients.problems import (
    BAD_REQUEST,
    INVALID_JSON,
    NAME_TAKEN,
    NO_CONSUMER,
    NO_MESSAGE,
    NO_STREAM,
    OTHER_STREAM,
    TOO_MANY,
    UNAVAILABLE,
    WILDCARDS,
    Problem,
    unsupported,
)
from ordercast.clients.request_bodies import Create, Get, Info, Names, read
from ordercast.clients.stream import MESSAGE_ID, NAME, Entry, Stream
from ordercast.clients.stream_info import account_info, stream_info
from ordercast.core.headers import header, read_head
from ordercast.core.subjects import has_wildcards, is_pattern, is_queue, is_subject, matches
from ordercast.core.wire import UNREADABLE
from ordercast.errors import LogError
from ordercast.process_groups.views import Numbered, Process

if TYPE_CHECKING:
    from ordercast.clients.connection import ClientConnection

LOG = logging.getLogger("ordercast")

API = "$JS.API."
ACK = "$JS.ACK."
PREFIX = "$JS."
TYPE = "io.nats.jetstream.api.v1."
LOOK_S = 1.0
"""How often `JetStream.look` is called."""
MOST_CONSUMERS = 1024
"""Consumers of one client."""
BUCKET = "KV_"
"""Begins the names of streams that are key-value buckets."""
NO_BUCKETS = (
    "key-value buckets are not supported here: they live in one partition, so give all nodes "
    'primary = "majority" and voters, or a protocol with a primary partition'
)
REFUSED_HEADERS = (
    "Nats-Expected-Last-Msg-Id",
    "Nats-Expected-Last-Sequence",
    "Nats-Expected-Last-Subject-Sequence",
    "Nats-Rollup",
    "Nats-TTL",
    "Nats-Incr",
    "Nats-Schedule",
    "Nats-Batch-Id",
)


class JetStream:
    """The consumers of a node's stream, and what is asked of them."""

    def __init__(
        self,
        stream: Stream,
        find: Callable[[int], ClientConnection | None],
        alone: Callable[[], bool] = lambda: False,
        kept: Callable[[], Awaitable[None]] | None = None,
        me: Callable[[], Process] = lambda: Process(0, 0, 0),
        send: Callable[[Sequence[bytes]], None] = lambda payloads: None,
    ) -> None:
        """`find` knows the client of a local process, by the process's number; `alone` says whether no other
        node has what is delivered here, `kept` waits until that is on the disk; `me`
        and `send` are those of `Learning`."""
        self.stream = stream
        self.requests = 0
        self.consumers: dict[str, Consumer] = {}
        self._find = find
        self._alone = alone
        self._kept = kept
        self.learning = Learning(stream, self._take, me, send)
        """Of identifiers of messages that this node missed."""
        self._next = stream.last + 1
        """The number that follows the last message."""
        self._looking: set[asyncio.Future[None]] = set()
        """Into the log, for answers."""
        self._waiting: set[asyncio.Future[None]] = set()
        """For messages to be on the disk that are to be acknowledged."""

    # --- publishing -----------------------------------------------------------------------------

    def acknowledges(self, subject: str, reply: str | None) -> bool:
        """Whether who publishes so is told the number of its message."""
        return bool(reply) and self.stream.covers(subject)

    def refuses(self, client: ClientConnection, message: Publish) -> bool:
        """Whether a message that is to be acknowledged is not sent: it is a repetition, or asks too much."""
        headers = message.payload[: message.headers]
        if not headers or message.reply is None or not self.stream.covers(message.subject):
            return False
        wanted = header(headers, "Nats-Expected-Stream")
        if wanted is not None and wanted != NAME:
            self._tell(client, message.reply, "pub_ack_response", OTHER_STREAM)
            return True
        for name in REFUSED_HEADERS:
            if header(headers, name) is not None:
                self._tell(client, message.reply, "pub_ack_response", unsupported(name))
                return True
        identifier = header(headers, MESSAGE_ID)
        number = self.stream.known(identifier) if identifier else None
        if number is None:
            return False
        self._acknowledge(client, [(message.reply, number, True)])
        return True

    def _end_those_before(self, number: int) -> None:
        """This node missed what is before that number: a consumer that has not given all of it ends, and its
        client makes another one, where the messages are."""
        for consumer in list(self.consumers.values()):
            if consumer.next < number:
                self.end(consumer)

    def unavailable(self, client: ClientConnection, message: Publish, why: str) -> None:
        """A message that is to be acknowledged cannot be ordered now: tell who published it."""
        assert message.reply is not None, "it is to be acknowledged"
        problem = UNAVAILABLE._replace(description=f"{UNAVAILABLE.description}: {why}")
        self._tell(client, message.reply, "pub_ack_response", problem)

    def numbered(self, numbered: Numbered, mine: bool) -> None:
        """Messages of the order; with `mine`, they are of processes of this node."""
        if numbered.first != self._next:
            self._end_those_before(numbered.first)
            self.learning.begin(numbered.first)
        self._next = numbered.first + len(numbered.batch.payloads)
        if self.learning.learning:
            self.learning.hold(numbered, mine)
        else:
            self._take(numbered, mine)

    def _take(self, numbered: Numbered, mine: bool) -> None:
        heads = None if numbered.heads is None else [read_head(words) for words in numbered.heads]
        told = self.stream.take(numbered, heads)
        if not told:
            return
        client = self._find(numbered.sender) if mine and heads is not None else None
        if client is not None:
            replies = [
                (head.reply.decode("utf-8", "replace"), number, repeated)
                for (number, repeated), head in zip(told, heads or (), strict=True)
                if head.reply
            ]
            if replies:
                self._acknowledge(client, replies)
        for consumer in self.consumers.values():
            if consumer.pushes or consumer.asked:
                consumer.pump_soon()

    def _acknowledge(self, client: ClientConnection, replies: Sequence[tuple[str, int, bool]]) -> None:
        """Tell numbers, and whether they are those of repetitions: where other nodes have the messages, now;
        alone, once they are on the disk."""

        def tell() -> None:
            for reply, number, repeated in replies:
                words = b',"duplicate":true}' if repeated else b"}"
                client.tell(reply, b"", b'{"stream":"%b","seq":%d' % (NAME.encode(), number) + words)
            client.flush()  # who waits for this has nothing else to come

        if self._kept is None or not self._alone():
            tell()
            return
        # The log is handed the messages right behind this; the waiting begins in the loop's next turn.
        waiting = asyncio.ensure_future(self._kept())
        self._waiting.add(waiting)

        def end(waited: asyncio.Future[None]) -> None:
            self._waiting.discard(waited)
            if not waited.cancelled():
                waited.result()
                tell()

        waiting.add_done_callback(end)

    # --- asking ---------------------------------------------------------------------------------

    def ask(self, client: ClientConnection, message: Publish) -> bool:
        """A client asks JetStream; False if there is nothing of that name."""
        subject, reply = message.subject, message.reply
        body = message.payload[message.headers :]
        if subject.startswith(ACK):
            self._on_ack(subject, body)
            if reply is not None:
                client.tell(reply, b"", b"")
            return True
        if subject.startswith(FLOW):
            consumer = self.consumers.get(subject.split(".")[-2])
            if consumer is not None and consumer.client is client:
                consumer.confirm(subject)
            return True
        if not subject.startswith(API):
            return False
        self.requests += 1
        if reply is None:
            return True
        words = subject.removeprefix(API).split(".")
        if needs_older(self.stream, words, body):
            looking = asyncio.ensure_future(self._ask_later(client, words, reply, body))
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)
        else:
            self._ask_now(client, words, reply, body, Looked())
        return True

    async def _ask_later(self, client: ClientConnection, words: list[str], reply: str, body: bytes) -> None:
        """Look into the log, and answer then."""
        assert self.stream.older is not None, "there are older messages"
        looked = Looked()
        try:
            looked = await look(self.stream.older, words, body)
        except LogError as error:
            LOG.warning("a client asks for what the log does not have: %s", error)
        self._ask_now(client, words, reply, body, looked)

    def _ask_now(
        self, client: ClientConnection, words: list[str], reply: str, body: bytes, looked: Looked
    ) -> None:
        if words[:3] == ["CONSUMER", "MSG", "NEXT"] and len(words) == 5:
            self._pull(client, words, reply, body)
        elif words[:2] == ["DIRECT", "GET"] and len(words) >= 3:
            self._direct(client, words, reply, body, looked)
        else:
            kind, answer = self._answer(client, words, body, looked)
            self._tell(client, reply, kind, answer)

    def _tell(
        self, client: ClientConnection, reply: str, kind: str, answer: dict[str, Any] | Problem
    ) -> None:
        if isinstance(answer, Problem):
            answer = {"error": answer._asdict()}
        client.tell(reply, b"", msgspec.json.encode({"type": TYPE + kind, **answer}))

    def _answer(
        self, client: ClientConnection, words: list[str], body: bytes, looked: Looked
    ) -> tuple[str, dict[str, Any] | Problem]:
        match words:
            case ["INFO"]:
                return "account_info_response", self.account()
            case ["STREAM", "NAMES"]:
                return "stream_names_response", self._names(body, full=False)
            case ["STREAM", "LIST"]:
                return "stream_list_response", self._names(body, full=True)
            case ["STREAM", "INFO", name]:
                return "stream_info_response", self._info(body, looked.first) if name == NAME else NO_STREAM
            case ["STREAM", "MSG", "GET", name]:
                return "stream_msg_get_response", self._get(body, looked) if name == NAME else NO_STREAM
            case ["CONSUMER", "CREATE", name, *rest] if len(rest) != 0 or name:
                return "consumer_create_response", self._create(client, name, rest, body, looked)
            case ["CONSUMER", "INFO", name, consumer]:
                found = self._consumer(name, consumer)
                return "consumer_info_response", found.info() if isinstance(found, Consumer) else found
            case ["CONSUMER", "DELETE", name, consumer]:
                found = self._consumer(name, consumer)
                if isinstance(found, Consumer):
                    self.end(found)
                    return "consumer_delete_response", {"success": True}
                return "consumer_delete_response", found
            case ["CONSUMER", ("NAMES" | "LIST") as what, name]:
                if name != NAME:
                    return f"consumer_{what.lower()}_response", NO_STREAM
                listed = list(self.consumers.values())[:256]
                told = [each.name for each in listed] if what == "NAMES" else [each.info() for each in listed]
                paging = {"total": len(self.consumers), "offset": 0, "limit": 256}
                return f"consumer_{what.lower()}_response", {"consumers": told, **paging}
        refused = f"{'.'.join(words[:3])[:60]} is not supported: the stream is the node's ordered log"
        if any(word.startswith(BUCKET) for word in words):
            refused = NO_BUCKETS
        return "error_response", BAD_REQUEST._replace(description=refused)

    def _consumer(self, stream: str, name: str) -> Consumer | Problem:
        if stream != NAME:
            return NO_STREAM
        return self.consumers.get(name) or NO_CONSUMER

    def account(self) -> dict[str, Any]:
        """What there is of JetStream."""
        return account_info(self.stream, len(self.consumers), self.requests)

    def _names(self, body: bytes, full: bool) -> dict[str, Any] | Problem:
        wanted = read(body, Names)
        if wanted is None:
            return INVALID_JSON
        found, start = self.listed(wanted.subject, full=full), wanted.offset or 0
        return {"streams": found[start:], "total": len(found), "offset": start, "limit": 256}

    def listed(self, subject: str | None, *, full: bool) -> list[Any]:
        """The stream's name, or all about it, if it has subjects that a pattern describes."""
        if subject is not None and not any(overlap(each, subject) for each in self.stream.subjects):
            return []
        return [self._info() if full else NAME]

    def _info(self, body: bytes = b"", first: int | None = None) -> dict[str, Any] | Problem:
        wanted = read(body, Info)
        if wanted is None:
            return INVALID_JSON
        if wanted.subjects_filter:
            return unsupported("subjects_filter")
        return stream_info(self.stream, len(self.consumers), first)

    # --- single messages ------------------------------------------------------------------------

    def _find_entry(self, wanted: Get, looked: Looked) -> Entry | None:
        if looked.entry is not None:
            return looked.entry
        if wanted.last_by_subj is not None:
            return self.stream.last_of(wanted.last_by_subj)
        if wanted.next_by_subj is not None:
            return next(self.stream.following(wanted.seq or 0, wanted.next_by_subj), None)
        return self.stream.get(wanted.seq or 0)

    def _get(self, body: bytes, looked: Looked) -> dict[str, Any] | Problem:
        wanted = read(body, Get)
        if wanted is None:
            return INVALID_JSON
        entry = self._find_entry(wanted, looked)
        if entry is None:
            return NO_MESSAGE
        told: dict[str, Any] = {
            "subject": entry.subject,
            "seq": entry.number,
            "data": base64.b64encode(entry.body).decode(),
            "time": rfc3339(entry.time_ns),
        }
        if entry.headers:
            told["hdrs"] = base64.b64encode(entry.headers).decode()
        return {"message": told}

    def _direct(
        self, client: ClientConnection, words: list[str], reply: str, body: bytes, looked: Looked
    ) -> None:
        if words[2] != NAME:
            self._tell(client, reply, "error_response", NO_STREAM)
            return
        wanted = Get(last_by_subj=".".join(words[3:])) if len(words) > 3 else read(body, Get)
        if wanted is None:
            client.tell(reply, wire.status(408, "Bad Request"), b"")
            return
        entry = self._find_entry(wanted, looked)
        if entry is None:
            client.tell(reply, wire.status(404, "Message Not Found"), b"")
            return
        own = entry.headers.removesuffix(b"\r\n") if entry.headers else b"NATS/1.0\r\n"
        lines = (
            f"Nats-Stream: {NAME}\r\nNats-Subject: {entry.subject}\r\nNats-Sequence: {entry.number}\r\n"
            f"Nats-Time-Stamp: {rfc3339(entry.time_ns)}\r\n\r\n"
        )
        client.tell(reply, own + lines.encode(), entry.body)

    # --- consumers ------------------------------------------------------------------------------

    def _create(
        self, client: ClientConnection, stream: str, rest: list[str], body: bytes, looked: Looked
    ) -> dict[str, Any] | Problem:
        if stream != NAME:
            return NO_STREAM
        try:
            wanted = msgspec.json.decode(body, type=Create)
        except msgspec.ValidationError as error:
            return BAD_REQUEST._replace(description=f"not supported: {error}"[:300])
        except UNREADABLE:
            return INVALID_JSON
        config = wanted.config or ConsumerConfig()
        refused = config.refused()
        if refused is not None:
            return refused
        if wanted.stream_name not in (None, NAME):
            return BAD_REQUEST._replace(description="stream name in subject does not match request")
        if wanted.action not in (None, "", "create", "update"):
            return BAD_REQUEST
        name = rest[0] if rest else config.name or secrets.token_urlsafe(12).replace("-", "a")
        pattern = config.filter_subject or None
        if not is_queue(name) or "." in name or (pattern is not None and not is_pattern(pattern)):
            return BAD_REQUEST._replace(description="name or filter_subject is malformed")
        if len(rest) > 1 and ".".join(rest[1:]) != pattern:
            return BAD_REQUEST._replace(description="filter_subject in subject does not match request")
        deliver = config.deliver_subject
        if deliver is not None and (not is_subject(deliver) or has_wildcards(deliver)):
            return WILDCARDS
        if name in self.consumers:
            return NAME_TAKEN
        if sum(1 for each in self.consumers.values() if each.client is client) >= MOST_CONSUMERS:
            return TOO_MANY
        start = self._start(config) if looked.start is None else looked.start
        if start is None:
            return BAD_REQUEST._replace(description="opt_start_time is malformed")
        consumer = self.consumers[name] = Consumer(
            name,
            msgspec.structs.replace(config, name=name, filter_subject=pattern),
            self.stream,
            client,
            start,
            self.end,
        )
        told = consumer.info()
        consumer.pump_soon()
        return told

    def _start(self, config: ConsumerConfig) -> int | None:
        """The number from which on a consumer reads."""
        stream = self.stream
        match config.deliver_policy:
            case "new":
                return stream.last + 1
            case "last":
                last = stream.last_of(config.filter_subject or ">")
                return last.number if last is not None else stream.last + 1
            case "by_start_sequence":
                return config.opt_start_seq
            case "by_start_time":
                time_ns = read_time(config.opt_start_time or "")
                return None if time_ns is None else stream.at_time(time_ns)
        return stream.first if stream.older is None else 1

    def _pull(self, client: ClientConnection, words: list[str], reply: str, body: bytes) -> None:
        found = self._consumer(words[3], words[4])
        if isinstance(found, Problem):
            client.tell(reply, wire.status(503), b"")
            return
        pull = (
            Pull()
            if not body
            else Pull(batch=int(body))
            if body.isdigit() and len(body) < 7
            else read(body, Pull)
        )
        if pull is None:
            client.tell(reply, wire.status(400, "Bad Request"), b"")
        elif found.pushes:
            client.tell(reply, wire.status(409, "Consumer is push based"), b"")
        else:
            found.ask(client, reply, pull)

    def _on_ack(self, subject: str, word: bytes) -> None:
        words = subject.split(".")
        if len(words) < 9 or words[2] != NAME or not words[5].isascii() or not words[5].isdigit():
            return
        consumer = self.consumers.get(words[3])
        if consumer is not None and len(words[5]) < 20:
            consumer.acknowledge(int(words[5]), word)

    def end(self, consumer: Consumer) -> None:
        """A consumer is there no longer; who waits for its messages is told."""
        for asked in list(consumer.asked):
            consumer.end_pull(asked, 409, "Consumer Deleted")
        consumer.end()
        self.consumers.pop(consumer.name, None)

    def forget(self, client: ClientConnection) -> None:
        """A client has ended, and its consumers with it."""
        for consumer in list(self.consumers.values()):
            if consumer.client is client:
                self.end(consumer)
            else:
                consumer.forget(client)

    def look(self) -> None:
        """Called once a second: ends consumers that nobody uses, and gives messages again that were not
        acknowledged in time."""
        self.learning.look(LOOK_S)
        for consumer in list(self.consumers.values()):
            if consumer.inactive:
                self.end(consumer)
            else:
                consumer.look()

    def drained(self, client: ClientConnection) -> None:
        """A client takes messages again, or over another subscription."""
        for consumer in self.consumers.values():
            if consumer.client is client:
                consumer.pump_soon()


def overlap(one: str, other: str) -> bool:
    """Whether there are subjects that both patterns may describe."""
    return one == other or matches(one, other) or matches(other, one)

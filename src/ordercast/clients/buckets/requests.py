"""What clients ask of buckets: requests to JetStream about streams that are buckets, and publishes to keys.

Each request is a task of its own, since its answer comes with the order: what a client reads is not older
than anything that was answered to anybody before it asked. Where that cannot be, it gets error 10008.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ordercast.clients import wire
from ordercast.clients.buckets import reads
from ordercast.clients.buckets.bucket import CLOSED, Stored
from ordercast.clients.buckets.held import ANSWER_S, Held, HeldBuckets, NoBucket, Objects, TooManyBuckets
from ordercast.clients.buckets.puts import read_put, refusal
from ordercast.clients.buckets.settings import PREFIX, SUBJECTS, Settings, bucket_of, settled
from ordercast.clients.buckets.watchers import Watchers, wanted_of
from ordercast.clients.flow_control import FLOW
from ordercast.clients.jetstream import API, TYPE, JetStream, overlap
from ordercast.clients.parser import Publish
from ordercast.clients.problems import (
    BAD_REQUEST,
    INVALID_JSON,
    NO_DELETING,
    NO_STREAM,
    STREAM_IN_USE,
    TOO_LARGE,
    TOO_MANY_STREAMS,
    UNAVAILABLE,
    Problem,
)
from ordercast.clients.request_bodies import Create, Get, Info, Names, Purge, read
from ordercast.core.subjects import has_wildcards
from ordercast.core.wire import UNREADABLE
from ordercast.errors import MessageTooLarge, OrdercastError
from ordercast.process_groups.views import Member

if TYPE_CHECKING:
    from ordercast.clients.connection import ClientConnection

MOST_REQUESTS = 4096
"""Requests of one client that wait for their answers; further ones are refused,"""
MOST_WAITING = 64 * 1024 * 1024
"""and so they are when those that wait have more bytes."""
OVERHEAD = 256
"""Bytes that a request counts for beyond its own."""
MOST_NAMED = 256
"""Streams or consumers in one answer."""
LISTS = (["INFO"], ["STREAM", "NAMES"], ["STREAM", "LIST"])
"""Requests that are about all streams."""
NO_RESPONDERS = wire.status(503)
PUBLISHED = "pub_ack_response"
R = TypeVar("R")


class Requests:
    """The buckets of a node, as clients see them."""

    def __init__(
        self,
        objects: Objects,
        members: Callable[[str], Sequence[Member]],
        serving: str,
        log: JetStream | None,
    ) -> None:
        """`objects` replicates, `members` are those of any process group, `serving` is the group of the nodes
        that serve clients; `log` has the one stream that is no bucket."""
        self.held = HeldBuckets(objects, members, serving, self._changed)
        self.watchers = Watchers()
        self._log = log
        self._requests = 0
        self._asking: dict[asyncio.Task[None], ClientConnection] = {}
        self._waiting: Counter[ClientConnection] = Counter()
        """Requests of each client that wait,"""
        self._waiting_bytes: Counter[ClientConnection] = Counter()
        """and their bytes."""

    def start(self) -> None:
        """Hold buckets from now on."""
        self.held.start()

    def close(self) -> None:
        """Answer nothing any more."""
        self.held.close()
        self.watchers.close()
        for task in self._asking:
            task.cancel()

    def look(self) -> None:
        """Called once a second."""
        self.watchers.look()

    def forget(self, client: ClientConnection) -> None:
        """A client has ended."""
        self.watchers.forget(client)
        for task, asking in list(self._asking.items()):
            if asking is client:
                task.cancel()

    def drained(self, client: ClientConnection) -> None:
        """A client takes messages again, or over another subscription."""
        self.watchers.drained(client)

    def _changed(self, name: str) -> None:
        self.watchers.changed(name, self.held.holding(name))

    def report(self) -> dict[str, int]:
        """What `ordercast status` shows."""
        return {"held": len(self.held), "watchers": len(self.watchers), "requests": self._requests}

    # --- requests -------------------------------------------------------------------------------

    def ask(self, client: ClientConnection, message: Publish) -> bool:
        """A client sends a message; False if it is no matter of buckets."""
        subject, reply = message.subject, message.reply
        if subject.startswith(SUBJECTS):
            self._begin(client, message, PUBLISHED, self._publish(client, message))
            return True
        if subject.startswith(FLOW):
            return self.watchers.confirm(client, subject)
        if not subject.startswith(API):
            return False
        words = subject.removeprefix(API).split(".")
        stream = _stream_of(words)
        if not stream.startswith(PREFIX) and words not in LISTS:
            return False
        if reply is not None:
            work = self._answer(client, words, stream, message)
            self._begin(client, message, "error_response", work)
        return True

    def _begin(
        self, client: ClientConnection, message: Publish, kind: str, work: Coroutine[Any, Any, None]
    ) -> None:
        """Answer a request, when its answer is known."""
        self._requests += 1
        size = len(message.payload) + OVERHEAD
        if self._waiting[client] >= MOST_REQUESTS or self._waiting_bytes[client] + size > MOST_WAITING:
            work.close()
            tell(
                client,
                message.reply,
                kind,
                _unavailable("too many requests of this client wait; send fewer at once"),
            )
            return
        self._waiting[client] += 1
        self._waiting_bytes[client] += size
        task = asyncio.create_task(self._carry_out(client, message.reply, kind, work))
        self._asking[task] = client

        def done(task: asyncio.Task[None]) -> None:
            work.close()  # if it was cancelled before it began
            del self._asking[task]
            self._waiting[client] -= 1
            self._waiting_bytes[client] -= size
            if not self._waiting[client]:
                del self._waiting[client], self._waiting_bytes[client]
            if not task.cancelled():
                task.result()

        task.add_done_callback(done)

    async def _carry_out(
        self, client: ClientConnection, reply: str | None, kind: str, work: Awaitable[None]
    ) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                await work
        except NoBucket:
            if kind != PUBLISHED:
                tell(client, reply, kind, NO_STREAM)
            elif reply is not None:
                client.tell(reply, NO_RESPONDERS, b"")  # nobody takes it, as with NATS
        except MessageTooLarge as error:
            tell(client, reply, kind, TOO_LARGE._replace(description=f"{TOO_LARGE.description}: {error}"))
        except TimeoutError:
            tell(client, reply, kind, _unavailable(f"no answer within {ANSWER_S:g} s; ask again"))
        except OrdercastError as error:
            tell(client, reply, kind, _unavailable(str(error)))
        client.flush()  # who waits for this has nothing else to come

    async def _publish(self, client: ClientConnection, message: Publish) -> None:
        _, name, key = [*message.subject.split(".", 2), ""][:3]
        if not key or has_wildcards(message.subject):
            raise NoBucket
        headers, body = message.payload[: message.headers], message.payload[message.headers :]
        while True:
            held = await self.held.find(name)
            put = read_put(headers, held.bucket.settings)
            if isinstance(put, Problem):
                tell(client, message.reply, PUBLISHED, put)
                return
            await self.held.enough(held.object)
            stored: Stored = await held.bucket.put(key, body, headers, *put)
            if stored.refused != CLOSED:
                break
            await self.held.removed(held)
        problem = refusal(stored)
        if problem is not None:
            tell(client, message.reply, PUBLISHED, problem)
        elif message.reply is not None:
            end = b',"duplicate":true}' if stored.repeated else b"}"
            stream = (PREFIX + name).encode()
            client.tell(message.reply, b"", b'{"stream":"%b","seq":%d' % (stream, stored.revision) + end)

    # --- JetStream ------------------------------------------------------------------------------

    async def _answer(
        self, client: ClientConnection, words: list[str], stream: str, message: Publish
    ) -> None:
        assert message.reply is not None, "somebody waits"
        body = message.payload[message.headers :]
        if words[:2] == ["DIRECT", "GET"]:
            await self._direct(client, words, stream, message.reply, body)
        else:
            kind, answer = await self._json(client, words, stream, body)
            tell(client, message.reply, kind, answer)

    async def _json(
        self, client: ClientConnection, words: list[str], stream: str, body: bytes
    ) -> tuple[str, dict[str, Any] | Problem]:
        """The answer to a request, and what kind of answer it is."""
        kind = f"{'_'.join(words[:2])}_response".lower()
        if words == ["INFO"]:
            return "account_info_response", self._account()
        if words in LISTS:
            return kind, await self._asked(
                body, Names, lambda wanted: self._list(wanted, full=words[1] == "LIST")
            )
        bucket = bucket_of(stream)
        if bucket is None:
            return "error_response", BAD_REQUEST._replace(description=f"{stream[:60]} is no name of a bucket")
        match words:
            case ["STREAM", ("CREATE" | "UPDATE") as what, _]:
                return kind, await self._asked(
                    body, Settings, lambda wanted: self._configure(bucket, wanted, anew=what == "CREATE")
                )
            case ["STREAM", "INFO", _]:
                return kind, await self._asked(body, Info, lambda wanted: self._info(bucket, wanted))
            case ["STREAM", "DELETE", _]:
                await self.held.delete(bucket)
                return kind, {"success": True}
            case ["STREAM", "PURGE", _]:
                return kind, await self._asked(body, Purge, lambda wanted: self._purge(bucket, wanted))
            case ["STREAM", "MSG", "GET", _]:
                return "stream_msg_get_response", await self._asked(
                    body, Get, lambda wanted: self._get(bucket, wanted)
                )
            case ["STREAM", "MSG", "DELETE", _]:
                return "stream_msg_delete_response", NO_DELETING
            case ["CONSUMER", "CREATE", _, *rest]:
                return kind, await self._asked(
                    body, Create, lambda wanted: self._watch(client, bucket, rest, wanted)
                )
            case ["CONSUMER", "INFO", _, name]:
                return kind, self.watchers.info(bucket, name)
            case ["CONSUMER", "DELETE", _, name]:
                return kind, self.watchers.delete(bucket, name)
            case ["CONSUMER", ("NAMES" | "LIST") as what, _]:
                return kind, await self._asked(
                    body, Names, lambda wanted: self._consumers(bucket, wanted, full=what == "LIST")
                )
        refused = f"{'.'.join(words[:2])[:60]} is not supported for key-value buckets"
        return "error_response", BAD_REQUEST._replace(description=refused)

    async def _asked(
        self, body: bytes, kind: type[R], then: Callable[[R], Awaitable[dict[str, Any] | Problem]]
    ) -> dict[str, Any] | Problem:
        """Answer a request that says more in its body."""
        try:
            wanted = msgspec.json.decode(body or b"{}", type=kind)
        except msgspec.ValidationError as error:
            return BAD_REQUEST._replace(description=f"not supported: {error}"[:300])
        except UNREADABLE:
            return INVALID_JSON
        try:
            return await then(wanted)
        except NoBucket:
            return NO_STREAM

    async def _current(self, name: str) -> Held:
        """A bucket as it is now. Raises `NoBucket`."""
        while True:
            held = await self.held.find(name)
            await held.fresh.wait()
            if not held.bucket.closed:
                return held
            await self.held.removed(held)

    def _told(self, held: Held, wanted: Info) -> dict[str, Any]:
        return reads.info(held.name, held.bucket, len(self.watchers.of(held)), wanted)

    async def _info(self, name: str, wanted: Info) -> dict[str, Any] | Problem:
        return self._told(await self._current(name), wanted)

    async def _configure(self, name: str, wanted: Settings, *, anew: bool) -> dict[str, Any] | Problem:
        """Create a bucket, or change one."""
        settings = settled(wanted, name)
        if isinstance(settings, Problem):
            return settings
        if not anew:
            held = await self._current(name)
            return self._told(held, Info()) if await held.bucket.configure(settings) else NO_STREAM
        try:
            held = await self.held.create(name, settings)
        except TooManyBuckets:
            return TOO_MANY_STREAMS
        if held.bucket.settings != settings:
            return STREAM_IN_USE
        return self._told(held, Info()) | {"did_create": True}

    async def _purge(self, name: str, wanted: Purge) -> dict[str, Any] | Problem:
        if wanted.seq and wanted.keep:
            return BAD_REQUEST._replace(description="purge has both seq and keep: write one of them")
        held = await self.held.find(name)
        await self.held.enough(held.object)
        keys = reads.keys_of(name, wanted.filter or ">")
        count = await held.bucket.purge(keys, wanted.keep or 0, wanted.seq or 0)
        return NO_STREAM if count < 0 else {"success": True, "purged": count}

    async def _get(self, name: str, wanted: Get) -> dict[str, Any] | Problem:
        return reads.as_json(name, (await self._current(name)).bucket, wanted)

    async def _direct(
        self, client: ClientConnection, words: list[str], stream: str, reply: str, body: bytes
    ) -> None:
        """A value as a message: its headers say where it is from."""
        wanted = Get(last_by_subj=".".join(words[3:])) if len(words) > 3 else read(body, Get)
        if wanted is None:
            client.tell(reply, wire.status(408, "Bad Request"), b"")
            return
        name = bucket_of(stream) or ""
        found = reads.as_message(name, (await self._current(name)).bucket, wanted)
        client.tell(reply, *(found or (wire.status(404, "Message Not Found"), b"")))

    async def _watch(
        self, client: ClientConnection, bucket: str, rest: list[str], wanted: Create
    ) -> dict[str, Any] | Problem:
        """Begin a consumer."""
        found = wanted_of(bucket, rest, wanted)
        if isinstance(found, Problem):
            return found
        return self.watchers.begin(client, await self._current(bucket), *found)

    async def _consumers(self, bucket: str, wanted: Names, *, full: bool) -> dict[str, Any] | Problem:
        found = self.watchers.of(await self._current(bucket))
        start = wanted.offset or 0
        some = found[start : start + MOST_NAMED]
        listed = [each.info() for each in some] if full else [each.name for each in some]
        return {"consumers": listed, "total": len(found), "offset": start, "limit": MOST_NAMED}

    # --- all streams ----------------------------------------------------------------------------

    async def _list(self, wanted: Names, *, full: bool) -> dict[str, Any]:
        """The names of all streams, or all about them."""
        found: list[Any] = [] if self._log is None else self._log.listed(wanted.subject, full=full)
        first = len(found)
        for name in await self.held.names():
            if wanted.subject is None or overlap(wanted.subject, f"{SUBJECTS}{name}.>"):
                found.append(name if full else PREFIX + name)
        start = wanted.offset or 0
        some = found[start : start + MOST_NAMED]
        if full:
            ours = some[max(0, first - start) :]
            told = await asyncio.gather(*(self._info_if_there(name) for name in ours))
            some = [*some[: max(0, first - start)], *(each for each in told if each is not None)]
        return {"streams": some, "total": len(found), "offset": start, "limit": MOST_NAMED}

    async def _info_if_there(self, name: str) -> dict[str, Any] | Problem | None:
        try:
            return await self._info(name, Info())
        except NoBucket:
            return None  # it was deleted meanwhile

    def _account(self) -> dict[str, Any]:
        """What this node has of JetStream, as it knows it."""
        held = [each.bucket for name in self.held.registry.buckets if (each := self.held.holding(name))]
        account: dict[str, Any] = {} if self._log is None else self._log.account()
        return {
            "memory": sum(each.size for each in held),
            "storage": account.get("storage", 0),
            "streams": account.get("streams", 0) + len(held),
            "consumers": account.get("consumers", 0) + len(self.watchers),
            "limits": {"max_memory": -1, "max_storage": -1, "max_streams": -1, "max_consumers": -1},
            "api": {"total": self._requests, "errors": 0},
        }


def tell(client: ClientConnection, reply: str | None, kind: str, answer: dict[str, Any] | Problem) -> None:
    """Answer a request in JSON, if somebody waits for that."""
    if reply is not None:
        if isinstance(answer, Problem):
            answer = {"error": answer._asdict()}
        client.tell(reply, b"", msgspec.json.encode({"type": TYPE + kind, **answer}))


def _unavailable(why: str) -> Problem:
    return UNAVAILABLE._replace(description=f"{UNAVAILABLE.description}: {why}")


def _stream_of(words: list[str]) -> str:
    """Which stream a request is about; empty if about none."""
    at = 3 if words[1:2] in (["MSG"], ["DURABLE"]) else 2
    return words[at] if len(words) > at else ""

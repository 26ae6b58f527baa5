"""Reads a subscription from a log (a stream of JetStream) and goes on after its last position.

The server keeps a consumer, which is asked for as many messages as there is room for. When the connection is
another one, when a message is missing or when nothing is heard any more, another consumer is made that begins
behind the last message that came.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from ordercast.client import wire
from ordercast.client.connection import Lost
from ordercast.client.events import Message
from ordercast.client.link import Link
from ordercast.client.parser import Delivered
from ordercast.client.subscription import Inbox
from ordercast.errors import NotAcknowledged, OrdercastError, Trimmed

MOST_AHEAD = 512
"""Messages that are asked for before they are read."""
MOST_BYTES = 4 * 1024 * 1024
"""Bytes of them, as far as the largest one so far tells."""
EXPIRES_S = 30
HEARTBEAT_S = 2
"""While nothing comes, a server says as often that it still is about to send."""
ANSWER_S = 5.0
"""A server that has not answered for so long is asked again."""
RETRY_S = 0.1
API = "$JS.API"
UNAVAILABLE = 10008
"""The error of a server that cannot say now: it is outside the primary partition, or there is no leader."""
LACKING_S = 30.0
"""How long servers are looked for that keep what follows, where not all of them said that they do not."""


async def ask(link: Link, what: str, question: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """The answer of JetStream; None if there is no JetStream. Asks again over fail-overs, and where a server
    cannot answer now."""
    payload = b"" if question is None else json.dumps(question).encode()
    while True:
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await link.request(f"{API}.{what}", payload)
        except (Lost, TimeoutError):
            await asyncio.sleep(RETRY_S)
            continue
        if wire.read_headers(answer.headers).status == 503:
            return None
        try:
            found = json.loads(answer.payload)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise NotAcknowledged(f"the node answers {answer.payload[:80]!r} to {what}: it is no JetStream")
        if (found.get("error") or {}).get("err_code") != UNAVAILABLE:
            return found
        link.move_on()
        await asyncio.sleep(RETRY_S)


async def find_stream(link: Link, subject: str) -> str | None:
    """The stream that keeps the subject, if there is one."""
    found = await ask(link, "STREAM.NAMES", {"subject": subject})
    names = (found or {}).get("streams") or []
    return names[0] if names else None


class LogReader:
    """One subscription that is read from a stream."""

    def __init__(self, link: Link, stream: str, subject: str) -> None:
        self.inbox = Inbox(subject, self._ask_more)
        self._link = link
        self._stream = stream
        self._subject = subject
        self._position = 0
        """The last place of the stream that was received, or that lies before the first wanted one."""
        self._consumer = ""
        """The name of the consumer; empty while there is none."""
        self._attempt = 0
        self._deliveries = 0
        """Messages that this consumer has delivered."""
        self._asked = 0
        """Messages that were asked for and have not come."""
        self._largest = 1
        """Bytes of the largest message so far."""
        self._heard_s = self._made_s = 0.0
        self._full = False
        """More has come than there is room for: it is asked for again when there is."""
        self._lacking: set[str] = set()
        """Servers that do not keep what follows, by address."""
        self._lacking_since = 0.0
        """Since when one is looked for that keeps it."""
        self._renew = asyncio.Event()
        self._prefix = link.new_inbox()
        self._sid = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self, first: int | None) -> None:
        """Begin at this place of the stream; None: behind its last one."""
        if first is None:
            told = await ask(self._link, f"STREAM.INFO.{self._stream}")
            first = int((told or {}).get("state", {}).get("last_seq", 0)) + 1
        self._position = first - 1
        self._sid = self._link.subscribe(f"{self._prefix}.*", self._on_delivered)
        self._link.on_connected.append(self._on_connected)
        self._link.on_ended.append(self._on_ended)
        try:
            await self._make_consumer()
        except BaseException:
            self.stop()
            raise
        self._task = asyncio.create_task(self._keep(), name="ordercast-log-reader")

    def stop(self) -> None:
        """Read nothing more."""
        self._forget()
        self._link.unsubscribe(self._sid)
        if self._on_connected in self._link.on_connected:
            self._link.on_connected.remove(self._on_connected)
            self._link.on_ended.remove(self._on_ended)
        if self._task is not None:
            self._task.cancel()

    def _on_ended(self, error: OrdercastError) -> None:
        self.inbox.end(error)
        if self._task is not None:
            self._task.cancel()

    def _on_connected(self) -> None:
        self._consumer = ""
        self._renew.set()

    def _forget(self) -> None:
        """The server need not keep the consumer any longer."""
        with suppress(OrdercastError):
            if self._consumer and (connection := self._link.connection) is not None:
                name = f"{API}.CONSUMER.DELETE.{self._stream}.{self._consumer}"
                connection.write(wire.publish(name, b""))
        self._consumer = ""

    # --- the consumer ---------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Make another consumer whenever one is needed."""
        loop = asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._renew.wait()
            silent = self._asked and loop.time() - self._heard_s > 3 * HEARTBEAT_S
            if not self._renew.is_set() and not silent:
                continue
            self._forget()
            await asyncio.sleep(max(0.0, self._made_s + RETRY_S - loop.time()))
            self._renew.clear()
            try:
                await self._go_on()
            except NotAcknowledged:  # a stream without a leader for now
                self._renew.set()
            except OrdercastError as error:
                self.inbox.end(error)
                return

    async def _go_on(self) -> None:
        """Make a consumer behind the last message; at another server if this one lacks what follows."""
        told = await ask(self._link, f"STREAM.INFO.{self._stream}")
        kept = int((told or {}).get("state", {}).get("first_seq", 0))
        if kept <= self._position + 1:
            self._lacking.clear()
            await self._make_consumer()
            return
        loop, connection = asyncio.get_running_loop(), self._link.connection
        if not self._lacking:
            self._lacking_since = loop.time()
        if connection is not None:
            self._lacking.add(connection.server.address)
        if len(self._lacking) < self._link.known_servers and loop.time() < self._lacking_since + LACKING_S:
            self._link.move_on()
            self._renew.set()
            return
        raise Trimmed(
            f"no server keeps {self._subject} from place {self._position + 1} of the log on any more: "
            f"the first one kept is {kept}; join anew with start={kept} to go on without what is missing"
        )

    async def _make_consumer(self) -> None:
        self._renew.clear()
        self._made_s = asyncio.get_running_loop().time()
        self._attempt += 1
        config: dict[str, Any] = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._position + 1,
            "ack_policy": "none",
            "replay_policy": "instant",
            "filter_subject": self._subject,
            "inactive_threshold": 60_000_000_000,
            "num_replicas": 1,
            "mem_storage": True,
        }
        question = {"stream_name": self._stream, "config": config}
        told = await ask(self._link, f"CONSUMER.CREATE.{self._stream}", question)
        if told is None or "error" in told:
            why = (
                "there is no JetStream"
                if told is None
                else told["error"].get("description", "no reason given")
            )
            raise NotAcknowledged(f"the log {self._stream} of {self._subject} cannot be read: {why}")
        if self._renew.is_set():
            return  # over a connection that is gone
        self._consumer = str(told["name"])
        self._deliveries = self._asked = 0
        self._ask_more()

    def _ask_more(self) -> None:
        """Ask for as many as there is room for, if that is worth a question."""
        if self.inbox.bytes > MOST_BYTES:
            return
        if self._full:
            self._full = False
            self._renew.set()
        if not self._consumer:
            return
        ahead = max(1, min(MOST_AHEAD, MOST_BYTES // self._largest))
        count = ahead - len(self.inbox) - self._asked
        if count < (ahead + 1) // 2:
            return
        try:
            connection = self._link.connection
        except OrdercastError:
            return
        if connection is None:
            return
        if not self._asked:
            self._heard_s = asyncio.get_running_loop().time()
        self._asked += count
        nanoseconds = 1_000_000_000
        question = {
            "batch": count,
            "expires": EXPIRES_S * nanoseconds,
            "idle_heartbeat": HEARTBEAT_S * nanoseconds,
        }
        name = f"{API}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        connection.write(wire.publish(name, json.dumps(question).encode(), f"{self._prefix}.{self._attempt}"))

    # --- what comes -----------------------------------------------------------------------------

    def _on_delivered(self, delivered: Delivered) -> None:
        place = _place(delivered.reply)
        if place is None:
            if delivered.subject == f"{self._prefix}.{self._attempt}":
                self._on_status(wire.read_headers(delivered.headers))
            return
        consumer, position, number = place
        if consumer != self._consumer:
            return
        self._heard_s = asyncio.get_running_loop().time()
        if number != self._deliveries + 1:
            self._consumer = ""
            self._renew.set()
            return
        headers = wire.read_headers(delivered.headers).fields if delivered.headers else {}
        message = Message(delivered.payload, delivered.subject, headers, "", position)
        self._largest = max(self._largest, message.size)
        if not self.inbox.has_room(message):
            self._consumer, self._full = "", True
            return
        self._deliveries = number
        self._position = position
        self._asked = max(0, self._asked - 1)
        self.inbox.put(message)
        self._ask_more()

    def _on_status(self, headers: wire.Headers) -> None:
        """What the server says of the question itself."""
        self._heard_s = asyncio.get_running_loop().time()
        if headers.status == 100:
            return
        if headers.status == 408:  # it has waited for messages as long as it was to
            left = headers.fields.get("Nats-Pending-Messages", "")
            self._asked = max(0, self._asked - int(left)) if left.isdigit() else 0
            self._ask_more()
        else:  # the consumer is gone, nobody has it, or it takes no question
            self._consumer = ""
            self._renew.set()


def _place(reply: str) -> tuple[str, int, int] | None:
    """Consumer, place in the stream and number of the delivery, of a message's ``$JS.ACK…``."""
    words = reply.split(".")
    if words[:2] != ["$JS", "ACK"] or len(words) < 9:
        return None
    at = 2 if len(words) == 9 else 4  # with domain and account
    if len(words) < at + 6 or not (words[at + 3].isdigit() and words[at + 4].isdigit()):
        return None
    return words[at + 1], int(words[at + 3]), int(words[at + 4])

"""A client of buckets without a connection: what it asks goes to the `Requests` of a node."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from ordercast.clients.buckets.requests import Requests
from ordercast.clients.buckets.settings import PREFIX, SUBJECTS
from ordercast.clients.parser import Publish
from ordercast.errors import Unanswered

SETTINGS: dict[str, Any] = {
    "discard": "new",
    "max_msgs_per_subject": 3,
    "allow_direct": True,
    "allow_rollup_hdrs": True,
    "allow_msg_ttl": True,
    "deny_delete": True,
}


class Refused(Exception):
    """An error of JetStream."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(told["description"])
        self.number: int = told["err_code"]


class AskingClient:
    """What `Requests` needs of a connection, and the other end of it."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.behind = False
        self.ended = ""
        self.subscriptions = self
        self.subscribed: dict[str, asyncio.Queue[tuple[str, bytes, bytes, bytes]]] = {}
        """What comes at subjects that it is subscribed to: subject, headers, body, reply."""
        self._numbers = itertools.count(1)

    # --- as a connection ------------------------------------------------------------------------

    def of(self, subject: str) -> list[Any]:
        return [self.subscribed[subject]] if subject in self.subscribed else []

    def tell(self, subject: str, headers: bytes, body: bytes, reply: bytes = b"") -> bool:
        self.tell_as(subject, subject, headers, body, reply)
        return subject in self.subscribed

    def tell_as(self, wanted: str, subject: str, headers: bytes, body: bytes, reply: bytes) -> None:
        if wanted in self.subscribed:
            self.subscribed[wanted].put_nowait((subject, headers, body, reply))

    def flush(self) -> None:
        """It is told at once."""

    # --- as a program ---------------------------------------------------------------------------

    def say(self, subject: str, body: bytes = b"", headers: bytes = b"", reply: str | None = None) -> bool:
        """Publish a message; whether buckets have to do with it."""
        message = Publish(subject, reply, len(headers), headers + body)
        return self.requests.ask(self, message)  # type: ignore[arg-type]

    async def ask(self, subject: str, body: bytes = b"", headers: bytes = b"") -> tuple[bytes, bytes]:
        """Headers and body of the answer."""
        reply = f"inbox.{next(self._numbers)}"
        come = self.subscribed[reply] = asyncio.Queue()
        try:
            assert self.say(subject, body, headers, reply)
            return (await come.get())[1:3]
        finally:
            del self.subscribed[reply]

    async def api(self, what: str, question: Any = "") -> dict[str, Any]:
        """The answer of JetStream. Raises `Refused`, or `Unanswered` where that cannot be told now."""
        body = json.dumps(question).encode() if question != "" else b""
        return _answer(await self.ask(f"$JS.API.{what}", body))

    async def create(self, bucket: str, **more: Any) -> None:
        await self.api(f"STREAM.CREATE.{PREFIX}{bucket}", SETTINGS | more)

    async def put(self, bucket: str, key: str, value: bytes, **headers: object) -> int:
        """Put a value; its number."""
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        told = f"NATS/1.0\r\n{lines}\r\n".encode() if lines else b""
        revision: int = _answer(await self.ask(f"{SUBJECTS}{bucket}.{key}", value, told))["seq"]
        return revision

    async def get(self, bucket: str, key: str) -> tuple[int, bytes] | None:
        """The number and the value that a key has; None if it has none, or there is no bucket."""
        subject = f"$JS.API.DIRECT.GET.{PREFIX}{bucket}.{SUBJECTS}{bucket}.{key}"
        headers, body = await self.ask(subject)
        if headers.startswith(b"NATS/1.0 404"):
            return None
        if not headers:
            try:
                _answer((headers, body))
            except Refused as error:
                if error.number == 10059:
                    return None
                raise
        lines = dict(line.split(": ", 1) for line in headers.decode().split("\r\n")[1:] if line)
        if lines.get("KV-Operation") in ("DEL", "PURGE"):
            return None
        return int(lines["Nats-Sequence"]), body


def _answer(come: tuple[bytes, bytes]) -> dict[str, Any]:
    headers, body = come
    if headers.startswith(b"NATS/1.0 503"):
        raise Refused({"err_code": 503, "description": "nobody listens"})
    answer: dict[str, Any] = json.loads(body)
    if "error" in answer:
        if answer["error"]["err_code"] == 10008:
            assert answer["error"]["code"] == 503
            raise Unanswered(answer["error"]["description"])
        raise Refused(answer["error"])
    return answer

"""A server of the NATS client protocol that misbehaves as it is told, on the event loop of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

Answer = Callable[["Talk", "Published"], None]


class Published(NamedTuple):
    """A message from a client."""

    subject: str
    reply: str
    headers: bytes
    payload: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.payload)

    def header(self, name: str) -> str | None:
        for line in self.headers.decode().split("\r\n"):
            found, _, value = line.partition(": ")
            if found == name:
                return value
        return None


class Talk:
    """One connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.connect: dict[str, Any] = {}
        self.subscriptions: dict[str, str] = {}
        """By subject, their numbers."""

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    def info(self, **fields: Any) -> None:
        self.say(b"INFO " + json.dumps(fields).encode() + b"\r\n")

    def deliver(self, subject: str, payload: bytes, reply: str = "", headers: bytes = b"") -> None:
        """To the subscription that wants it."""
        for wanted, sid in self.subscriptions.items():
            if subject == wanted or (wanted.endswith(".*") and subject.rpartition(".")[0] == wanted[:-2]):
                middle = f"{subject} {sid} {reply + ' ' if reply else ''}"
                if headers:
                    head = f"HMSG {middle}{len(headers)} {len(headers) + len(payload)}\r\n"
                else:
                    head = f"MSG {middle}{len(payload)}\r\n"
                self.say(head.encode() + headers + payload + b"\r\n")
                return
        raise AssertionError(f"nobody wants {subject}")

    def answer(self, to: Published, document: Any) -> None:
        self.deliver(to.reply, json.dumps(document).encode())

    def cut(self) -> None:
        self._writer.transport.abort()


class FakeServer:
    """Greets, lets clients in, and hands what they publish to `on_published`."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {"server_id": "fake", "max_payload": 1_000_000, "headers": True}
        self.refusal = ""
        """What clients are refused with."""
        self.answers_pings = True
        self.on_published: Answer = lambda talk, published: None
        self.talks: list[Talk] = []
        self.published: list[Published] = []
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeServer]:
        """At any port, until the end of the block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for talk in self.talks:
                talk.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = Talk(writer)
        self.talks.append(talk)
        talk.info(**self.fields)
        try:
            while line := await reader.readline():
                await self._line(talk, reader, line.split())
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _line(self, talk: Talk, reader: asyncio.StreamReader, words: list[bytes]) -> None:
        match words:
            case [b"CONNECT", *rest]:
                talk.connect = json.loads(b" ".join(rest))
                if self.refusal:
                    talk.say(f"-ERR '{self.refusal}'\r\n".encode())
            case [b"PING"]:
                if self.answers_pings and not self.refusal:
                    talk.say(b"PONG\r\n")
            case [b"SUB", subject, *_, sid]:
                talk.subscriptions[subject.decode()] = sid.decode()
            case [b"UNSUB", sid, *_]:
                for wanted, number in list(talk.subscriptions.items()):
                    if number == sid.decode():
                        del talk.subscriptions[wanted]
            case [b"PUB" | b"HPUB" as word, subject, *middle]:
                size, front = int(middle[-1]), int(middle[-2]) if word == b"HPUB" else 0
                reply = middle[0].decode() if len(middle) > 1 + (word == b"HPUB") else ""
                body = (await reader.readexactly(size + 2))[:size]
                published = Published(subject.decode(), reply, body[:front], body[front:])
                self.published.append(published)
                self.on_published(talk, published)
            case [b"PONG"]:
                pass
            case _:
                raise AssertionError(words)

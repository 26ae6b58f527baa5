"""Clients for programs without an event loop: the same API, with calls that block instead of coroutines.

    with ordercast.threads.Client("10.0.0.1:4222") as client:
        client.send("orders", b"one more", safe=True)
        for message in client.join("orders"):
            ...

The client runs on an event loop in a thread of its own. Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self, Unpack, overload

from ordercast.client import api
from ordercast.client.events import Acknowledged, Message
from ordercast.client.settings import ClientSettings
from ordercast.client.subscription import Subscription as AsyncSubscription
from ordercast.errors import ClientClosed
from ordercast.threads.loop import LoopThread, Runner, next_of


class Subscription:
    """The messages of a group, or of all that a pattern matches: iterate. See `ordercast.Client.join`."""

    def __init__(self, loop: LoopThread, subscription: AsyncSubscription) -> None:
        self._loop = loop
        self._subscription = subscription
        self.group = subscription.group
        self.logged = subscription.logged
        """Whether it is read from a log, so that its messages have numbers."""
        self._begun: Iterator[Message] = iter(())
        """Messages of a batch that is being read one by one."""
        self._batches = subscription.batches()
        self.last_seq: int | None = None
        """The place in the log of the message that was read last."""

    def __iter__(self) -> Iterator[Message]:
        while True:
            for message in self._begun:
                if message.seq is not None:
                    self.last_seq = message.seq
                yield message
            batch = self._loop.do(next_of(self._batches))
            if batch is None:
                return
            self._begun = iter(batch)

    def batches(self) -> Iterator[list[Message]]:
        """The messages, as many at a time as have come: the fast path."""
        if rest := list(self._begun):
            yield rest
        while (batch := self._loop.do(next_of(self._batches))) is not None:
            self.last_seq = batch[-1].seq
            yield batch

    def leave(self) -> None:
        """Receive nothing more."""
        self._loop.do(self._subscription.leave())


class Client:
    """A client of one node at a time. See `ordercast.Client`, which takes the same arguments."""

    def __init__(
        self, servers: str | Sequence[str] = "127.0.0.1:4222", **given: Unpack[ClientSettings]
    ) -> None:
        self._client = api.Client(servers, **given)
        self._runner = Runner(self._client, "Client", ClientClosed)

    def start(self) -> None:
        """Connect to a node. Raises `NotConnected` or `AccessDenied`."""
        self._runner.start()

    def stop(self) -> None:
        """Send what was accepted, and disconnect. Stopping again does nothing."""
        self._runner.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @overload
    def send(
        self,
        group: str,
        payload: bytes,
        *,
        safe: Literal[False] = False,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        reply: str = "",
        timeout: float | None = None,
    ) -> None: ...

    @overload
    def send(
        self,
        group: str,
        payload: bytes,
        *,
        safe: Literal[True],
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        number: int | None = None,
        timeout: float | None = None,
    ) -> Acknowledged: ...

    def send(
        self,
        group: str,
        payload: bytes,
        *,
        safe: bool = False,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        reply: str = "",
        number: int | None = None,
        timeout: float | None = None,
    ) -> Acknowledged | None:
        """Send a message to a group; ``safe``: wait until it is in the log, and tell where."""
        send = self._client.send
        if safe:
            waiting = send(
                group, payload, safe=True, key=key, headers=headers, number=number, timeout=timeout
            )
            return self._runner.loop.do(waiting)
        self._runner.loop.do(send(group, payload, key=key, headers=headers, reply=reply, timeout=timeout))
        return None

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the node has taken everything that was sent before."""
        self._runner.loop.do(self._client.flush(timeout))

    def join(
        self,
        group: str,
        *,
        queue: str = "",
        start: int | None = None,
        log: bool | None = None,
        timeout: float | None = None,
    ) -> Subscription:
        """Receive a group's messages from now on: iterate over what this returns."""
        loop = self._runner.loop
        joining = self._client.join(group, queue=queue, start=start, log=log, timeout=timeout)
        return Subscription(loop, loop.do(joining))

    def request(
        self,
        group: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 10.0,
    ) -> Message:
        """Send a request to a group, and wait for the first answer."""
        return self._runner.loop.do(self._client.request(group, payload, headers=headers, timeout=timeout))

    def respond(self, request: Message, payload: bytes, *, headers: Mapping[str, str] | None = None) -> None:
        """Answer a request."""
        self._runner.loop.do(self._client.respond(request, payload, headers=headers))

    @property
    def address(self) -> str | None:
        """The node that it is connected to; None between two of them."""
        return self._client.address

    @property
    def info(self) -> dict[str, Any]:
        """What that node tells of itself, in the words of NATS."""
        return self._client.info

    @property
    def connections(self) -> int:
        """How many connections it has had: one more with each fail-over."""
        return self._client.connections

    @property
    def number(self) -> int:
        """The number of the next safe message."""
        return self._client.number

"""Nodes for programs without an event loop: the same API, with calls that block instead of coroutines.

    with ordercast.threads.Node(seeds=["10.0.0.1:4801"]) as node:
        group = node.join("orders")
        group.send(b"one more")
        for event in group:
            ...

The node runs on an event loop in a thread of its own. Every method may be called from any thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from ordercast.core.identity import Configuration, NodeId
from ordercast.errors import NodeClosed
from ordercast.groups import api, receipts
from ordercast.groups.events import Change, Delivery, Event, Message
from ordercast.groups.settings import NodeSettings
from ordercast.objects.holding import TTL_S
from ordercast.process_groups.views import Member, Process
from ordercast.threads.loop import LoopThread, Runner, next_of
from ordercast.threads.objects import Election, Lock, Object, Replica

T = TypeVar("T")


class Receipt:
    """Ask it for the `result` to learn where the message was ordered."""

    def __init__(self, loop: LoopThread, receipt: receipts.Receipt) -> None:
        self._loop = loop
        self._receipt = receipt

    @property
    def done(self) -> bool:
        """Whether the message was delivered here."""
        return self._receipt.done

    def result(self, timeout: float | None = None) -> Message:
        """Wait until the sender itself has delivered the message."""
        return self._loop.do(self._result(timeout))

    async def _result(self, timeout: float | None) -> Message:
        async with asyncio.timeout(timeout):
            return await self._receipt


class Group:
    """A group: send to it, and iterate over what it delivers. See `ordercast.Group`."""

    def __init__(self, loop: LoopThread, group: api.Group) -> None:
        self._loop = loop
        self._group = group
        self.name = group.name
        self._begun: Iterator[Message] = iter(())
        """Messages of an entry that is being read one by one."""

    @overload
    def send(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
        receipt: Literal[False] = False,
    ) -> None: ...

    @overload
    def send(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
        receipt: Literal[True],
    ) -> Receipt: ...

    def send(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
        receipt: bool = False,
    ) -> Receipt | None:
        """Send a message to the group; blocks while the window is full."""
        send = self._group.send
        more: dict[str, Any] = {"key": key, "headers": headers, "resilience": resilience, "timeout": timeout}
        if receipt:
            return Receipt(self._loop, self._loop.do(send(payload, safe=safe, receipt=True, **more)))
        self._loop.do(send(payload, safe=safe, **more))
        return None

    def send_many(
        self,
        payloads: Sequence[bytes],
        *,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send messages, in order: the fast path."""
        self._loop.do(self._group.send_many(payloads, safe=safe, resilience=resilience, timeout=timeout))

    def batches(self) -> Iterator[Event]:
        """What is delivered, as it came: the messages of a packet together."""
        self._group.read_here()
        if rest := list(self._begun):
            yield Delivery.of(rest)
        entries = self._group.batches()
        while (entry := self._loop.do(next_of(entries))) is not None:
            yield entry

    def __iter__(self) -> Iterator[Message | Change]:
        for message in self._begun:
            self._group.note_reading()
            yield message  # `yield from` would end it with the loop that reads
        for entry in self.batches():
            if isinstance(entry, Delivery):
                self._begun = entry.messages()
                for message in self._begun:
                    self._group.note_reading()
                    yield message
            else:
                yield entry

    @property
    def members(self) -> tuple[Member, ...]:
        """Who is in the group, as this node knows it now."""
        return self._group.members

    @property
    def me(self) -> Process | None:
        """This member as the others know it; None if it was joined with ``receive=False``."""
        return self._group.me

    def leave(self) -> None:
        """Receive nothing more, and return when the others know."""
        self._loop.do(self._group.leave())


class Node:
    """One node. See `ordercast.Node`, which takes the same arguments."""

    def __init__(self, **given: Unpack[NodeSettings]) -> None:
        self._node = api.Node(**given)
        self._runner = Runner(self._node, "Node", NodeClosed)

    def start(self) -> None:
        """Bind, find the others, and install the first configuration."""
        self._runner.start()

    def stop(self) -> None:
        """Leave: what was accepted is sent first, and the others are told. Stopping again does nothing."""
        self._runner.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def join(
        self,
        group: str,
        *,
        properties: Mapping[str, str] | None = None,
        receive: bool = True,
        timeout: float | None = None,
    ) -> Group:
        """Be a member of a group, who says this of itself; or, with ``receive=False``, only send."""
        loop = self._runner.loop
        joining = self._node.join(group, properties=properties, receive=receive, timeout=timeout)
        return Group(loop, loop.do(joining))

    def send(
        self,
        groups: Sequence[str],
        payload: bytes,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Send a message to several groups, from outside: each member of any of them gets it once."""
        loop = self._runner.loop
        sending = self._node.send(
            groups,
            payload,
            key=key,
            headers=headers,
            safe=safe,
            resilience=resilience,
            timeout=timeout,
            receipt=True,
        )
        return Receipt(loop, loop.do(sending))

    def replicate(
        self,
        target: Object,
        name: str,
        *,
        durable: str | os.PathLike[str] | None = None,
        level: Literal["memory", "disk", "majority-disk"] | None = None,
        partition: Literal["primary", "merge"] = "primary",
        run: Literal["everywhere", "primary"] = "everywhere",
        history: str | None = None,
        timeout: float | None = None,
    ) -> Replica[Object]:
        """Replicate an object under a name. See `ordercast.Node.replicate`."""
        loop = self._runner.loop
        replicating = self._node.replicate(
            target,
            name,
            durable=durable,
            level=level,
            partition=partition,
            run=run,
            history=history,
            timeout=timeout,
        )
        return Replica(loop, loop.do(replicating))

    def lock(self, name: str, *, ttl: float = TTL_S) -> Lock:
        """A lock that one thread of all nodes holds at a time."""
        loop = self._runner.loop
        return Lock(loop, loop.do(self._made(lambda: self._node.lock(name, ttl=ttl))))

    def election(self, name: str, *, ttl: float = TTL_S, says: str = "") -> Election:
        """An election: one leader at a time, known to all."""
        loop = self._runner.loop
        return Election(loop, loop.do(self._made(lambda: self._node.election(name, ttl=ttl, says=says))))

    async def _made(self, make: Callable[[], T]) -> T:
        return make()

    @property
    def id(self) -> NodeId:
        """This node's identifier."""
        return self._node.id

    @property
    def incarnation(self) -> int:
        """Which of its lives this is."""
        return self._node.incarnation

    @property
    def address(self) -> str:
        """Where others reach it: a seed for them."""
        return self._node.address

    @property
    def configuration(self) -> Configuration:
        """The configuration installed last."""
        return self._node.configuration

    @property
    def members(self) -> tuple[NodeId, ...]:
        """The members of the configuration installed last."""
        return self._node.members

    def wait_for(self, members: int | Collection[NodeId], timeout: float | None = None) -> Configuration:
        """Wait until so many members, or these, share a regular configuration with this node."""
        return self._runner.loop.do(self._node.wait_for(members, timeout))

    def status(self) -> dict[str, Any]:
        """How the node is doing, for people and programs."""
        return self._runner.loop.do(self._status())

    async def _status(self) -> dict[str, Any]:
        return self._node.status()

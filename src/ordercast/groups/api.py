"""What an application uses: a `Node`, which is one member of a network of them, and the groups it joins.

`ordercast.threads` has the same with calls that block.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, Unpack, overload

from ordercast.core.identity import Configuration, Guarantee, NodeId
from ordercast.errors import ConfigProblem, MessageTooLarge, NodeClosed
from ordercast.groups.assembly import assemble
from ordercast.groups.envelope import tag
from ordercast.groups.events import ConfigurationChange, Delivery, Message
from ordercast.groups.inbox import Batches, Inbox, Messages
from ordercast.groups.member import Member
from ordercast.groups.session import Session
from ordercast.groups.settings import MoreSettings
from ordercast.keys import PREFIX, Keyring
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.environment import Environment, system

_CHUNK = 64 * 1024
"""Bytes of `send_many` that are handed over at a time."""


class Receipt:
    """Await it to learn where the message was ordered: it resolves when the sender itself delivers it."""

    def __init__(self, future: asyncio.Future[Message]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, Message]:
        return asyncio.shield(self._future).__await__()

    @property
    def done(self) -> bool:
        """Whether the message was delivered here."""
        return self._future.done()


class Group:
    """A group, as one member of it: send to it, and iterate over what it delivers.

    Iterating gives messages and configurations in the order that all members share. Several readers of one
    group join it several times. What a group delivers waits until it is read. Beyond a bound, who sends to it
    has to wait; a reader that then stands still is dropped, and gets `Evicted` behind what it had. Who only
    sends joins with ``receive=False``. A group that is dropped is left.
    """

    def __init__(self, member: Member, name: str, receive: bool) -> None:
        self.name = name
        self._member = member
        self._tag = tag(name)
        self._receiving: Inbox | None = None
        if receive:
            session = member.session
            self._receiving = session.open(self._tag, name)
            loop = asyncio.get_running_loop()
            weakref.finalize(self, _leave, loop, session, self._tag, self._receiving).atexit = False

    # --- sending --------------------------------------------------------------------------------

    @overload
    async def send(
        self,
        payload: bytes,
        *,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
        receipt: Literal[False] = False,
    ) -> None: ...

    @overload
    async def send(
        self,
        payload: bytes,
        *,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
        receipt: Literal[True],
    ) -> Receipt: ...

    async def send(
        self,
        payload: bytes,
        *,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
        receipt: bool = False,
    ) -> Receipt | None:
        """Send a message to the group; returns when it is accepted, which waits while the window is full, or
        while readers of the group do not keep up.

        ``safe``: it is delivered only once every member is known to have it. ``resilience``: once so many
        members are, where the protocol has such levels. ``timeout``: seconds to wait at most, then
        `SendTimeout` names who holds the group up. ``receipt``: answer with a `Receipt`.
        """
        member = self._member
        guarantee = Guarantee.SAFE if safe else Guarantee.AGREED
        if resilience is not None:
            guarantee = _level(member, safe, resilience)
        try:
            whole = self._tag + payload
        except TypeError:
            raise _not_bytes(payload) from None
        if len(whole) > member.gate.largest:
            raise _too_large(payload, member.gate.largest - len(self._tag))
        gate = member.gate
        if self._tag in gate.slow or not gate.has_room:
            await gate.wait(self._tag, len(whole), timeout)
        number = gate.submit((whole,), len(whole), guarantee)
        return Receipt(member.session.expect(number)) if receipt else None

    async def send_many(
        self,
        payloads: Sequence[bytes],
        *,
        safe: bool = False,
        resilience: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send messages, in order: the fast path. They are not one unit: others' may come between them."""
        member, gate, front = self._member, self._member.gate, self._tag
        guarantee = Guarantee.SAFE if safe else Guarantee.AGREED
        if resilience is not None:
            guarantee = _level(member, safe, resilience)
        if isinstance(payloads, bytes | bytearray | memoryview | str) or not isinstance(payloads, Sequence):
            raise TypeError(
                f"send_many takes a list of messages, each of them bytes, not {type(payloads).__name__}: "
                "for one message there is send"
            )
        try:
            longest = max(map(len, payloads), default=0)
        except TypeError:
            raise _not_bytes(next(p for p in payloads if not isinstance(p, bytes))) from None
        if longest + len(front) > member.gate.largest:
            raise _too_large(max(payloads, key=len), member.gate.largest - len(front))
        step = max(1, _CHUNK // (longest + len(front)))
        for start in range(0, len(payloads), step):
            try:
                some = [front + payload for payload in payloads[start : start + step]]
            except TypeError:
                raise _not_bytes(next(p for p in payloads if not isinstance(p, bytes))) from None
            size = sum(map(len, some))
            if front in gate.slow or not gate.has_room:
                await gate.wait(front, size, timeout)
            gate.submit(some, size, guarantee)

    # --- receiving ------------------------------------------------------------------------------

    def batches(self) -> AsyncIterator[Delivery | ConfigurationChange]:
        """What is delivered, as it came: the messages of a packet together. The fast path."""
        self.read_here()
        return Batches(self._inbox, self)

    def __aiter__(self) -> AsyncIterator[Message | ConfigurationChange]:
        self.read_here()
        return Messages(self._inbox, self)

    def read_here(self) -> None:
        """The running task, or thread, reads this group: it may send where others have to wait for it."""
        self._inbox.read_here()

    def note_reading(self) -> None:
        """The reader goes on with what it got before."""
        self._inbox.moved = True

    async def leave(self) -> None:
        """Receive nothing more. What waits to be read is dropped."""
        if self._receiving is not None:
            self._member.session.close(self._tag, self._receiving)

    @property
    def _inbox(self) -> Inbox:
        if self._receiving is None:
            raise RuntimeError(
                f"the group {self.name} was joined with receive=False: join it once more to read"
            )
        return self._receiving


def _leave(loop: asyncio.AbstractEventLoop, session: Session, front: bytes, inbox: Inbox) -> None:
    """A group was dropped, in whichever thread that happened."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(session.close, front, inbox)


class Node:
    """One node, and the groups it joins. Start it with ``async with``, or with `start` and `stop`."""

    def __init__(
        self,
        *,
        seeds: Sequence[str] = (),
        peers: Sequence[str] | None = None,
        listen: str | None = None,
        id: int | None = None,
        key: str | bytes | Path | Keyring | None = None,
        data: str | Path | None = None,
        trace: str | Path | None = None,
        log: str | Path | None = None,
        insecure: bool = False,
        protocol: str | None = None,
        settings: Mapping[str, Any] | None = None,
        config: NodeConfig | None = None,
        environment: Environment | None = None,
        **more: Unpack[MoreSettings],
    ) -> None:
        """All is optional: a node without seeds is the first of its group.

        ``protocol`` orders the messages, the same at all nodes (`ordercast protocols` compares them), with
        these ``settings`` of its own.
        ``config`` is a whole configuration, as `ordercast.load_config` reads it; anything else that
        `NodeConfig` knows may be given by name, and overrides it. ``environment``: the world around the node
        where that is not the operating system, as in tests with virtual time (`ordercast.testing`).
        """
        given: dict[str, Any] = {
            "seeds": seeds if isinstance(seeds, str) else tuple(seeds or ()) or None,
            "peers": peers if peers is None or isinstance(peers, str) else tuple(peers),
            "listen": listen,
            "id": id,
            "data": data,
            "trace": trace,
            "log": log,
            "insecure": insecure or None,
            "protocol": protocol,
            "protocol_settings": None if settings is None else dict(settings),
            **more,
        }
        if isinstance(key, Path) or (isinstance(key, str) and key and not key.lstrip().startswith(PREFIX)):
            given["key"] = Path(key)  # a file, which is looked after for changes
            key = None
        known = {name: value for name, value in given.items() if value is not None}
        self._keyring = None if key is None else Keyring.of(key)
        self.config = (config or NodeConfig()).with_changes(**known)
        self._environment = environment
        self._member: Member | None = None
        self._starting = False

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind, find the others, and install the first configuration.

        Where only a primary partition goes on, that can take until enough others are there.
        """
        if self._member is not None or self._starting:
            raise NodeClosed("this node was started before: make a new Node for another life")
        self._starting = True
        try:
            member = await assemble(self.config, self._keyring, self._environment or system())
            await member.begin()
            self._member = member
        finally:
            self._starting = False

    async def stop(self) -> None:
        """Leave: what was accepted is sent first, and the others are told. Stopping again does nothing."""
        if self._member is not None:
            await self._member.stop()

    async def closed(self) -> None:
        """Wait until the node has ended; raises the error that ended it."""
        await self._running.closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def _running(self) -> Member:
        if self._member is None:
            raise NodeClosed(
                "the node is not started: use `async with Node(…) as node`, or await node.start()"
            )
        return self._member

    # --- groups ---------------------------------------------------------------------------------

    async def join(self, group: str, *, receive: bool = True) -> Group:
        """Receive a group's messages from now on, and be able to send to it; or only the latter."""
        member = self._running
        member.check_open()
        return Group(member, group, receive)

    # --- looking --------------------------------------------------------------------------------

    @property
    def id(self) -> NodeId:
        """This node's identifier: the same in all its lives if it has a data directory."""
        return self._running.id

    @property
    def incarnation(self) -> int:
        """Which of its lives this is. It may begin another while it runs: see `Rejoined`."""
        return self._running.incarnation

    @property
    def address(self) -> str:
        """Where others reach it: a seed for them."""
        return self._running.address

    @property
    def configuration(self) -> Configuration:
        """The configuration installed last."""
        return self._running.configuration

    @property
    def members(self) -> tuple[NodeId, ...]:
        """The members of the configuration installed last."""
        return self.configuration.members

    async def wait_for(
        self, members: int | Collection[NodeId], timeout: float | None = None
    ) -> Configuration:
        """Wait until so many members, or these, share a regular configuration with this node."""
        return await self._running.wait_for(members, timeout)

    def status(self) -> dict[str, Any]:
        """How the node is doing, for people and programs; everything in it can be written as JSON."""
        return self._running.status()


def _level(member: Member, safe: bool, resilience: int) -> Guarantee:
    if not member.protocol.levels:
        raise ConfigProblem(
            f"resilience is {resilience}, but {member.protocol.name} has no levels of resilience: ask for "
            "safe delivery, or run a protocol that has them; `ordercast protocols` tells which do"
        )
    if safe:
        raise ValueError(f"safe and resilience={resilience} are both given: safe waits for all, choose one")
    return Guarantee.of(resilience)


def _not_bytes(payload: object) -> TypeError:
    advice = "encode it, as in text.encode()" if isinstance(payload, str) else "encode it first"
    return TypeError(f"a message is bytes, not {type(payload).__name__}: {advice}")


def _too_large(payload: bytes, most: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"a message of {len(payload):,} bytes is too large: at most {most:,} fit here; split it, or raise "
        "max_message_size at every node"
    )

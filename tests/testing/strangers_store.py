"""A replicated key-value store as somebody writes it on `Group` alone, without `Node.replicate`.

Each put raises the revision of its key. A member that comes asks for the entries; the member that has had
them for longest sends them, a few at a time, as they were when it was asked; and the one that came carries
out behind them what it has heard since it asked. If all members ask, nobody has any, and the first begins.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import ordercast
from ordercast import Group, Joined, Left, Message, Node, Process, Rejoined, Unanswered

ENTRIES_AT_A_TIME = 2
PAUSE_S = 0.002
"""Between two messages with entries: commands of others come between them."""


class Store:
    """The entries at one member."""

    def __init__(self, group: Group, node: int, *, aliasing: bool) -> None:
        """`aliasing` has the mistake in it: what is sent is not what was there when it was asked for."""
        self._group = group
        self._node = node
        self._aliasing = aliasing
        self.entries: dict[str, tuple[int, Any]] = {}
        """The revision and the value of each key."""
        self.ready = asyncio.Event()
        """The entries are here."""
        self._having: list[list[int]] = []
        """The members that have the entries, in the order in which they got them."""
        self._asked = 0
        """Counts what this member asked for."""
        self._since: list[Message | Left] | None = None
        """What was heard since it asked for the entries; None: it has them, or has not asked."""
        self._arriving: dict[str, tuple[int, Any]] = {}
        self._asking: dict[Process, int] = {}
        """Members that have asked for the entries, as far as this one has heard, and have not got them; and
        the number with which they did."""
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks = [asyncio.create_task(self._read())]

    @classmethod
    async def open(cls, node: Node, *, aliasing: bool = False) -> Store:
        """Be a member, and have the entries."""
        store = cls(await node.join("store"), node.id, aliasing=aliasing)
        await store.ready.wait()
        return store

    # --- what applications call -----------------------------------------------------------------

    async def put(self, key: str, value: Any) -> int:
        """The revision that the key has then."""
        revision: int = await self._ask({"do": "put", "key": key, "value": value})
        return revision

    async def get(self, key: str) -> Any:
        """Its value; None if it has none."""
        return await self._ask({"do": "get", "key": key})

    async def _ask(self, what: dict[str, Any]) -> Any:
        if not self.ready.is_set():
            raise Unanswered("the entries are not here")
        number = self._asked = self._asked + 1
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({**what, "number": number})
            return await future
        finally:
            del self._waiting[number]

    async def _send(self, what: dict[str, Any]) -> None:
        await self._group.send(json.dumps(what).encode(), safe=True)

    # --- what the group delivers ----------------------------------------------------------------

    async def _read(self) -> None:
        first = True
        async for event in self._group:
            match event:
                case Rejoined():
                    self._forget()
                    first = True
                case Joined() if first:
                    first = False
                    self._me = event.member.process
                    self._members = [member.process for member in event.members]
                    self._begin_asking()
                case Joined() | Left():
                    self._members = [member.process for member in event.members]
                    if isinstance(event, Left):
                        self._hear_or_wait(event)
                case Message():
                    self._hear_or_wait(event)

    def _hear_or_wait(self, event: Message | Left) -> None:
        if self._since is None:
            self._hear(event)
        else:
            self._wait_for_entries(event)

    def _forget(self) -> None:
        """The group went on without this member."""
        self.entries, self._having, self._since = {}, [], None
        self._asking.clear()
        self.ready.clear()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Unanswered("the group went on without this member"))

    def _begin_asking(self) -> None:
        self._asked += 1
        self._since, self._arriving, self._mine = [], {}, False
        self._later(self._send({"do": "want", "number": self._asked}))

    def _wait_for_entries(self, event: Message | Left) -> None:
        """Entries come; what else is heard waits for them, from where this member asked."""
        assert self._since is not None
        if isinstance(event, Left):
            if self._mine:
                self._since.append(event)
            self._begin_asking()  # perhaps it was the one that sends
            return
        told = json.loads(event.payload)
        if told["do"] == "want":
            self._asking[event.process] = told["number"]
            if event.process == self._me and told["number"] == self._asked:
                self._mine = True
            if self._me == min(self._members) and set(self._members) <= self._asking.keys():
                self._since, self._having = None, [list(self._me)]
                self.ready.set()
                for member in self._members:
                    if member != self._me:
                        self._give_later(member, self._asking[member])
                return
        elif told["do"] == "entries" and told["last"]:
            self._asking.pop(Process(*told["to"]), None)
        if told.get("to") == list(self._me) and told["for"] == self._asked:
            self._arriving |= {key: (revision, value) for key, revision, value in told["entries"]}
            if told["last"]:
                self.entries, self._having = self._arriving, told["having"]
                since, self._since = self._since, None
                for each in since:
                    self._hear(each)
                self._hear(event)
                self.ready.set()
                return
        if self._mine:
            self._since.append(event)

    def _hear(self, event: Message | Left) -> None:
        """Everybody who has the entries does this in the same order."""
        if isinstance(event, Left):
            self._having = [each for each in self._having if each != list(event.member.process)]
            return
        told = json.loads(event.payload)
        answer = None
        match told["do"]:
            case "put":
                revision, _ = self.entries.get(told["key"], (0, None))
                self.entries[told["key"]] = revision + 1, told["value"]
                answer = revision + 1
            case "get":
                answer = self.entries.get(told["key"], (0, None))[1]
            case "want":
                if self._having and self._having[0] == list(self._me) and event.process != self._me:
                    self._give_later(event.process, told["number"])
                return
            case "entries":
                if told["last"] and told["to"] not in self._having:
                    self._having.append(told["to"])
                return
        if event.process == self._me and told["number"] in self._waiting:
            future = self._waiting[told["number"]]
            if not future.done():
                future.set_result(answer)

    def _give_later(self, to: Process, number: int) -> None:
        """Send a member the entries as they are now."""
        entries = self.entries if self._aliasing else dict(self.entries)
        self._later(self._give(entries, list(self._having), number, to))

    async def _give(
        self, entries: dict[str, tuple[int, Any]], having: list[list[int]], number: int, to: Process
    ) -> None:
        keys = sorted(entries)
        parts = [keys[at : at + ENTRIES_AT_A_TIME] for at in range(0, len(keys), ENTRIES_AT_A_TIME)] or [[]]
        for at, part in enumerate(parts):
            told = [[key, *entries[key]] for key in part]
            last = at == len(parts) - 1
            await self._send(
                {
                    "do": "entries",
                    "to": list(to),
                    "for": number,
                    "entries": told,
                    "last": last,
                    "having": having,
                }
            )
            await asyncio.sleep(PAUSE_S)

    def _later(self, what: Any) -> None:
        async def attempt() -> None:
            try:
                await what
            except ordercast.OrdercastError:
                return  # a member that leaves, or is out of reach: who asked asks again

        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.create_task(attempt()))

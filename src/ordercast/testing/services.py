"""What runs at the nodes of a world, and who asks it for something."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ordercast.core.identity import NodeId
from ordercast.errors import (
    CommandFailed,
    CommandUnknown,
    ConfigProblem,
    NodeClosed,
    NoMajority,
    OrdercastError,
    Unanswered,
)
from ordercast.groups.api import Node
from ordercast.replicated.command import Command
from ordercast.replicated.session import Session
from ordercast.testing.event_loop import NodeProcess
from ordercast.testing.history import History
from ordercast.testing.models import Model

if TYPE_CHECKING:
    from ordercast.testing.world import World

T = TypeVar("T")
REFUSED_S = 20.0
"""A `ConfigProblem` that is the same for so long is a defect of the program."""
AGAIN_S = 0.1
"""After this time a program that ended with an error of the library is started again."""
LOOK_S = 0.01
"""How often a client looks whether a node serves it."""


class Raised(msgspec.Struct, frozen=True):
    """The result of a call that raised `CommandFailed`, in a history."""

    error: str
    args: tuple[Any, ...] = ()


class Service(Generic[T]):
    """An object at each node, which a program opened there in this life of the node; clients call it."""

    def __init__(self, open: Callable[[Node], Awaitable[T]], history: History, model: Model | None) -> None:
        self.history = history
        """What clients called, and what they were answered."""
        self.model = model
        """What is right."""
        self.name = getattr(open, "__name__", "service")
        self._open = open
        self._there: dict[NodeId, T] = {}

    def at(self, node: NodeId) -> T:
        """The object at a node. Raises `NodeClosed` while there is none."""
        if node not in self._there:
            raise NodeClosed(f"{self.name} has not opened anything at node {node} in this life of it yet")
        return self._there[node]

    @property
    def there(self) -> Mapping[NodeId, T]:
        """The objects by node, where there is one now."""
        return self._there

    async def run(self, node: Node) -> None:
        """Open the object at a node."""
        found = await self._open(node)
        self._there = dict(sorted([*self._there.items(), (node.id, found)]))

    def gone(self, node: NodeId) -> None:
        """That life of the node is over."""
        self._there.pop(node, None)


class Client:
    """Somebody who asks the nodes for something: outside of all of them, so that no fault reaches it."""

    def __init__(self, world: World, name: str, seed: str) -> None:
        self.name = name
        self.random = random.Random(seed)
        """For what this client does by chance."""
        self._calls: dict[int, str] = {}
        """Those that have not returned."""
        self._world = world
        self._at: NodeId = 0

    @property
    def waits_for(self) -> str:
        """The calls that have not returned; empty if there is none."""
        return ", ".join(self._calls.values())

    async def call(self, service: Service[Any], method: str, *args: Any, session: str | None = None) -> Any:
        """Call a method of the object at some node, and note in the service's history what comes of it.

        The client stays with its node until that fails, and then goes to another one. What was certainly not
        carried out is called again there. What may have been raises `Unanswered`; within a `session`
        (`ordercast.Session`) that is called again, too, until it is answered.
        """
        called = f"{method}({', '.join(map(repr, args))})"
        number = service.history.begin(self.name, method, *args)
        self._calls[number] = called
        try:
            while True:
                target, process = await self._target(service)
                self._world.at_moment(self._at, "client calls")
                try:
                    result = await process.ask(partial(_called, target, method, args, session))
                except CommandFailed as error:
                    service.history.end(number, Raised(type(error).__name__, error.args))
                    raise
                except (OrdercastError, TimeoutError, OSError) as error:
                    self._at = 0
                    if session is None and not _not_carried_out(error, target, method):
                        raise Unanswered(f"{called} was not answered: {error}") from error
                    await asyncio.sleep(LOOK_S)
                else:
                    service.history.end(number, result)
                    return result
        finally:
            del self._calls[number]

    async def _target(self, service: Service[Any]) -> tuple[Any, NodeProcess]:
        """The object at this client's node, or at another one."""
        while True:
            if self._at not in service.there:
                self._at = self.random.choice([0, *service.there])
            process = self._world.process(self._at)
            if process is not None and self._at in service.there:
                return service.there[self._at], process
            await asyncio.sleep(LOOK_S)


async def _called(target: Any, method: str, args: tuple[Any, ...], session: str | None) -> Any:
    with nullcontext() if session is None else Session(session):
        return await getattr(target, method)(*args)


def _not_carried_out(error: Exception, target: Any, method: str) -> bool:
    """Whether that is certain: for a single command of a replicated object that was never sent."""
    command = isinstance(inspect.getattr_static(target, method, None), Command)
    return command and isinstance(error, NoMajority | NodeClosed | CommandUnknown)


async def supervise(world: World, program: Callable[[Node], Awaitable[Any]], node: Node) -> None:
    """Run a program at a node as an init system would: an error that the library documents starts it again
    after a while. Any other is a defect of the program, and ends the test; so does a `ConfigProblem` that
    stays: one may pass, where a node is to be upgraded and the others have been."""
    refused, since = "", 0.0
    while True:
        try:
            await program(node)
            return
        except ConfigProblem as error:
            now = asyncio.get_running_loop().time()
            if str(error) != refused:
                refused, since = str(error), now
            elif now - since >= REFUSED_S:
                world.fail(error)
                return
            await asyncio.sleep(AGAIN_S)
        except (OrdercastError, TimeoutError, OSError):
            await asyncio.sleep(AGAIN_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test fails with it
            world.fail(error)
            return

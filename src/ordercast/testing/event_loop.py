"""An event loop in virtual time on which processes run that can be stopped and killed.

A *process* is all tasks and callbacks that one life of a node has: those that were begun in its context, and
those that these began. While it is stopped, as by SIGSTOP, none of them runs; what was due runs when it
goes on. When it is killed its tasks are cancelled, which is as near to ``kill -9`` as code in one interpreter
gets: what they do after that reaches nobody, since the process is cut off before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from ordercast.errors import OrdercastError
from ordercast.transport.virtual_time import VirtualTimeLoop

T = TypeVar("T")
MOST_CANCELLATIONS = 100
"""How often a task of a killed process is cancelled that goes on nevertheless."""


class ProcessEnded(OrdercastError):
    """The process that was to answer was killed."""


class NodeProcess:
    """The tasks and callbacks of one life of a node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopped = False
        """Nothing of it runs."""
        self.killed = False
        self._context = copy_context()
        self._context.run(_process.set, self)
        self._held: list[_OfProcess] = []
        """What was due while it was stopped."""
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._asked: dict[asyncio.Future[Any], None] = {}
        """What somebody outside waits for."""

    def start(self, what: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a task of the process."""
        return asyncio.get_running_loop().create_task(what, context=self._context.copy())

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function in the process, soon."""
        asyncio.get_running_loop().call_soon(function, *args, context=self._context.copy())

    async def ask(self, what: Callable[[], Awaitable[T]]) -> T:
        """Have something done in the process, and wait for what comes of it; `ProcessEnded` if the process is
        killed before."""
        if self.killed:
            raise ProcessEnded(f"{self.name} was killed")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked[answer] = None
        task = self.start(_answered(what, answer))
        try:
            return await answer
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            del self._asked[answer]

    def stop(self) -> None:
        """Nothing of it runs from now on."""
        self.stopped = True

    def go_on(self) -> None:
        """The process runs again, and what was due runs first."""
        self.stopped = False
        held, self._held = self._held, []
        for handle in held:
            handle.call_soon()

    def kill(self) -> None:
        """Nothing of it runs any more, but the end of its tasks: see `end`."""
        self.killed = self.stopped = True
        for answer in list(self._asked):
            if not answer.done():
                answer.set_exception(ProcessEnded(f"{self.name} was killed before it answered"))

    async def end(self, spared: str = "") -> None:
        """Cancel the tasks of a process that was killed, until none is left but those of that name."""
        self.go_on()
        for _ in range(MOST_CANCELLATIONS):
            left = [task for task in self._tasks if task.get_name() != spared]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1)
        names = ", ".join(task.get_name() for task in self._tasks)
        raise RuntimeError(
            f"{self.name} was killed, and {names} went on each of the {MOST_CANCELLATIONS} times that it was "
            "cancelled: let CancelledError through"
        )

    # --- what the event loop tells --------------------------------------------------------------

    def begun(self, task: asyncio.Task[Any]) -> None:
        """A task of the process was made."""
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if self.killed and not task.cancelled():
            task.exception()  # nobody is left who could want to know


async def _answered(what: Callable[[], Awaitable[T]], answer: asyncio.Future[T]) -> None:
    try:
        result = await what()
    except Exception as error:  # noqa: BLE001 - it is for who asked
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(result)


_process: ContextVar[NodeProcess | None] = ContextVar("process", default=None)


def current_process() -> NodeProcess | None:
    """The process that the caller is in; None: it is outside of all nodes."""
    return _process.get()


class _OfProcess(asyncio.Handle):
    """A callback of a process, which waits while that is stopped."""

    __slots__ = ()
    process: NodeProcess

    def _run(self) -> None:
        if self.process.stopped:
            self.process._held.append(self)
        else:
            super()._run()

    def call_soon(self) -> None:
        """The process goes on."""
        self._loop._ready.append(self)  # type: ignore[attr-defined]


class _Handle(_OfProcess):
    """One that is called soon."""

    __slots__ = ("process",)


class _TimerHandle(_OfProcess, asyncio.TimerHandle):
    """One that is called at a time."""

    __slots__ = ("process",)


class _Task(asyncio.Task[T]):
    """A task whose place in a set is the same in every run."""

    def __init__(self, number: int, *args: Any, **more: Any) -> None:
        self._number = number  # first, since it is put into a set at once
        super().__init__(*args, **more)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class WorldLoop(VirtualTimeLoop):
    """An event loop whose time begins at 0 and passes only while all tasks wait, with processes."""

    def __init__(self) -> None:
        super().__init__()
        self.on_stuck: Callable[[str], None] | None = None
        """Is told why there will be no end, if nothing happens any more or no time passes. It has to have
        something happen."""
        self._count = 0
        self.set_task_factory(self._make)

    def _on_stuck(self, why: str) -> None:
        if self.on_stuck is None:
            super()._on_stuck(why)
        else:
            self.on_stuck(why)

    def _make(self, loop: asyncio.AbstractEventLoop, what: Any, context: Context | None = None) -> Any:
        context = copy_context() if context is None else context
        self._count += 1
        task: _Task[Any] = _Task(self._count, what, loop=loop, context=context)
        process = context.get(_process)
        if process is not None:
            context.run(process.begun, task)
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call it in the next turn, or when its process goes on."""
        process = _process.get() if context is None else context.get(_process)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        handle = _Handle(callback, args, self, context)
        handle.process = process
        handle.call_soon()
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """There is one thread only."""
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call it at that time, or when its process goes on after that."""
        process = _process.get() if context is None else context.get(_process)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        handle = _TimerHandle(when, callback, args, self, context)
        handle.process = process
        return self._due_at(when, handle)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time; as `asyncio.run` does in real time."""
    with asyncio.Runner(loop_factory=WorldLoop) as runner:
        return runner.run(main)

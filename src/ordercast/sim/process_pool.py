"""Work shared out over processes: each task to whoever is free, each answer as soon as there is one."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import active_children, get_context
from typing import TypeVar

Task = TypeVar("Task")
Answer = TypeVar("Answer")


class WorkerDied(Exception):
    """A process ended before its work did: killed from outside, most likely for want of memory."""


AHEAD = 2
"""Tasks a process has been given, the one it works on included: it never waits for the next."""


def each(work: Callable[[Task], Answer], tasks: Iterable[Task], jobs: int) -> Generator[Answer, None, None]:
    """Yield ``work(task)`` for every task, in the order in which the answers come.

    With one job all is done here, in order. Otherwise `work` goes to new processes, so it has to be
    found by name (a function of a module, or a `functools.partial` of one). Whoever stops listening, by
    an interrupt or by closing the iterator, ends the processes at once.
    """
    if jobs <= 1:
        yield from map(work, tasks)
        return
    others = set(active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_hear_interrupts)
    try:
        yield from _answers(pool, work, iter(tasks), AHEAD * jobs)
    except BrokenProcessPool as error:
        raise WorkerDied("a process died at its work, perhaps for want of memory: try fewer jobs") from error
    except BaseException:
        for child in set(active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _answers(
    pool: ProcessPoolExecutor, work: Callable[[Task], Answer], tasks: Iterator[Task], most: int
) -> Iterator[Answer]:
    """Keep `most` tasks handed out, and no more: tasks may be made lazily and without end."""
    pending: set[Future[Answer]] = {pool.submit(work, task) for task in islice(tasks, most)}
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        pending |= {pool.submit(work, task) for task in islice(tasks, len(done))}
        for future in done:
            yield future.result()


def _hear_interrupts() -> None:
    """An interrupt from the terminal ends a worker silently: it is the parent's to speak."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

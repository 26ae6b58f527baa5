"""The decorator of tests that run in simulation, once for each seed."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import logging
import os
import random
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Concatenate, NamedTuple, ParamSpec

from ordercast.core.identity import NodeId
from ordercast.testing.event_loop import WorldLoop
from ordercast.testing.faults import (
    KINDS,
    OUTAGE,
    Chosen,
    Fault,
    check_kinds,
    draw_clocks,
    draw_faults,
    draw_weather,
)
from ordercast.testing.report import report
from ordercast.testing.rows import KeptRows
from ordercast.testing.shrinking import shrink
from ordercast.testing.world import LIMIT_S, World

P = ParamSpec("P")
SEED, FAULTS = "ORDERCAST_SEED", "ORDERCAST_FAULTS"
"""Variables of the environment that choose a seed (17, or 0:5000), and of its faults some (2,5:0.25)."""

CALM_SEED = 0
"""With this one a test is run once without faults, to see how long it takes."""

Test = Callable[[World], Coroutine[Any, Any, Any]]


class Settings(NamedTuple):
    """What the worlds of a test are like."""

    nodes: int
    protocol: str
    kinds: Collection[str]
    """Kinds of faults."""
    limit_s: float
    more: Mapping[str, Any]
    """What else `World` is given."""


class Run(NamedTuple):
    """What came of one run."""

    error: BaseException | None
    took_s: float
    """Virtual seconds until the test and its clients had ended, where they did."""
    faults: Sequence[tuple[float, str]]
    """What went wrong, and when."""
    rows: KeptRows | None


def simulated(
    nodes: int = 3,
    seeds: Iterable[int] = range(100),
    *,
    protocol: str = "totem",
    faults: bool | Collection[str] = True,
    voters: Sequence[NodeId] | None = None,
    durable: bool = False,
    settings: Mapping[str, Any] | None = None,
    rings: Mapping[int, Sequence[NodeId]] | None = None,
    limit_s: float = LIMIT_S,
    clients: bool = False,
    client_stream: Sequence[str] = (),
) -> Callable[[Callable[Concatenate[World, P], Coroutine[Any, Any, Any]]], Callable[P, None]]:
    """Run an ``async def test(world)`` once for each seed, in virtual time, with faults drawn from the seed.

    The result is a plain function: pytest collects it, and a script may call it. `faults`: which kinds are
    drawn, of `ordercast.testing.KINDS`; True is all, False none. `protocol`, `voters` and `settings` are
    those of the nodes: with Totem all of them vote, so that objects can be replicated. `durable`: what is
    answered is on the disks of a majority, so that any number of nodes may crash at once. `rings`: with
    `protocol="rings"`, the nodes on each network, by its number. A run that has not ended after `limit_s`
    virtual seconds fails. `clients`: nodes serve clients, for `World.connect`, and with `client_stream` these
    subjects from a log.

    The first seed that fails is run again with fewer and shorter faults. What is raised then tells these,
    draws the run, and says how to repeat it.
    """
    usual = (*KINDS, OUTAGE) if durable else KINDS
    kinds = usual if faults is True else tuple(faults or ())
    check_kinds(kinds)
    more: dict[str, Any] = {"voters": voters, "durable": durable, "settings": settings, "rings": rings}
    more |= {"clients": clients, "client_stream": client_stream}
    how = Settings(nodes, protocol, kinds, limit_s, more)

    def decorate(test: Callable[Concatenate[World, P], Coroutine[Any, Any, Any]]) -> Callable[P, None]:
        if not inspect.iscoroutinefunction(test):
            raise TypeError(f"{getattr(test, '__name__', test)} is simulated: make it an async def")

        @functools.wraps(test)
        def run_seeds(*args: P.args, **kwargs: P.kwargs) -> None:
            __tracebackhide__ = True

            def of_world(world: World) -> Coroutine[Any, Any, Any]:
                return test(world, *args, **kwargs)

            run_all(of_world, how, seeds, test.__qualname__)

        # a test runner shall see what it has to hand over itself
        signature = inspect.signature(test)
        parameters = list(signature.parameters.values())[1:]
        run_seeds.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        del run_seeds.__wrapped__
        return run_seeds

    return decorate


def run_all(test: Test, how: Settings, seeds: Iterable[int], name: str) -> None:
    """Run a test with all seeds, or with those that the environment asks for; raises for the first that
    fails."""
    __tracebackhide__ = True
    told = os.environ.get(SEED, "")
    chosen = os.environ.get(FAULTS)
    if told:
        seeds = _seeds(told)
    elif chosen is not None:
        raise ValueError("faults are chosen without a seed: say which seed they are of")
    calm = run_seed(test, how, CALM_SEED, ()) if how.kinds else None
    if calm is not None and calm.error is not None:
        seeds, chosen = (CALM_SEED,), "none"
    for seed in seeds:
        faults = [] if calm is None else faults_of(seed, how, calm.took_s)
        some = Chosen.of(faults) if chosen is None else Chosen.read(chosen)
        error = run_seed(test, how, seed, some.among(faults)).error
        if error is None:
            continue
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error
        tried = 0
        if chosen is None:
            again_with = functools.partial(_error_with, test, how, seed, faults)
            some, tried = shrink(faults, again_with, error)
        rows = KeptRows()
        again = run_seed(test, how, seed, some.among(faults), rows)
        raised = again.error or error
        repeated = again.error is not None
        raised.add_note(report(name, seed, some, again.faults, rows, tried=tried, repeated=repeated))
        raise raised


def _error_with(
    test: Test, how: Settings, seed: int, faults: Sequence[Fault], some: Chosen
) -> BaseException | None:
    return run_seed(test, how, seed, some.among(faults)).error


def _seeds(told: str) -> Iterable[int]:
    first, colon, last = told.partition(":")
    try:
        return range(int(first), int(last)) if colon else (int(first),)
    except ValueError:
        raise ValueError(f"the seed is {told!r}: give one, as in 17, or many, as in 0:5000") from None


def faults_of(seed: int, how: Settings, within_s: float) -> list[Fault]:
    """The faults that are drawn from a seed, for a test that takes so long without any."""
    return draw_faults(seed, range(1, how.nodes + 1), how.kinds, within_s)


def world_of(seed: int, how: Settings, rows: KeptRows | None = None) -> World:
    """The world of a seed, with its network and its clocks."""
    given = dict(how.more)
    if how.kinds:
        weather = draw_weather(seed)
        given |= {"loss": weather.loss, "delay_us": weather.delay_us}
        given["clocks_ahead_s"] = draw_clocks(seed, range(1, how.nodes + 1))
    return World(how.nodes, seed=seed, protocol=how.protocol, limit_s=how.limit_s, rows=rows, **given)


def run_seed(
    test: Test, how: Settings, seed: int, faults: Sequence[Fault], rows: KeptRows | None = None
) -> Run:
    """Run a test once; the same seed and faults give the same run."""
    world = world_of(seed, how, rows)
    with _alone(seed):
        error = _run(test, world, faults)
    return Run(error, world.took_s, world.faults, rows)


def _run(test: Test, world: World, faults: Sequence[Fault]) -> BaseException | None:
    runner = asyncio.Runner(loop_factory=WorldLoop)
    try:
        runner.run(_play(test, world, faults))
    except BaseException as error:  # noqa: BLE001 - the caller looks at it
        return error
    finally:
        with suppress(RuntimeError):  # of an event loop on which nothing can happen any more
            runner.close()
    return None


async def _play(test: Test, world: World, faults: Sequence[Fault]) -> None:
    try:
        await world.start()
        await world.play(test(world), faults)
    finally:
        await world.stop()


@contextmanager
def _alone(seed: int) -> Iterator[None]:
    """Nothing of the rest of the process reaches a run, and the other way round."""
    state, collects = random.getstate(), gc.isenabled()
    logger = logging.getLogger("ordercast")
    level = logger.level
    random.seed(f"{seed}/application")
    gc.disable()  # what it collects may do something, at any time
    logger.setLevel(max(level, logging.CRITICAL))
    try:
        yield
    finally:
        random.setstate(state)
        logger.setLevel(level)
        if collects:
            gc.enable()

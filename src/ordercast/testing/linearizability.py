"""Whether a history is linearizable: whether each operation could have taken effect at one moment between its
call and its return, so that all results are right.

The search is that of Wing and Gong with Lowe's improvements ("Testing for linearizability", 2017): it goes
through calls and returns in the order of time, and gives an operation its place only when it returns, behind
as few of the others that are under way as possible (just in time). What it has come to, the state and which
operations under way have their place, is never looked at twice. The history of each part of the state is
judged by itself. Where two ways to the same state differ in that one has used up more operations without an
answer, that one is not followed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from ordercast.testing.history import Call
from ordercast.testing.models import Model

MOST_STEPS = 5_000_000
"""Steps of the search, a few microseconds each, before it is given up."""
SHOWN = 12
"""Operations that a counterexample shows."""
MOST_STATES = 4
"""States that are told of one moment."""
COLUMNS = 44
"""Columns of the drawing, at most."""


class NotLinearizable(AssertionError):
    """No order of the operations explains their results."""

    def __init__(self, text: str, call: Call) -> None:
        super().__init__(text)
        self.call = call
        """The operation that returned what no order explains."""


class Undecided(Exception):
    """The search was given up."""


class _Event(NamedTuple):
    """An operation begins, or ends."""

    number: int
    call: Call
    ends: bool
    bit: int
    """Of this operation, among those with an answer that are under way, or those without one."""


class _Reached(NamedTuple):
    """What the search has come to."""

    at: int
    """The event that is next."""
    placed: int
    """The operations under way, with an answer, that have their place."""
    taken: int
    """Those without an answer."""
    state: Hashable


def linearizable(history: Iterable[Call], model: Model, *, most_steps: int = MOST_STEPS) -> bool:
    """Judge a history. True, or it raises `NotLinearizable`, an `AssertionError` that says in words and as a
    drawing what cannot be ordered.

    Operations without an answer may have taken effect or not. Many of them at once make the search long:
    `Undecided` is raised where `most_steps` were not enough.
    """
    parts: dict[Hashable, list[Call]] = {}
    for call in history:
        parts.setdefault(None if model.part is None else model.part(call), []).append(call)
    for calls in parts.values():
        _judge(calls, model, most_steps)
    return True


def _events(calls: list[Call]) -> list[_Event]:
    """Calls and returns in the order of time; at the same time calls are first."""
    times: list[tuple[float, bool, int]] = []
    for number, call in enumerate(calls):
        times.append((call.began, False, number))
        if call.ended is not None:
            if call.ended < call.began:
                raise ValueError(f"{call} ended at {call.ended}, before it began at {call.began}")
            times.append((call.ended, True, number))
    times.sort()
    events: list[_Event] = []
    free: list[int] = []
    bits: dict[int, int] = {}
    used = {True: 0, False: 0}
    for _, ends, number in times:
        answered = calls[number].ended is not None
        if ends:
            free.append(bits[number])
        elif answered and free:
            bits[number] = free.pop()
        else:
            bits[number] = 1 << used[answered]
            used[answered] += 1
        events.append(_Event(number, calls[number], ends, bits[number]))
    return events


def _judge(calls: list[Call], model: Model, most_steps: int) -> None:
    """Search for an order of the operations on one part of the state."""
    events = _events(calls)
    step = model.step
    under_way: list[tuple[_Event, ...]] = []
    """At each event, the operations that have begun and not ended before it."""
    there: dict[int, _Event] = {}
    for event in events:
        under_way.append(tuple(there.values()))
        if event.ends:
            del there[event.number]
        else:
            there[event.number] = event

    farthest, stuck_in = -1, set[Hashable]()
    # what comes first was got farthest with fewest unanswered operations; of such, the latest
    waiting: list[tuple[int, int, int, _Reached]] = [(0, 0, 0, _Reached(0, 0, 0, model.initial))]
    seen: dict[tuple[int, int, Hashable], list[int]] = {}
    steps = 0
    while waiting:
        at, placed, taken, state = heappop(waiting)[-1]
        # forward to the next return of an operation that has no place yet
        while at < len(events) and (not events[at].ends or placed & events[at].bit):
            if events[at].ends:
                placed &= ~events[at].bit
            at += 1
        if at == len(events):
            return
        with_less = seen.setdefault((at, placed, state), [])
        if any(less & taken == less for less in with_less):
            continue
        with_less.append(taken)
        if at > farthest:
            farthest, stuck_in = at, set()
        if at == farthest:
            stuck_in.add(state)

        successors: list[_Reached] = []
        for event in under_way[at]:
            unanswered = event.call.ended is None
            if event.bit & (taken if unanswered else placed):
                continue
            steps += 1
            result, after = step(state, event.call)
            if unanswered:
                if after != state:  # else it has no effect here
                    successors.append(_Reached(at, placed, taken | event.bit, after))
            elif result == event.call.result:
                successors.append(_Reached(at, placed | event.bit, taken, after))
                if event.call.name in model.reads:  # it is in nobody's way, and may as well be here
                    del successors[:-1]
                    break
        for successor in successors:
            steps += 1
            heappush(waiting, (-successor.at, successor.taken.bit_count(), -steps, successor))
        if steps > most_steps:
            raise Undecided(
                f"{len(calls)} operations, of which {sum(call.ended is None for call in calls)} have no "
                f"answer, could not be ordered within {most_steps:,} steps: judge shorter histories"
            )
    raise _counterexample(events, under_way[farthest], farthest, stuck_in, model)


# --- what is told of a counterexample --------------------------------------------------------------


def _counterexample(
    events: list[_Event], under_way: tuple[_Event, ...], farthest: int, states: set[Hashable], model: Model
) -> NotLinearizable:
    returning = events[farthest].call
    text = [f"not linearizable as a {model.name}: no order of the operations explains"]
    text.append(f"    {returning} of client {returning.client}, {_time(returning)}")
    told = sorted(map(repr, states))
    more = f" and {len(told) - MOST_STATES} more" if len(told) > MOST_STATES else ""
    text.append(f"before it returned, orders that explain the rest lead to the state {_or(told)}{more}")
    right = sorted({repr(model.step(state, returning)[0]) for state in states})
    text.append(f"there it would have returned {_or(right)}")
    shown = _shown(events, under_way, farthest)
    left_out = len({event.number for event in events[: farthest + 1]}) - len(shown)
    if left_out:
        text.append(f"({left_out} earlier operations are not shown)")
    return NotLinearizable("\n".join([*text, *draw(shown, returning)]), returning)


def _or(told: list[str]) -> str:
    return " or ".join(told[:MOST_STATES])


def _time(call: Call) -> str:
    ended = "" if call.ended is None else f" to {call.ended:.6f}"
    return f"{call.began:.6f}{ended} s"


def _shown(events: list[_Event], under_way: tuple[_Event, ...], farthest: int) -> list[Call]:
    """The operations under way when it returned, and those that ended last before it."""
    numbers = {event.number: event.call for event in under_way}
    for event in reversed(events[:farthest]):
        if len(numbers) >= SHOWN:
            break
        if event.ends:
            numbers.setdefault(event.number, event.call)
    return sorted(numbers.values(), key=lambda call: call.began)


def draw(calls: Iterable[Call], marked: Call | None = None) -> list[str]:
    """Operations as bars above each other, in lines: an operation that begins left of another's end overlaps
    it. The columns are calls and returns, not seconds."""
    calls = list(calls)
    last = max(call.began if call.ended is None else call.ended for call in calls)
    moments = sorted({time for call in calls for time in (call.began, call.ended) if time is not None})
    wide = max(1, COLUMNS // max(1, len(moments)))
    column = {moment: at * wide for at, moment in enumerate(moments)}
    names = [f"{call.client}: {call}" for call in calls]
    longest = max(map(len, names))
    lines = []
    for call, name in zip(calls, names, strict=True):
        begins = column[call.began]
        until = column[last] + 2 if call.ended is None else column[call.ended]
        end = "…" if call.ended is None else "┤"
        bar = " " * begins + "├" + "─" * max(0, until - begins - 1) + end
        mark = "  ◄" if call is marked else ""
        lines.append(f"    {name:<{longest}}  {bar}{mark}")
    return lines

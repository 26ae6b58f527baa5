"""Models: what a system would answer that did one operation after the other.

A model is data: a state to begin with, and a function from a state and a call to the result that is right and
the next state. States are compared and kept in sets: use numbers, strings, tuples and frozen sets.

    def step(state, call):
        match call.name, call.args:
            case "put", (key, value):
                return ANY, value
            case "get", (key,):
                return state, state

    MY_MAP = Model("map", None, step, part=lambda call: call.args[0], reads={"get"})
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any, Final, NamedTuple

from ordercast.testing.history import Call


class _Any:
    """Equals every result."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "anything"


ANY: Final = _Any()
"""The result of an operation of which every answer is right."""


class Model(NamedTuple):
    """What a right system answers: a state, and what each operation answers and makes of it."""

    name: str
    initial: Hashable
    """The state before all operations."""
    step: Callable[[Any, Call], tuple[Any, Hashable]]
    """The right result of a call in a state, and the state behind it. Where several results are right, look
    at the result of the call, and give that back if it is one of them; it is None if the call has not
    ended."""
    part: Callable[[Call], Hashable] | None = None
    """To which part of the state a call belongs, if parts have nothing to do with each other, as the keys of
    a map: each begins in the initial state, and is judged by itself, which takes much less time."""
    reads: Collection[str] = frozenset()
    """The names of operations that change no state: they are ordered in less time."""


def _unknown(model: str, call: Call) -> ValueError:
    return ValueError(
        f"the model of a {model} knows no {call.name} with {len(call.args)} arguments: take another name or "
        "write a model, see ordercast.testing.Model"
    )


def _map(value: Any, call: Call) -> tuple[Any, Any]:
    match call.name, call.args:
        case "get", (_,):
            return value, value
        case "put", (_, new):
            return ANY, new
        case "delete", (_,):
            return ANY, None
        case "compare_and_set", (_, old, new):
            return (True, new) if value == old else (False, value)
    raise _unknown("map", call)


def _lock(state: Any, call: Call) -> tuple[Any, Any]:
    holder, last = state
    match call.name, call.args:
        case "acquire", (who,):
            if holder is not None:
                return (None if call.result is None else False), state
            token = call.result
            if isinstance(token, int) and not isinstance(token, bool):  # a fencing token
                return (token, (who, token)) if last is None or token > last else (f"more than {last}", state)
            return True, (who, last)
        case "release", (who,):
            return (ANY, (None, last)) if holder == who else (ANY, state)
    raise _unknown("lock", call)


def _queue(waiting: Any, call: Call) -> tuple[Any, Any]:
    match call.name, call.args:
        case "put", (what,):
            return ANY, (*waiting, what)
        case "take", ():
            return (waiting[0], waiting[1:]) if waiting else (None, waiting)
    raise _unknown("queue", call)


def _counter(count: Any, call: Call) -> tuple[Any, Any]:
    match call.name, call.args:
        case "add", (number,):
            return (ANY if call.result is None else count + number), count + number
        case "get", ():
            return count, count
    raise _unknown("counter", call)


MAP: Final = Model("map", None, _map, part=lambda call: call.args[0], reads={"get"})
"""``put(key, value)``, ``get(key)``, ``delete(key)``, ``compare_and_set(key, old, new)`` -> whether; what is
not there is None. Values are hashable."""
LOCK: Final = Model("lock", (None, None), _lock)
"""``acquire(who)`` -> True, or a fencing token that is larger than those before it; None or False if somebody
holds it. ``release(who)``."""
QUEUE: Final = Model("queue", (), _queue)
"""``put(what)``, ``take()`` -> what has waited for longest; None if nothing waits."""
COUNTER: Final = Model("counter", 0, _counter, reads={"get"})
"""``add(number)`` -> the count behind it, or None; ``get()``."""

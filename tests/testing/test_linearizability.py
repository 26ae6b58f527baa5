"""The checker of histories, against one that tries all orders, and on histories of which it is known."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as some

from ordercast.testing import (
    ANY,
    COUNTER,
    LOCK,
    MAP,
    QUEUE,
    Call,
    History,
    Model,
    NotLinearizable,
    linearizable,
)
from ordercast.testing.linearizability import Undecided


def call(
    client: object, name: str, *args: Any, times: tuple[float, float | None], result: Any = None
) -> Call:
    return Call(client=client, name=name, args=args, began=times[0], ended=times[1], result=result)


def judge(history: Iterable[Call], model: Model) -> bool:
    try:
        return linearizable(history, model)
    except NotLinearizable:
        return False


# --- one that tries everything ---------------------------------------------------------------------


def subsets(calls: Sequence[Call]) -> Iterator[list[Call]]:
    for bits in range(2 ** len(calls)):
        yield [each for at, each in enumerate(calls) if bits >> at & 1]


def try_all(history: Sequence[Call], model: Model) -> bool:
    """Every order of the operations with an answer, and of every selection of the others."""
    answered = [each for each in history if each.ended is not None]
    others = [each for each in history if each.ended is None]
    return any(
        in_time(order) and explains(order, model)
        for chosen in subsets(others)
        for order in permutations([*answered, *chosen])
    )


def in_time(order: Sequence[Call]) -> bool:
    return not any(
        later.ended is not None and later.ended < earlier.began
        for at, earlier in enumerate(order)
        for later in order[at + 1 :]
    )


def explains(order: Sequence[Call], model: Model) -> bool:
    states: dict[Any, Any] = {}
    for each in order:
        part = None if model.part is None else model.part(each)
        result, states[part] = model.step(states.get(part, model.initial), each)
        if each.ended is not None and result != each.result:
            return False
    return True


OPERATIONS: dict[str, list[tuple[str, tuple[Any, ...], tuple[Any, ...]]]] = {
    "map": [
        *(("get", (key,), (None, 1, 2)) for key in "ab"),
        *(("put", (key, value), (None,)) for key in "ab" for value in (1, 2)),
        ("compare_and_set", ("a", 1, 2), (True, False)),
        ("delete", ("a",), (None,)),
    ],
    "lock": [
        *(("acquire", (who,), (True, None, False, 1, 2)) for who in (1, 2)),
        *(("release", (who,), (None,)) for who in (1, 2)),
    ],
    "queue": [*(("put", (what,), (None,)) for what in (1, 2)), ("take", (), (None, 1, 2))],
    "counter": [("add", (1,), (None, 1, 2)), ("add", (-1,), (0, 1)), ("get", (), (0, 1, 2))],
}
MODELS = {model.name: model for model in (MAP, LOCK, QUEUE, COUNTER)}


@some.composite
def histories(draw: some.DrawFn, name: str) -> list[Call]:
    """Up to six operations, at few different times."""
    found = []
    for client in range(draw(some.integers(1, 6))):
        operation, args, results = draw(some.sampled_from(OPERATIONS[name]))
        began = draw(some.integers(0, 8))
        ended = draw(some.one_of(some.none(), some.integers(began, began + 5)))
        found.append(
            call(client, operation, *args, times=(began, ended), result=draw(some.sampled_from(results)))
        )
    return found


@pytest.mark.parametrize("name", MODELS)
def test_it_finds_what_trying_all_orders_finds(name: str) -> None:
    model = MODELS[name]

    @hypothesis.settings(max_examples=150, database=None)
    @hypothesis.given(histories(name))
    def compare(history: list[Call]) -> None:
        assert judge(history, model) == try_all(history, model)

    compare()


# --- large ones ------------------------------------------------------------------------------------


def large(count: int, clients: int, seed: int, unanswered: float = 0.0, keys: int = 5) -> list[Call]:
    """A history of a map that did take each operation at one moment, some time after it was called."""
    chance = random.Random(seed)
    free = [0.0] * clients
    begun = []
    for _ in range(count):
        client = min(range(clients), key=free.__getitem__)
        began = free[client] + chance.random()
        ended = began + chance.random() * 3
        free[client] = ended
        key, value = chance.randrange(keys), chance.randrange(50)
        name, args = chance.choice(
            [("get", (key,)), ("put", (key, value)), ("compare_and_set", (key, chance.randrange(50), value))]
        )
        begun.append((chance.uniform(began, ended), client, name, args, began, ended))
    states: dict[int, Any] = {}
    history = []
    for _, client, name, args, began, ended in sorted(begun):
        key = args[0]
        made = call(client, name, *args, times=(began, ended))
        lost = chance.random() < unanswered
        result, after = MAP.step(states.get(key), made)
        if not lost or chance.random() < 0.5:  # what has no answer may have happened
            states[key] = after
        result = None if result is ANY else result
        history.append(call(client, name, *args, times=(began, None if lost else ended), result=result))
    chance.shuffle(history)
    return history


@pytest.mark.parametrize(("keys", "unanswered"), [(1, 0.0), (20, 0.01)])
def test_ten_thousand_operations_are_judged(keys: int, unanswered: float) -> None:
    history = large(10_000, clients=10, seed=1, unanswered=unanswered, keys=keys)
    assert linearizable(history, MAP)


@pytest.mark.parametrize("seed", range(8))
def test_one_wrong_result_among_many_operations_is_found(seed: int) -> None:
    history = large(2_000, clients=8, seed=seed, unanswered=0.005)
    written = 1_000_000  # which nobody ever wrote
    at = next(
        at for at, each in enumerate(history) if each.name == "get" and each.ended is not None and at > 500
    )
    wrong = history[at]
    assert wrong.ended is not None
    history[at] = call(wrong.client, "get", *wrong.args, times=(wrong.began, wrong.ended), result=written)
    with pytest.raises(NotLinearizable) as found:
        linearizable(history, MAP)
    assert found.value.call == history[at]


@pytest.mark.parametrize("seed", range(4))
def test_a_stale_read_among_many_operations_is_found(seed: int) -> None:
    history = large(1_000, clients=8, seed=seed)
    last = max(each.ended or 0 for each in history)
    history.append(call(1, "put", 0, "new", times=(last + 1, last + 2)))
    history.append(call(2, "put", 0, "never answered", times=(last + 1, None)))
    history.append(call(2, "get", 0, times=(last + 3, last + 4), result="old"))
    with pytest.raises(NotLinearizable, match="'never answered' or 'new'"):
        linearizable(history, MAP)


def test_a_wrong_result_is_found_behind_many_operations_without_an_answer() -> None:
    history = [call(client, "put", "k", client, times=(client, None)) for client in range(40)]
    history += [
        call(99, "get", "k", times=(50, 51), result=3),
        call(99, "get", "k", times=(52, 53), result="none"),
    ]
    with pytest.raises(NotLinearizable):
        linearizable(history, MAP)


def test_a_search_that_takes_too_long_is_given_up() -> None:
    history = [call(client, "put", client, times=(0, None)) for client in range(30)]
    history.append(call(99, "take", times=(1, 2), result="none of them"))
    with pytest.raises(Undecided, match="within 1,000 steps"):
        linearizable(history, QUEUE, most_steps=1_000)


# --- what is told ----------------------------------------------------------------------------------


def test_a_counterexample_is_told_and_drawn() -> None:
    history = [
        call("ann", "put", "x", 1, times=(1, 2)),
        call("bob", "put", "y", 7, times=(1, 2)),
        call("bob", "put", "x", 2, times=(3, 6)),
        call("ann", "put", "x", 3, times=(4, None)),
        call("cy", "get", "x", times=(5, 7), result=2),
        call("cy", "get", "x", times=(8, 9), result=1),
    ]
    with pytest.raises(NotLinearizable) as found:
        linearizable(history, MAP)
    assert str(found.value).splitlines() == [
        "not linearizable as a map: no order of the operations explains",
        "    get('x') -> 1 of client cy, 8.000000 to 9.000000 s",
        "before it returned, orders that explain the rest lead to the state 2 or 3",
        "there it would have returned 2 or 3",
        "    ann: put('x', 1) -> None     ├───┤",
        "    bob: put('x', 2) -> None             ├───────────┤",
        "    ann: put('x', 3), no answer              ├─────────────────────…",
        "    cy: get('x') -> 2                            ├───────┤",
        "    cy: get('x') -> 1                                        ├───┤  ◄",
    ]


def test_an_operation_that_ends_before_it_began_is_refused() -> None:
    with pytest.raises(ValueError, match="before it began"):
        linearizable([call(1, "get", "x", times=(2, 1))], MAP)


def test_an_operation_that_the_model_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="knows no peek"):
        linearizable([call(1, "peek", times=(1, 2))], QUEUE)


def test_no_operations_are_linearizable() -> None:
    assert linearizable([], MAP)


# --- the recorder ----------------------------------------------------------------------------------


def test_operations_of_the_same_time_are_recorded_in_their_order() -> None:
    history = History(lambda: 5.0)
    for value in (1, 2):
        history.end(history.begin("ann", "put", "x", value), None)
    reading = history.begin("bob", "get", "x")
    history.end(reading, 1)
    with pytest.raises(NotLinearizable):
        linearizable(history, MAP)
    assert [str(each) for each in history][1:] == ["put('x', 2) -> None", "get('x') -> 1"]
    assert len(history) == 3


def test_an_operation_that_has_not_ended_has_no_answer() -> None:
    history = History(lambda: 5.0)
    history.begin("ann", "put", "x", 1)
    for result in (None, 1):
        history.end(history.begin("bob", "get", "x"), result)
    assert linearizable(history, MAP)
    assert str(next(iter(history))) == "put('x', 1), no answer"


# --- a model of one's own --------------------------------------------------------------------------


def test_a_fencing_token_that_is_not_larger_is_found() -> None:
    history = [
        call("ann", "acquire", "ann", times=(1, 2), result=7),
        call("ann", "release", "ann", times=(3, 4)),
        call("bob", "acquire", "bob", times=(5, 6), result=7),
    ]
    with pytest.raises(NotLinearizable, match="more than 7"):
        linearizable(history, LOCK)


def test_a_model_is_two_lines() -> None:
    flag = Model("flag", False, lambda state, call: (ANY, True) if call.name == "set" else (state, state))
    done = [call(1, "set", times=(1, 2)), call(2, "look", times=(3, 4), result=True)]
    assert linearizable(done, flag)
    with pytest.raises(NotLinearizable, match="as a flag"):
        linearizable([*done, call(2, "look", times=(5, 6), result=False)], flag)

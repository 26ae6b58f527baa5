from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ordercast.lab import experiments as experiments_package
from ordercast.lab.experiment import Sizes, experiment, experiments
from ordercast.lab.grid import GridError, Run, checked, product, runs_of
from ordercast.lab.laboratory import sized
from ordercast.lab.packing import LEAST_S, MOST_S, pack

RUN = Run(protocol="dtp", nodes=3, messages=10)


def test_a_grid_has_a_run_for_every_combination_of_its_axes() -> None:
    runs = runs_of({"protocol": ["cm", "dtp"], "nodes": [3, 4, 5], "seed": [0, 1]}, messages=10)
    assert len(runs) == len({run.id for run in runs}) == 12
    assert {(run.protocol, run.nodes, run.seed) for run in runs} == {
        (protocol, nodes, seed) for protocol in ("cm", "dtp") for nodes in (3, 4, 5) for seed in (0, 1)
    }


def test_the_last_axis_changes_fastest() -> None:
    assert list(product(a=[1, 2], b="xy")) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_a_runs_identifier_stands_for_its_declaration_and_nothing_else() -> None:
    again = msgspec.json.decode(msgspec.json.encode(RUN), type=Run)
    assert again.id == RUN.id
    changed = (
        msgspec.structs.replace(RUN, seed=1),
        msgspec.structs.replace(RUN, settings={"batch": 1}),
        msgspec.structs.replace(RUN, labels={"gap_ms": 50}),
        msgspec.structs.replace(RUN, loss=0.1),
    )
    assert len({RUN.id, *(run.id for run in changed)}) == 5


def test_a_number_is_the_same_with_and_without_a_point() -> None:
    assert msgspec.structs.replace(RUN, rate=200).id == msgspec.structs.replace(RUN, rate=200.0).id


def test_settings_in_another_order_are_the_same_run() -> None:
    one = msgspec.structs.replace(RUN, settings={"batch": 1, "window": 2})
    other = msgspec.structs.replace(RUN, settings={"window": 2, "batch": 1})
    assert one.id == other.id


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"protocol": "nonesuch"}, "no protocol 'nonesuch'"),
        ({"settings": {"bogus": 1}}, "its settings are"),
        ({"network": "wire"}, "no network 'wire'"),
        ({"net": {"base_us": -1}}, "choose 0 or more"),
        ({"nodes": 0}, "at least one node"),
        ({"senders": 4}, "senders are 1 to 3"),
        ({"messages": None}, "either messages, how many are measured, or seconds"),
        ({"seconds": 1.0}, "either messages, how many are measured, or seconds"),
        ({"messages": 0}, "at least one message"),
        ({"messages": None, "seconds": -1.0}, "above 0"),
        ({"rate": 0.0}, "above 0"),
        ({"faults": ("crash 3",)}, "crash 3"),
        ({"method": "ordercast.lab.nowhere"}, "no method 'ordercast.lab.nowhere'"),
    ],
)
def test_what_cannot_be_run_is_refused_in_words(changes: dict[str, object], told: str) -> None:
    with pytest.raises(GridError, match=told):
        checked([msgspec.structs.replace(RUN, **changes)])


def test_a_grid_without_runs_is_refused() -> None:
    with pytest.raises(GridError, match="empty"):
        checked([])


def test_every_experiment_has_a_grid_that_can_be_run_and_a_smaller_one_for_a_first_look() -> None:
    for each in experiments():
        full, quick = checked(each.grid(False)), checked(each.grid(True))
        assert len(quick) < len(full), each.name
        assert each.title


def test_an_experiment_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(GridError, match=r"there are choose, comparison, .*dtp, .*fuzz, .*trmp"):
        experiment("nonesuch")


def test_dtp_is_the_setting_of_the_paper() -> None:
    """002 §5: 500 bytes, ten thousand messages, T = 100 ms, λ of each member; groups of 5 to 40."""
    runs = experiment("dtp").grid(False)
    assert {run.protocol for run in runs} == {"dtp", "cm", "pinwheel", "totem"}
    assert {run.nodes for run in runs} == {5, 10, 15, 20, 25, 30, 35, 40}
    for run in runs:
        assert (run.size, run.messages, run.network_config.receive_us) == (500, 10_000, 0)
        assert run.rate == pytest.approx(run.nodes / (float(run.labels["gap_ms"]) / 1000))
        if run.protocol != "totem":
            assert run.settings["silence_us"] == 100_000


def test_runs_can_be_chosen_by_protocol_and_size_and_repeated_with_other_seeds() -> None:
    sizes = Sizes(protocols=("cm",), nodes=(10, 20), seeds=range(3, 5))
    _, runs = sized(experiment("dtp"), True, sizes)
    assert {(run.protocol, run.nodes, run.seed) for run in runs} == {
        ("cm", nodes, seed) for nodes in (10, 20) for seed in (3, 4)
    }
    with pytest.raises(GridError, match="no run with these"):
        sized(experiment("dtp"), True, Sizes(nodes=(100, 120)))


def test_a_module_that_is_added_is_an_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two_rings.py").write_text(
        "from ordercast.lab.experiment import Experiment\n"
        "EXPERIMENT = Experiment(name='two-rings', title='', grid=lambda quick: [])\n"
    )
    monkeypatch.setattr(experiments_package, "__path__", [*experiments_package.__path__, str(tmp_path)])
    assert experiment("two-rings") in experiments()
    assert experiment("dtp") in experiments()


# --- packing -----------------------------------------------------------------------------------


def some_runs(count: int) -> list[Run]:
    return [msgspec.structs.replace(RUN, seed=seed) for seed in range(count)]


def test_short_runs_are_packed_until_a_task_is_worth_its_while() -> None:
    tasks = pack(some_runs(100), lambda run: 0.5, processors=2)
    assert sorted(run.seed for task in tasks for run in task.runs) == list(range(100))
    assert all(LEAST_S <= task.cost <= MOST_S for task in tasks[:-1])  # the last has what is left


def test_long_runs_are_alone_and_come_first() -> None:
    tasks = pack(some_runs(20), lambda run: 100.0 if run.seed == 7 else 0.1, processors=2)
    assert [run.seed for run in tasks[0].runs] == [7]
    assert [task.cost for task in tasks] == sorted((task.cost for task in tasks), reverse=True)


def test_a_tasks_name_does_not_depend_on_the_order_of_its_runs() -> None:
    forward, backward = some_runs(5), some_runs(5)[::-1]
    (one,), (other,) = pack(forward, lambda run: 0.1, 1), pack(backward, lambda run: 0.1, 1)
    assert one.id == other.id

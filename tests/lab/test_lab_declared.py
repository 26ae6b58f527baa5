from __future__ import annotations

import re
from pathlib import Path

import pytest

from ordercast.lab.declared import _TITLES, declared
from ordercast.lab.experiments import totem_throughput
from ordercast.lab.grid import GridError, Run, checked, method_of
from ordercast.lab.totem_hosts import air_of

FILE = """
title = "Loss"
[grid]
protocol = ["cm", "dtp"]
nodes = [3, 5, 7]
rate_per_node = 10
messages = 80
loss = [0, 0.01]
seeds = "4:6"
[grid.net]
base_us = [50, 500]
[settings.cm]
batch = 1
[report]
x = "loss"
panel = "nodes"
figures = ["stability_us"]
"""


def test_every_list_of_a_file_is_an_axis() -> None:
    runs = checked(declared("loss", FILE).grid(False))
    assert len(runs) == 2 * 3 * 2 * 2 * 2
    assert {run.seed for run in runs} == {4, 5}
    assert {run.rate for run in runs} == {30.0, 50.0, 70.0}
    assert {run.net["base_us"] for run in runs} == {50, 500}
    assert all(run.settings == ({"batch": 1} if run.protocol == "cm" else {}) for run in runs)
    assert {run.labels["net.base_us"] for run in runs} == {50, 500}


def test_a_quick_look_has_the_ends_of_each_axis_and_fewer_messages() -> None:
    runs = declared("loss", FILE).grid(True)
    assert {run.nodes for run in runs} == {3, 7}
    assert {run.messages for run in runs} == {20}


def test_faults_are_those_of_one_run_and_lists_of_them_an_axis() -> None:
    one = declared("mine", grid("faults = ['at 3s crash 2', 'at 4s restart 2']")).grid(False)
    assert [run.faults for run in one] == [("at 3s crash 2", "at 4s restart 2")]
    two = declared("mine", grid("faults = [[], ['at 3s crash 2']]")).grid(False)
    assert [run.faults for run in two] == [(), ("at 3s crash 2",)]


def grid(lines: str) -> str:
    return "[grid]\nprotocol = 'dtp'\nnodes = 3\nmessages = 10\n" + lines


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[grid\n", "this is no TOML"),
        ("title = 'no grid'\n", "missing required field `grid`"),
        (grid("bogus = 1"), "unknown field `bogus`.*a grid has protocol, nodes"),
        (grid("size = 'large'"), "Expected `int`, got `str`.*size"),
        (grid("loss = []"), "loss is an empty list"),
        (grid("seeds = '5'"), 'write a range such as "0:3"'),
        (grid("seeds = '0:3'\nseed = 1"), "either seed or seeds"),
        (grid("rate = 5\nrate_per_node = 5"), "either rate, of all nodes together, or rate_per_node"),
        (grid("rate_per_node = 'many'"), "rate_per_node is a number, not 'many'"),
        (grid("net = 3"), r"write \[grid.net\]"),
        (grid("") + "[settings.nonesuch]\nbatch = 1\n", r"\[settings.nonesuch\]: there is no such protocol"),
        (grid("") + "[report]\nx = 'colour'\n", "'colour' is nothing that runs differ in"),
        (grid("") + "[report]\nfigures = ['beauty']\n", "no figure 'beauty'; there are stability_us"),
        (grid(f"seed = {list(range(400))}\nloss = {[n / 1000 for n in range(400)]}"), "160,000 runs"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_what_to_write_instead(text: str, told: str) -> None:
    with pytest.raises(GridError, match=told):
        declared("mine", text)


def test_a_file_with_values_that_no_protocol_takes_is_refused_before_anything_runs() -> None:
    with pytest.raises(GridError, match="batch is 0"):
        checked(declared("mine", grid("") + "[settings.dtp]\nbatch = 0\n").grid(False))


DOCS = Path(__file__).parents[2] / "docs" / "lab.md"


def documented() -> set[str]:
    """The figures of docs/lab.md: those in the table, and latencies with the endings that it gives them."""
    rows = DOCS.read_text().partition("| figure | definition |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [row.split("|") for row in rows]
    names = {name for row in cells for name in re.findall(r"`(\w+)`", row[1])}
    endings = {ending for row in cells for ending in re.findall(r"`…(\w+)`", row[2])}
    assert len(endings) == 4
    return names | {
        name.replace("_us", ending) for name in names if name.startswith("latency") for ending in endings
    }


def test_every_documented_figure_can_be_drawn_and_every_one_that_can_is_measured() -> None:
    layout = ", ".join(f"'{name}'" for name in sorted(documented()))
    declared("mine", grid("") + f"[report]\nfigures = [{layout}]\n")
    run = Run(protocol="totem", nodes=3, network="ethernet10", messages=40, rate=200.0, safe=0.5)
    measured = method_of(run).conduct(run, None).figures.keys()
    assert set(_TITLES) <= measured
    assert documented() <= set(_TITLES)


def test_no_medium_carries_more_than_it_can() -> None:
    for run in totem_throughput.grid(True):
        if run.size >= 1000:
            figures = method_of(run).conduct(run, None).figures
            assert figures["utilization"] <= 1
            if not run.settings.get("packing"):
                assert figures["ordered_per_s"] * air_of(str(run.labels["hosts"]), run.size) <= 1e6

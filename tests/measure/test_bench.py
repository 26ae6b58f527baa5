"""Short runs of real groups on loopback. No figure is judged: machines differ."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ordercast.audit.properties import audit_runs
from ordercast.cli.bench import bench
from ordercast.measure import netns
from ordercast.measure.apart import measure_apart
from ordercast.measure.bench import Plan, Result, WorkerFailed, measure
from ordercast.trace.reader import read_runs

APP = typer.Typer()
APP.command()(bench)
NODE = {"node", "sent_per_s", "delivered_per_s", "p50_us", "p99_us", "longest_gap_ms", "cpu"}


@dataclass
class Answer:
    code: int
    out: str
    err: str


def ask(*arguments: str) -> Answer:
    done = CliRunner().invoke(APP, arguments)
    return Answer(done.exit_code, done.stdout, done.stderr)


def checked(result: Result, nodes: int) -> Result:
    assert result.agreement.equal, result.agreement.difference
    assert result.lost == 0
    assert [figures.node for figures in result.nodes] == list(range(1, nodes + 1))
    return result


def test_a_group_flat_out_delivers_everything_in_one_order() -> None:
    told: list[str] = []
    result = checked(measure(Plan(nodes=3, seconds=0.5), told.append), 3)
    assert result.agreement.messages > 0
    assert all(figures.samples and figures.p99_us >= figures.p50_us > 0 for figures in result.nodes)
    assert any("3 nodes" in line for line in told)


def test_a_paced_and_sealed_group_of_safe_messages_sends_as_many_as_were_asked_for() -> None:
    result = checked(measure(Plan(nodes=2, size=0, seconds=0.5, rate=200, safe=True, sealed=True)), 2)
    assert result.agreement.messages == 200
    assert [figures.samples > 0 for figures in result.nodes] == [True, True]
    assert result.statuses[1]["sealed"] is True


def test_an_idle_group_sends_nothing() -> None:
    result = checked(measure(Plan(nodes=2, seconds=0.3, rate=0)), 2)
    assert result.agreement.messages == 0


def test_the_survivors_of_a_killed_node_agree_and_lose_nothing() -> None:
    result = checked(measure(Plan(nodes=3, seconds=2.0, rate=300, kill_one=True)), 2)
    assert result.killed == 3
    assert result.configurations[1][-1] == result.configurations[2][-1] == [1, 2]


@pytest.mark.parametrize("protocol", ["total", "dtp"])
def test_so_do_those_of_another_protocol(protocol: str) -> None:
    result = checked(measure(Plan(nodes=3, seconds=2.0, rate=300, kill_one=True, protocol=protocol)), 2)
    assert result.configurations[1][-1] == result.configurations[2][-1] == [1, 2]
    assert result.statuses[1]["protocol"] == protocol


@pytest.mark.skipif(netns.missing() is not None, reason=netns.missing() or "")
def test_a_group_in_namespaces() -> None:
    checked(measure(Plan(nodes=2, size=2000, seconds=0.5, netns=True, uvloop=False)), 2)


def test_rings_deliver_one_order() -> None:
    result = checked(measure(Plan(nodes=4, seconds=0.5, rate=100, protocol="rings", rings=2)), 4)
    assert result.agreement.messages == 200
    topology = result.statuses[1]["topology"]
    assert isinstance(topology, dict)
    assert [ring["members"] for ring in topology["rings"]] == [[1, 2], [2, 3, 4]]


def test_messages_to_ones_own_ring_go_there_alone_and_those_to_all_are_timed_across_rings() -> None:
    plan = Plan(nodes=6, seconds=1.0, rate=100, protocol="rings", rings=3, locality=0.5)
    result = checked(measure(plan), 6)
    assert result.agreement.messages == 600, "of each node half to all, half to the group of its ring"
    assert result.counted("withheld") > 0
    assert {figures.node for figures in result.nodes if figures.far_samples} == set(range(1, 7))
    first = result.nodes[0]
    assert first.far_p99_us >= first.far_p50_us > 0
    document = result.as_dict()
    assert document["withheld"] == result.counted("withheld")
    assert document["ordered_per_s"] > 0


def test_flat_out_too() -> None:
    plan = Plan(nodes=4, seconds=0.5, protocol="rings", rings=2, locality=0.9)
    result = checked(measure(plan), 4)
    assert result.agreement.messages > 0
    assert result.ordered_per_s > 0


def test_rings_apart_have_an_order_each() -> None:
    result = measure_apart(Plan(nodes=2, seconds=0.5, rate=100), 2)
    assert result.good
    assert [each.agreement.messages for each in (*result.rings, result.one)] == [100, 100, 100]
    assert result.as_dict()["together_per_s"] > 0
    with pytest.raises(ValueError, match="at least 2"):
        measure_apart(Plan(nodes=2), 1)
    with pytest.raises(ValueError, match="without faults"):
        measure_apart(Plan(nodes=2, kill_one=True), 2)


@pytest.mark.skipif(netns.missing() is not None, reason=netns.missing() or "")
def test_a_node_that_is_cut_off_comes_back_and_the_traces_are_clean(tmp_path: Path) -> None:
    plan = Plan(nodes=3, seconds=2.0, rate=100, netns=True, cut_one=True, trace=str(tmp_path), draining_s=5.0)
    result = measure(plan)
    assert result.agreement.equal, result.agreement.difference
    assert result.killed == 3
    assert [figures.node for figures in result.nodes] == [1, 2, 3]
    report = audit_runs(read_runs(tmp_path))
    assert report.clean, "\n".join(violation.sentence for violation in report.violations)


def test_a_process_that_fails_is_reported_with_what_it_said() -> None:
    with pytest.raises(WorkerFailed, match=r"(?s)the process of node 1 ended before its time.*nonsense"):
        measure(Plan(nodes=1, seconds=0.1, settings={"nonsense": 1}))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"nodes": 0}, "between 1 and"),
        ({"nodes": 1, "kill_one": True}, "at least 2 nodes"),
        ({"seconds": 0.0}, "measure for"),
        ({"rate": -1.0}, "leave it out for flat out"),
        ({"size": -1}, "0 or more"),
        ({"locality": 0.5}, "add --rings"),
        ({"locality": 1.5, "rings": 2, "protocol": "rings", "nodes": 4}, "between 0 and 1"),
        ({"cut_one": True}, "add --netns"),
        ({"cut_one": True, "stop_one": True}, "choose one"),
    ],
)
def test_a_plan_that_cannot_be_says_what_can(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Plan(**fields)  # type: ignore[arg-type]


def test_the_command_answers_in_json_with_the_names_that_programs_know() -> None:
    answer = ask("--nodes", "2", "--seconds", "0.3", "--size", "50", "--json")
    assert answer.code == 0, answer.err
    document = json.loads(answer.out)
    assert document["order_equal"] is True
    assert [node["node"] for node in document["nodes"]] == [1, 2]
    assert all(set(node) >= NODE for node in document["nodes"])
    assert document["size"] == 50


def test_the_command_shows_people_a_table_and_the_verdict() -> None:
    answer = ask("--nodes", "2", "--seconds", "0.3", "--rate", "100")
    assert answer.code == 0, answer.err
    assert "delivered/s" in answer.out
    assert "the same order at every node" in answer.out
    assert "starting 2 nodes" in answer.err


def test_the_command_shows_rings_and_what_gateways_forward() -> None:
    answer = ask("--nodes", "4", "--rings", "2", "--locality", "0.5", "--seconds", "0.3", "--rate", "50")
    assert answer.code == 0, answer.err
    assert "on all rings together" in answer.out
    assert "without contents" in answer.out


def test_the_command_shows_rings_apart() -> None:
    answer = ask("--nodes", "2", "--rings", "2", "--apart", "--seconds", "0.3", "--rate", "50")
    assert answer.code == 0, answer.err
    assert "one ring alone" in answer.out
    assert "one order on ring 2" in answer.out
    assert "at least 2" in ask("--apart").err


def test_the_command_says_what_is_wrong_with_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "at least 2 nodes" in ask("--nodes", "1", "--kill-one").err
    assert ask("--protocol", "paxos").code == 2
    assert "a majority only" in ask("--protocol", "total", "--nodes", "2", "--kill-one").err
    monkeypatch.setattr(netns, "missing", lambda: "network namespaces need root")
    answer = ask("--netns")
    assert answer.code == 2
    assert "need root" in answer.err

"""`ordercast protocols`, and --protocol everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_nodes import node, started
from cli_parts import ordercast

from free_ports import free_address
from ordercast.catalogue import LAB_PROTOCOLS, lab_protocol
from ordercast.cli.fuzz import coverage_table
from ordercast.protocols import PROTOCOLS
from ordercast.runtime.config import load

EACH = pytest.mark.parametrize("protocol", PROTOCOLS)
STORY = """
nodes p q r
protocol {}
at 1s p sends a b
at 1s q sends c safe
until 3s
expect p q r delivers a b
expect p q r delivers c
expect clean
"""


def test_they_are_compared_for_people() -> None:
    said = ordercast("protocols")
    assert said.code == 0
    for name, protocol in PROTOCOLS.items():
        assert f"\n{name} " in said.out
        assert " ".join(protocol.about.choose.split()[:2]) in said.out
    assert "level of resilience" in said.out


def test_they_are_compared_for_programs() -> None:
    document = ordercast("protocols", "--json").document
    found = {each["name"]: each for each in document["protocols"]}
    assert list(found) == list(PROTOCOLS)
    assert found["totem"]["promises"] == "extended-virtual-synchrony"
    assert found["dtp"]["promises"] == "view-synchrony"
    assert "uniform-agreement" in found["dtp"]["properties"]
    assert found["dtp"]["primary_partition"] is found["dtp"]["levels"] is True
    assert found["totem"]["primary_partition"] is found["totem"]["levels"] is False
    assert "heartbeat_us" in found["irbp"]["settings"]
    for each in found.values():
        assert all(
            each[word] for word in ("summary", "ordered", "hops", "agreed", "safe", "tolerates", "choose")
        )


# --- simulated ----------------------------------------------------------------------------------


@EACH
def test_a_run(protocol: str) -> None:
    words = ("sim", "run", "--protocol", protocol, "--nodes", 3, "--seconds", 0.5, "--safe", 0.3, "--json")
    document = ordercast(*words).document
    assert document["protocol"] == protocol
    assert document["ordered"] == document["submitted"] > 50
    assert document["audit"]["clean"] is True


@EACH
def test_a_campaign_and_a_replay_of_one_of_its_seeds(protocol: str) -> None:
    nodes = "3:4" if protocol in LAB_PROTOCOLS else "6:7"
    said = ordercast("sim", "fuzz", "--protocol", protocol, "--seeds", "0:2", "--nodes", nodes, "--jobs", 1)
    assert said.code == 0, said.out
    assert "2 runs: no violation, and all converged" in said.out
    for hit in lab_protocol(protocol).hits:
        assert f"  {hit} " in said.out
    again = ordercast("sim", "replay", "--protocol", protocol, "--seed", 1, "--nodes", nodes, "--json")
    assert (again.code, again.document["property"]) == (0, None)
    assert again.document["replay"].startswith(f"ordercast sim replay --protocol {protocol} --seed 1")


@EACH
def test_a_scenario(protocol: str, tmp_path: Path) -> None:
    file = tmp_path / "story.txt"
    file.write_text(STORY.format(protocol))
    said = ordercast("sim", "scenario", file)
    assert said.code == 0, said.out


def test_a_demo(tmp_path: Path) -> None:
    said = ordercast("sim", "demo", "--protocol", "dtp", "--dir", tmp_path)
    assert said.code == 0, said.out
    assert "Five nodes form a group, ordered by dtp" in said.out
    assert "install {1 2 3 4 5}" in said.out
    assert ordercast("audit", tmp_path / "trace", "--engine", "reference").code == 0


def test_levels_of_resilience_are_for_protocols_that_have_them() -> None:
    words = ("sim", "run", "--nodes", 3, "--seconds", 0.5, "--levels", 1, "--json")
    document = ordercast(*words, "--protocol", "total").document
    assert {guarantee[:2] for guarantee in document["latency_us"]} == {"k="}
    said = ordercast(*words)
    assert said.code == 2
    assert "totem has no levels of resilience" in said.sentence


def test_mutants_of_one_protocol_are_hunted() -> None:
    said = ordercast(
        "sim",
        "mutants",
        "--protocol",
        "totem",
        "--only",
        "no-transitional-configuration",
        "--seeds",
        "0:3",
        "--json",
    )
    assert said.document["mutants"] == 1
    assert said.document["caught_by"]["no-transitional-configuration"]
    refused = ordercast("sim", "mutants", "--protocol", "paxos")
    assert refused.code == 2
    assert "no protocol 'paxos'; there are totem, total" in refused.sentence


def test_kinds_of_failure_have_a_place_of_their_own_in_the_coverage() -> None:
    table = coverage_table({"crash": 3, "sequencer lost": 0, "wrong suspicion": 2, "remerge": 1})
    cells = [str(cell) for cell in table.columns[0].cells]
    assert cells == [
        "[bold]nodes[/]",
        "  crash",
        "[bold]kinds of failure[/]",
        "  sequencer lost",
        "  wrong suspicion",
        "[bold]configurations[/]",
        "  remerge",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("sim", "run"),
        ("sim", "fuzz"),
        ("sim", "replay", "--seed", 1),
        ("sim", "demo"),
        ("bench",),
        ("demo",),
        ("config",),
    ],
)
def test_a_protocol_that_there_is_not_is_refused_with_those_there_are(words: tuple[object, ...]) -> None:
    said = ordercast(*words, "--protocol", "paxos")
    assert said.code == 2
    assert f"no protocol 'paxos'; there are {', '.join(PROTOCOLS)}" in said.sentence


# --- real ---------------------------------------------------------------------------------------


@EACH
def test_a_configuration_to_start_from(protocol: str, tmp_path: Path) -> None:
    said = ordercast("config", "--protocol", protocol)
    file = tmp_path / "ring.toml"
    file.write_text(said.out)
    assert load(file).protocol == protocol
    assert ordercast("config", "--check", file).code == 0
    assert f"\n[{protocol}]\n" in said.out


def test_settings_of_the_protocol_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "ring.toml"
    file.write_text('protocol = "dtp"\n[dtp]\nheartbeat_us = 900_000\n')
    said = ordercast("config", "--check", file)
    assert said.code == 1
    assert "heartbeat_us (900000) must be smaller than aggressive_us (800000)" in said.out


def test_every_protocols_settings_are_told_to_programs() -> None:
    document = ordercast("config", "--json").document
    assert list(document["protocols"]) == list(PROTOCOLS)


def test_a_demo_needs_enough_nodes_to_go_on_without_one() -> None:
    said = ordercast("demo", "--protocol", "total", "--nodes", 2)
    assert said.code == 2
    assert "goes on with a majority only" in said.sentence


def test_a_node_runs_it_and_others_have_to(tmp_path: Path) -> None:
    address = free_address()
    with node(tmp_path / "1", "--id", 1, "--listen", address, "--protocol", "total") as one:
        status = one.up()
        assert (status["protocol"], status["role"]) == ("total", "sequencer")
        sent = ordercast("send", "g", "hello", "--member", "--seed", address, "--protocol", "total", "--json")
        assert sent.code == 0, sent.err
        with started("send", "g", "hello", "--member", "--seed", address) as refused:
            _, err = refused.communicate()
        assert refused.returncode == 3
        assert "the group runs protocol total, and this node totem" in " ".join(err.split())

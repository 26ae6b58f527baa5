from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from cli_parts import ordercast, process

from ordercast.trace.reader import read_runs

SHORT = ("sim", "run", "--nodes", 3, "--seconds", 0.5)


def test_the_answer_for_programs_has_every_figure() -> None:
    said = ordercast(*SHORT, "--network", "ethernet10", "--safe", 0.5, "--json")
    assert said.code == 0
    document = said.document
    assert document["protocol"] == "totem"
    assert document["network"] == "ethernet10"
    assert (document["nodes"], document["seconds"], document["seed"]) == (3, 0.5, 0)
    assert document["submitted"] >= document["ordered"] > 0
    assert document["delivered"] >= document["ordered"]
    assert document["ordered_per_s"] == document["ordered"] / 0.5
    assert document["bytes_per_s"] == document["ordered_per_s"] * 1000
    for guarantee in ("agreed", "safe"):
        latency = document["latency_us"][guarantee]
        assert 0 < latency["p50"] <= latency["p99"]
        assert latency["mean"] > 0
        assert latency["count"] > 0
    assert 0 < document["rotation_us"]["mean"] <= document["rotation_us"]["max"]
    assert 0 < document["utilization"] < 1
    assert document["receptions"] > 0
    assert document["receptions_per_s"] > 0
    assert document["audit"]["clean"] is True
    assert set(document["audit"]["properties"].values()) == {0}
    assert isinstance(document["drops"], dict)
    assert document["stats"]["rotations"] > 0


def test_people_get_a_table_and_a_verdict() -> None:
    said = ordercast(*SHORT, "--network", "ethernet10", "--safe", 0.5)
    assert said.code == 0
    words = ("submitted", "messages/s", "MB/s", "token rotation", "medium in use", "p99", "safe, from submit")
    for word in (*words, "receptions", "✓ clean"):
        assert word in said.out


def test_a_saturated_ring_orders_as_much_as_it_can() -> None:
    said = ordercast(*SHORT, "--network", "ethernet10", "--arrivals", "saturating", "--size", 1024, "--json")
    assert said.document["ordered_per_s"] > 500
    assert said.document["utilization"] > 0.7


def test_without_an_audit_nobody_says_it_is_clean() -> None:
    said = ordercast(*SHORT, "--no-audit", "--json")
    assert said.code == 0
    assert said.document["audit"] is None


def test_settings_and_network_can_be_changed() -> None:
    said = ordercast(*SHORT, "--set", "window_size=10", "--net", "base_us=500", "--loss", 0.05, "--json")
    assert said.code == 0
    assert said.document["drops"]["lost"] > 0


def test_faults_come_from_the_line_and_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "faults.txt"
    file.write_text("# a node goes and comes back\nat 1100ms crash 3\n\nat 1200ms restart 3\n")
    said = ordercast(*SHORT, "--faults", file, "--fault", "at 1100ms crash 2", "--trace", tmp_path, "--json")
    assert said.code == 0
    ((_, rows),) = read_runs(tmp_path / "totem-0.parquet")
    told = [(row[0], row[3], row[4]) for row in rows if row[4] in ("crash", "restart")]
    assert told == [(2, 1_100_000, "crash"), (3, 1_100_000, "crash"), (3, 1_200_000, "restart")]


def test_packets_are_traced_on_request(tmp_path: Path) -> None:
    ordercast(*SHORT, "--trace", tmp_path, "--packets", "--json")
    ((_, rows),) = read_runs(tmp_path)
    assert {row[19] for row in rows if row[4] == "packet_received"} >= {"token", "data", "join"}


def test_the_same_seed_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    digests = set()
    for hash_seed in (1, 2):
        directory = tmp_path / str(hash_seed)
        load = ("--safe", 0.3, "--loss", 0.02, "--seed", 7, "--fault", "at 1200ms crash 2")
        said = process(*SHORT, *load, "--trace", directory, "--json", hash_seed=hash_seed)
        assert said.code == 0, said.err
        (file,) = directory.iterdir()
        digests.add(hashlib.sha256(file.read_bytes()).hexdigest())
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--protocol", "paxos"), "--protocol: no protocol 'paxos'; there are totem"),
        (("--network", "wifi"), "--network: no network 'wifi'; there are lan"),
        (("--net", "lag=3"), "--net: network lan has no 'lag'; it has loss"),
        (("--net", "loss=much"), "--net: network lan:"),
        (("--net", "loss=2"), "--net: network lan: loss is 2.0: choose between 0 and 1"),
        (("--net", "base_us=-5"), "--net: network lan: base_us is -5: choose 0 or more"),
        (
            ("--network", "ethernet10", "--net", "bits_per_s=0"),
            "--net: network ethernet10: bits_per_s is 0: choose 1 or more",
        ),
        (("--set", "window_size=0"), "--set: totem: window_size is 0: give it a positive number"),
        (("--set", "speed=1"), "--set: totem: there is no setting speed"),
        (("--set", "speed"), "--set: 'speed': write key=value"),
        (("--rate", "0"), "--rate: the rate is messages per second and above 0"),
        (("--seconds", "0"), "--seconds: 0 is no number above 0"),
        (("--seconds", "inf"), "--seconds: inf is no number above 0"),
        (("--rate", "nan"), "--rate: the rate is messages per second and above 0"),
        (("--size", "big"), "--size: 'big' is no size: write 1000"),
        (("--size", "20:10"), "--size: sizes go from 20 to 10 bytes: that is no range"),
        (("--safe", "2"), "--safe"),
        (("--nodes", "0"), "--nodes"),
        (("--arrivals", "rarely"), "poisson"),
        (("--fault", "crash 3"), "--fault: 'crash 3': a fault begins with a time, as in: at 2s crash 3"),
        (("--fault", "at 2s crash 9"), "--fault: no node is called '9'; there are 1 2 3 4 5"),
        (("--fault", "at 2s explode 1"), "--fault: expected an action (crash,"),
        (("--faults", "/nowhere"), "/nowhere"),
        (("--trace", "/proc/nowhere"), "--trace: /proc/nowhere"),
    ],
)
def test_a_mistake_is_named(words: tuple[str, ...], complaint: str) -> None:
    said = ordercast("sim", "run", *words)
    assert said.code == 2
    assert complaint in said.sentence
    assert not said.out


def test_a_mistake_in_a_file_of_faults_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "faults.txt"
    file.write_text("at 1s crash 1\nat noon crash 2\n")
    said = ordercast("sim", "run", "--faults", file)
    assert said.code == 2
    assert "line 2: expected a time such as 20ms" in said.sentence


def test_a_message_that_no_node_would_take_is_refused() -> None:
    said = ordercast(*SHORT, "--size", 17_000_000)
    assert said.code == 2
    assert "larger than" in said.err
    assert "--size" in said.err

"""`ordercast node`: a real process, from its first line in the log to its last."""

from __future__ import annotations

import signal
import urllib.request
from pathlib import Path

import pytest
from cli_nodes import node
from cli_parts import ordercast, process

from free_ports import free_address
from ordercast.runtime.control import SOCKET


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_runs_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    with node(tmp_path / "data", "--id", 7) as one:
        status = one.up()
        assert (status["node"], status["configuration"]["members"]) == (7, [7])
        code, log = one.stop(number)
    assert code == 0
    assert not (tmp_path / "data" / SOCKET).exists()
    assert log.count("no key") == 1, "that nothing is sealed is said once"
    assert f"listens at {status['address']}" in log
    assert log.splitlines()[-1].endswith("stopped")
    for line in log.splitlines():
        assert line[:2] == "20", "every line begins with the time"
        assert line.split()[2] in ("INFO", "WARNING"), line


def test_nodes_find_each_other_and_leave_with_a_word(tmp_path: Path) -> None:
    with (
        node(tmp_path / "1", "--id", 1) as one,
        node(tmp_path / "2", "--id", 2, "--seed", one.address) as two,
    ):
        assert one.with_members(2)["configuration"] == two.with_members(2)["configuration"]
        code, _ = two.stop()
        assert code == 0
        one.with_members(1)
        code, log = one.stop()
    assert code == 0
    assert "1, 2" in log


def test_a_file_tells_and_options_change_it(tmp_path: Path) -> None:
    file = tmp_path / "ring.toml"
    metrics = free_address()
    file.write_text('id = 1\ndata = "elsewhere"\nlisten = "127.0.0.1:0"\nlog_level = "warning"\n')
    assert ordercast("keygen", tmp_path / "group.key").code == 0
    with node(
        tmp_path / "data", "-c", file, "--id", 5, "--key", tmp_path / "group.key", "--metrics", metrics
    ) as one:
        status = one.up()
        assert (status["node"], status["sealed"]) == (5, True)
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30) as scraped:
            assert "ordercast_members 1.0" in scraped.read().decode()
        assert one.stop() == (0, "")
    assert not (tmp_path / "elsewhere").exists()


def test_a_trace_of_real_nodes_is_audited(tmp_path: Path) -> None:
    trace = ("--trace", tmp_path / "trace")
    with (
        node(tmp_path / "1", "--id", 1, *trace) as one,
        node(tmp_path / "2", "--id", 2, "--seed", one.address, *trace) as two,
    ):
        one.with_members(2)
        assert (
            process("send", "orders", "a", "b", "--member", "--safe", "--seed", two.address, *trace).code == 0
        )
        assert (two.stop()[0], one.stop()[0]) == (0, 0)
    document = ordercast("audit", tmp_path / "trace", "--json", "--engine", "reference").document
    assert (document["runs"], document["clean"]) == (1, True)


def test_a_node_keeps_its_number_in_its_data_directory(tmp_path: Path) -> None:
    numbers = set()
    for _ in range(2):
        with node(tmp_path / "data") as one:
            numbers.add(one.up()["node"])
            one.stop()
    assert len(numbers) == 1


def test_two_nodes_cannot_share_a_data_directory(tmp_path: Path) -> None:
    with node(tmp_path / "data") as one:
        one.up()
        said = process("node", "--data", tmp_path / "data", "--listen", "127.0.0.1:0")
        assert said.code == 2
        assert "data directory" in said.sentence


def test_two_nodes_cannot_share_a_port(tmp_path: Path) -> None:
    with node(tmp_path / "data") as one:
        said = process("node", "--listen", one.address)
        assert said.code == 2
        assert f"error: {one.address} is in use" in said.sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-c", "nowhere.toml"), "nowhere.toml cannot be read"),
        (("--listen", "0.0.0.0:4801"), "ordercast keygen"),
        (("--listen", "4801"), "listen: '4801' is no address"),
        (("--seed", "::1"), "seeds: '::1' is no address: write an IPv6 host in brackets"),
        (("--id", "0"), "id is 0: choose at least 1"),
        (("--log-level", "loud"), "log_level is 'loud'"),
        (("--key", "nowhere.key"), "nowhere.key"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(words: tuple[str, ...], sentence: str) -> None:
    said = ordercast("node", *words)
    assert (said.code, said.out) == (2, "")
    assert sentence in said.sentence

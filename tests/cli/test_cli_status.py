"""`ordercast status`: how a running node is doing."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_nodes import LONG_S, Running, node, started
from cli_parts import ordercast
from rich.console import Console

from ordercast.cli.status import shown
from ordercast.runtime.control import SOCKET

TROUBLED = {
    "node": 1,
    "incarnation": 0,
    "address": "[::1]:4801",
    "state": "gather",
    "because": "token lost",
    "settled": False,
    "protocol": "totem",
    "role": None,
    "sealed": True,
    "uptime_s": 8000.0,
    "configuration": {"seq": 8, "rep": 1, "kind": "regular", "members": [1, 2, 3]},
    "peers": [
        {"node": 2, "address": "[::1]:4803", "linked": True, "silent_s": 0.1},
        {"node": 3, "address": "[::1]:4805", "linked": False, "silent_s": 75.0},
        {"node": 99, "address": "[::1]:4807", "linked": False, "silent_s": 300.0},
    ],
    "rotation_us": None,
    "throughput": {"delivered_per_s": 12345.6, "sent_per_s": 7.0, "bytes_per_s": 1.2e6},
    "delivered": 1234,
    "sent": 400,
    "statistics": {"retransmissions": 5.0, "token_retransmissions": 0.0, "rotation_us_max": 900},
    "packets_sent": {"data": 3, "token": 40, "join": 0},
    "drops": {"not authentic": 7, "replayed": 2},
    "waits_us": {"1": 30, "3": 41_200},
    "slow": {"node": 3, "waits_us": 41_200},
    "held_up_by": 2,
    "lag_us": 120,
    "stops": 0,
    "buffers": {"asked": 4_194_304, "granted": 425_984},
    "offload": {"send": False, "receive": False},
    "queued_bytes": 10,
    "unread_bytes": 11,
}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with node(tmp_path_factory.mktemp("one") / "data", "--id", 4) as running:
        running.up()
        yield running


def test_a_status_for_programs(one: Running, tmp_path: Path) -> None:
    file = tmp_path / "ring.toml"
    file.write_text(f'data = "{one.data}"')
    for words in (("--data", one.data), ("-c", file), ("--socket", one.data / SOCKET)):
        said = ordercast("status", *words, "--json")
        assert said.code == 0
        assert said.document["node"] == 4
        assert said.document["configuration"]["members"] == [4]


def test_a_status_for_people(one: Running) -> None:
    said = ordercast("status", "--data", one.data)
    assert said.code == 0
    assert said.out.startswith(f"node 4 at {one.address}, operational, not sealed, up ")
    assert "members         1: 4" in said.out


def test_troubles_are_told() -> None:
    console = Console(width=100, highlight=False)
    with console.capture() as capture:
        console.print(shown(TROUBLED))
    text = capture.get()
    for sentence in (
        "node 1 at [::1]:4801, gather (token lost), sealed, up 2 h 13 min",
        "8.1, regular",
        "3: 1, 2, 3",
        "none of late, at most 900 µs",
        "12,346 messages/s, 1.200 MB/s; 1,234 so far",
        "retransmissions 5",
        "7 not authentic, 2 replayed",
        "node 3 keeps the token waiting for 41.2 ms",
        "node 2, which does not keep up",
        "425,984 bytes of 4,194,304 asked for; raise net.core.rmem_max",
        "silent  1 min 15 s ago",
    ):
        assert sentence in text, text
    assert "4807" not in text, "who came and went is no concern"


def test_a_node_in_a_view_has_a_role_and_one_that_is_in_none_says_so() -> None:
    console = Console(width=100, highlight=False)
    alone = {**TROUBLED, "configuration": None, "state": "joining", "because": "started"}
    for status in (alone, {**TROUBLED, "protocol": "dtp", "role": "sequencer", "settled": True}):
        with console.capture() as capture:
            console.print(shown(status))
        text = capture.get()
        if status is alone:
            assert "joining (started)" in text
            assert "none yet" in text
        else:
            assert "dtp, sequencer" in text
            assert "gather," in text, "a settled state needs no reason"


def test_rings_and_gateways_are_shown() -> None:
    ring = {"seq": 8, "rep": 1, "gateways": [3], "waiting": 0, "waiting_safe": 0, "to_be_broadcast": 70}
    topology = {
        "rings": [
            {**ring, "network": 1, "members": [1, 2, 3], "attached": True},
            {**ring, "network": 2, "members": [3, 4], "attached": False, "waiting": 12, "waiting_safe": 3},
        ],
        "paths": [{"gateway": 3, "from": 1, "to": 2}, {"gateway": 3, "from": 2, "to": 1}],
        "lagging": 2,
        "paused_by": [4],
    }
    peers = [{"node": 2, "network": 7, "address": "[::1]:4803", "linked": True, "silent_s": 0.1}]
    console = Console(width=140, highlight=False)
    with console.capture() as capture:
        console.print(shown({**TROUBLED, "topology": topology, "networks": [], "peers": peers}))
    text = " ".join(capture.get().split())
    for sentence in (
        "ring 1 1, 2, 3 (gateway), 70 bytes to be broadcast ",
        "ring 2 3 (gateway), 4; 12 bundles of messages wait for it, 3 safe ones wait for all its members",
        "paths 1 to 2 by node 3, 2 to 1 by node 3",
        "lagging ring 2",
        "paused by node 4",
        "node ring address",
        "2 7 [::1]:4803",
    ):
        assert sentence in text, text


def test_watching_as_json_is_a_line_at_a_time(one: Running) -> None:
    with started("status", "--data", one.data, "--watch", "--every", 0.1, "--json") as watching:
        assert watching.stdout is not None
        documents = [json.loads(watching.stdout.readline()) for _ in range(3)]
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=LONG_S)
        assert watching.returncode == 0
    assert [document["node"] for document in documents] == [4, 4, 4]
    assert documents[0]["uptime_s"] < documents[2]["uptime_s"]


def test_watching_goes_on_when_the_node_has_ended(tmp_path: Path) -> None:
    with node(tmp_path / "data", "--id", 6) as one:
        one.up()
        with started("status", "--data", tmp_path / "data", "--watch", "--every", 0.1) as watching:
            assert watching.stdout is not None
            assert watching.stdout.readline().startswith("node 6 at ")
            one.stop()
            for line in watching.stdout:
                if "no node is running" in line:
                    break
            watching.send_signal(signal.SIGINT)
            watching.communicate(timeout=LONG_S)
            assert watching.returncode == 0


def test_where_no_node_runs_that_is_said(tmp_path: Path) -> None:
    for words in (("--watch",), ("--json",), ()):
        said = ordercast("status", "--data", tmp_path, *words)
        assert (said.code, said.out) == (1, "")
        assert f"no node is running with {tmp_path}: start one with `ordercast node`" in said.sentence


def test_which_node_has_to_be_said(tmp_path: Path) -> None:
    for words in ((), ("--data", tmp_path, "--socket", tmp_path)):
        said = ordercast("status", *words)
        assert said.code == 2
        assert "say which node" in said.sentence
    file = tmp_path / "ring.toml"
    file.write_text("id = 1")
    said = ordercast("status", "-c", file)
    assert said.code == 2
    assert "names no data directory" in said.sentence

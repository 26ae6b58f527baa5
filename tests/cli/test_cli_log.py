"""`ordercast log`: what is in the ordered log of a node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_nodes import node, started
from cli_parts import ordercast

from ordercast.core.addresses import address, stamp
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.log.store import Delivered, Installed, Store

HERE = ConfigurationId(8, 1)


def written(path: Path, *texts: bytes, node: int = 1) -> Path:
    """A log with a configuration and some messages, for two groups by turns."""
    store = Store(path, node, most_bytes=2**30, sync=False)
    entries: list[Delivered | Installed] = [Installed(1, Configuration(HERE, Kind.REGULAR, (1, 2)), True)]
    for seq, text in enumerate(texts, 1):
        payload = address(0, ["odd" if seq % 2 else "even"], stamped=stamp(seq * 1000)) + text
        entries.append(Delivered(seq, Batch(HERE, seq, 0, 2, 0, seq, Guarantee.AGREED, [payload])))
    store.append(entries)
    store.close()
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "log", *(b"message %d" % number for number in range(1, 31)), b"\xff\x00[bold]")


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_people_see_what_it_holds_and_the_last_entries(log: Path) -> None:
    said = ordercast("log", log, "--rows", 3)
    assert said.code == 0
    for words in (
        "node 1",
        "8.1/0/0",
        "8.1/31/0",
        "8.1/29/0",
        "message 29",
        "message 30",
        "\\xff\\x00[bold]",
    ):
        assert words in said.out
    assert "message 28" not in said.out
    assert "regular configuration: 1, 2" in " ".join(ordercast("log", log, "--rows", 40).out.split())


def test_programs_get_an_object_a_line(log: Path) -> None:
    bounds, *entries = lines(ordercast("log", log, "--from", "8.1/28/0", "--json").out)
    assert (bounds["node"], bounds["oldest"], bounds["head"]) == (1, "8.1/0/0", "8.1/31/0")
    assert entries[0] == {
        "position": "8.1/29/0",
        "kind": "message",
        "sender": 2,
        "group": "odd",
        "guarantee": "agreed",
        "time_us": 29,
        "sent_us": 29_000,
        "payload": "message 29",
    }
    assert entries[-1]["payload_base64"] == "/wBbYm9sZF0="
    assert len(entries) == 3


def test_one_group_is_shown_with_the_configurations(log: Path) -> None:
    _, *entries = lines(ordercast("log", log, "--group", "even", "--rows", 100, "--json").out)
    assert [entry["kind"] for entry in entries[:2]] == ["regular", "message"]
    assert {entry.get("group") for entry in entries} == {None, "even"}
    assert len(entries) == 16


def test_where_the_node_was_away_is_said(log: Path) -> None:
    store = Store(log, 1, most_bytes=2**30, sync=False)
    again = Configuration(ConfigurationId(16, 1), Kind.REGULAR, (1, 2))
    late = Batch(again.id, 1, 0, 2, 0, 1, Guarantee.AGREED, [address(0, ["odd"]) + b"late"])
    store.append([Installed(40, again, True), Delivered(41, late)])
    store.close()
    said = ordercast("log", log)
    assert said.code == 0
    assert "since 16.1/0/0" in said.out
    assert "late" in said.out
    assert "message 30" not in said.out
    said = ordercast("log", log, "--from", "8.1/29/0")
    assert (said.code, "message 30" in said.out, "late" in said.out) == (0, True, False)
    assert "was away between 8.1/31/0 and 16.1/0/0" in said.sentence


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--from", "8.1"), 2, "no position in the total order"),
        (("--from", "8.1/99/0"), 2, "wait until it comes that far"),
        (("--from", "4.1/1/0"), 2, "it was not there then"),
    ],
)
def test_what_is_wrong_is_said(log: Path, words: tuple[str, ...], code: int, sentence: str) -> None:
    said = ordercast("log", log, *words)
    assert said.code == code
    assert sentence in said.sentence


def test_no_log_is_no_log(tmp_path: Path) -> None:
    for where, code in ((tmp_path, 2), ("127.0.0.1:1", 3)):
        said = ordercast("log", where, "--timeout", 2)
        assert said.code == code
        assert "no ordered log" in said.sentence or "cannot be reached" in said.sentence


def test_replicas_are_compared(tmp_path: Path) -> None:
    one = written(tmp_path / "1", b"a", b"b", b"c")
    same = written(tmp_path / "2", b"a", b"b", b"c", b"d", node=2)
    other = written(tmp_path / "3", b"a", b"x", b"c", node=3)
    assert ordercast("log", one, "--verify", same, "--json").document == {
        "equal": True,
        "entries": 3,
        "begin": "8.1/0/0",
        "end": "8.1/3/0",
        "differs_after": None,
    }
    said = ordercast("log", one, "--verify", other)
    assert said.code == 1
    assert "the replicas differ behind 8.1/1/0" in said.out


@pytest.fixture
def following(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Somebody follows the log of a real node."""
    words = ("--id", 4, "--log", tmp_path / "log")
    with node(tmp_path / "data", *words) as running:
        status = running.up()
        address = status["log"]["address"]
        with started("log", address, "--follow", "--json") as process:
            yield process, status["address"]


def test_a_log_is_followed_while_it_grows(following: tuple[subprocess.Popen[str], str]) -> None:
    process, address = following
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["node"] == 4
    assert ordercast("send", "g", "hello", "--member", "--seed", address).code == 0
    for line in process.stdout:
        if json.loads(line).get("payload") == "hello":
            return
    raise AssertionError("the log ended")

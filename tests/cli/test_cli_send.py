"""`ordercast send` and `ordercast listen`: as members that come and go."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cli_nodes import LONG_S, Running, node, started
from cli_parts import Said, ordercast, process

from free_ports import free_address
from ordercast.cli.send import lines


class Ring(NamedTuple):
    """Two sealed nodes, and a file that says how to reach them."""

    one: Running
    two: Running
    file: Path
    key: Path


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    home = tmp_path_factory.mktemp("ring")
    key, file = home / "group.key", home / "ring.toml"
    assert ordercast("keygen", key).code == 0
    address = free_address()
    file.write_text(f'id = 1\ndata = "1"\nlisten = "{address}"\nkey = "group.key"\n')
    with ExitStack() as stack:
        one = stack.enter_context(node(home / "1", "-c", file))
        two = stack.enter_context(node(home / "2", "--id", 2, "--seed", address, "--key", key))
        one.with_members(2)
        yield Ring(one, two, file, key)


def fed(text: str, *words: object) -> Said:
    with started(*words, stdin=subprocess.PIPE) as running:
        out, err = running.communicate(text, timeout=LONG_S)
        return Said(running.returncode, out, err)


def events(listener: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, err = listener.communicate(timeout=LONG_S)
    assert (listener.returncode, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


@contextmanager
def sending(ring: Ring, message: str) -> Iterator[None]:
    """While this message is sent again and again."""
    done = threading.Event()

    def send() -> None:
        while not done.is_set():
            process("send", "orders", "--member", message, "-c", ring.file)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_messages_arrive_in_one_order_at_all_who_listen(ring: Ring) -> None:
    """A ring may fall apart on a busy machine, and who listens then misses what is sent meanwhile; so it
    is sent until both have heard enough."""
    with (
        started("listen", "orders", "--member", "-c", ring.file, "--count", 6, "--json") as first,
        started(
            "listen",
            "orders",
            "--member",
            "--seed",
            ring.two.address,
            "--key",
            ring.key,
            "--count",
            6,
            "--json",
        ) as second,
    ):
        while first.poll() is None or second.poll() is None:
            assert process("send", "invoices", "--member", "not for orders", "-c", ring.file).code == 0
            assert process("send", "orders", "--member", "one", "twö", "thr\tee", "-c", ring.file).code == 0
        heard, also_heard = events(first), events(second)
    for each in (heard, also_heard):
        assert each[0]["event"] == "configuration", "it is told where it is first"
        for before, event in pairwise(event for event in each if event["event"] == "configuration"):
            assert event["ended"]["configuration"] == before["configuration"]
        assert {event["payload"] for event in each if event["event"] == "message"} == {
            "one",
            "twö",
            "thr\tee",
        }
    orders = [[event for event in each if event["event"] == "message"] for each in (heard, also_heard)]
    common = [[event for event in orders[this] if event in orders[other]] for this, other in ((0, 1), (1, 0))]
    assert common[0] == common[1]
    assert common[0]


def test_what_was_sent_is_told_with_its_place(ring: Ring) -> None:
    said = process("send", "orders", "--member", "one", "twö", "-c", ring.file)
    assert (said.code, said.err) == (0, "")
    assert "✓ 2 messages to orders, ordered from " in said.out
    document = fed(
        "three\n\nfour\nfive", "send", "orders", "--member", "-c", ring.file, "--safe", "--json"
    ).document
    assert (document["group"], document["messages"], document["safe"]) == ("orders", 4, True)
    assert len(document["members"]) > 1
    assert document["last"]["number"] == document["first"]["number"] + 3


def test_a_message_many_times(ring: Ring) -> None:
    document = process("send", "orders", "--member", "x", "--count", 2500, "-c", ring.file, "--json").document
    assert document["messages"] == 2500
    assert document["last"]["number"] - document["first"]["number"] == 2499


def test_no_message_is_said_to_be_none(ring: Ring) -> None:
    said = fed("", "send", "orders", "--member", "-c", ring.file)
    assert (said.code, said.out) == (0, "nothing was sent to orders: there was no message\n")


def test_listening_for_people_and_until_interrupted(ring: Ring) -> None:
    with started("listen", "orders", "--member", "-c", ring.file) as listener:
        assert listener.stdout is not None
        first = listener.stdout.readline()
        with sending(ring, "tab\there"):
            for line in listener.stdout:
                if not line.startswith("--"):
                    break
        listener.send_signal(signal.SIGINT)
        listener.communicate(timeout=LONG_S)
        assert listener.returncode == 130
    assert first.startswith("-- configuration ")
    assert "(this node)" in first
    assert " ended at place " in first
    assert line.endswith(": tab\\there\n")


def test_a_listener_that_nobody_reads_leaves_quietly(ring: Ring) -> None:
    with started("listen", "orders", "--member", "-c", ring.file) as listener:
        assert listener.stdout is not None
        assert listener.stderr is not None
        listener.stdout.readline()
        listener.stdout.close()
        with sending(ring, "x"):
            assert listener.wait(LONG_S) == 0, listener.stderr.read()
        assert listener.stderr.read() == ""
        listener.stdout = None


# --- what goes wrong ----------------------------------------------------------------------------


def test_a_group_that_is_not_there() -> None:
    address = free_address()
    said = process("send", "orders", "--member", "x", "--seed", address, "--timeout", 0.5)
    assert said.code == 3
    port = int(address.rpartition(":")[2])
    assert f"nobody at {address} shared a group with this node within 0.5 s" in said.sentence
    assert f"to the ports {port} and {port + 1} and back" in said.sentence


def test_the_wrong_key_and_none(ring: Ring, tmp_path: Path) -> None:
    assert ordercast("keygen", tmp_path / "other.key").code == 0
    address = ring.one.address
    listen = ("listen", "orders", "--member", "--seed", address, "--timeout", 0.5)
    said = process(*listen, "--key", tmp_path / "other.key")
    assert said.code == 3
    assert "that it has the same key" in said.sentence
    said = process(*listen)
    assert said.code == 3
    assert "that the group has no key, or name it with --key" in said.sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--seed", "10.0.0.1:4801"), "name a group key"),
        (("--seed", "10.0.0.1"), "seeds: '10.0.0.1' is no address: write host and port"),
        (("-c", "nowhere.toml"), "nowhere.toml cannot be read"),
        (("--key", "nowhere.key"), "nowhere.key"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], sentence: str) -> None:
    for command in (("send", "orders", "--member", "x"), ("listen", "orders", "--member")):
        said = ordercast(*command, *words)
        assert (said.code, said.out) == (2, "")
        assert sentence in said.sentence


def test_a_fixed_list_of_peers_lets_nobody_in(tmp_path: Path) -> None:
    file = tmp_path / "ring.toml"
    file.write_text('peers = ["127.0.0.1:4801", "127.0.0.1:4803"]')
    said = ordercast("send", "orders", "--member", "x", "-c", file)
    assert said.code == 2
    assert "no further member is let in" in said.sentence


# --- lines --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"x" * 200_000 + b"\ny", [b"x" * 200_000, b"y"]),
    ],
    ids=("none", "not ended", "ended", "an empty one", "a long one"),
)
def test_lines(text: bytes, expected: list[bytes]) -> None:
    async def read() -> list[bytes]:
        return [line async for some in lines(io.BytesIO(text)) for line in some]

    assert asyncio.run(read()) == expected

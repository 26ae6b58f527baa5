"""`ordercast send`, `listen` and `status` as clients of a server: no member comes or goes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from cli_nodes import LONG_S, started
from cli_parts import ordercast, process
from nats_servers import Login, Server, Starting

from free_ports import free_address
from ordercast.cli.quick_send import SendRequest, understood


def fed(text: str, *words: object) -> Any:
    with started(*words, stdin=subprocess.PIPE) as running:
        out, err = running.communicate(text, timeout=LONG_S)
        assert (running.returncode, err) == (0, "")
        return json.loads(out)


def test_what_is_sent_is_heard(server: Server, subject: str) -> None:
    """Sent until it was heard: nobody says when a listener is there."""
    words = ("listen", f"{subject}.*", "--client", server.address, "--count", 3, "--json")
    with started(*words) as listener:
        while listener.poll() is None:
            said = process("send", f"{subject}.a", "one", "twö", "thr\tee", "--client", server.address)
            assert (said.code, said.err) == (0, "")
            assert f"✓ 3 messages to {subject}.a\n" in said.out
        out, err = listener.communicate(timeout=LONG_S)
    assert (listener.returncode, err) == (0, "")
    heard = [json.loads(line) for line in out.splitlines()]
    assert [each["payload"] for each in heard] == ["one", "twö", "thr\tee"]
    assert {(each["event"], each["group"], each["seq"]) for each in heard} == {
        ("message", f"{subject}.a", None)
    }


def test_safe_messages_have_a_place_in_the_log_and_are_read_from_there(server: Server, logged: str) -> None:
    reached = ("--client", server.address)
    document = fed("one\n\nthree", "send", logged, "--safe", "--session", logged, "--json", *reached)
    assert (document["messages"], document["safe"], document["duplicates"]) == (3, True, 0)
    assert document["node"] == server.address
    assert document["last"] > document["first"]
    again = process("send", logged, "one", "", "three", "four", "--safe", "--session", logged, *reached)
    assert again.code == 0
    assert f"✓ 4 safe messages to {logged}, in the log from {document['first']} to " in again.out
    assert "3 of them were there before" in again.out
    heard = process("listen", logged, "--from", document["first"], "--count", 4, *reached)
    assert heard.out.splitlines() == [f"{logged}: {text}" for text in ("one", "", "three", "four")]


def test_a_listener_ends_when_it_is_interrupted(server: Server, subject: str) -> None:
    with started("listen", subject, "--client", server.address, "--json") as listener:
        assert listener.stdout is not None
        heard = threading.Event()

        def send() -> None:
            while not heard.is_set():
                process("send", subject, "x", "--client", server.address)

        sending = threading.Thread(target=send)
        sending.start()
        try:
            assert json.loads(listener.stdout.readline())["payload"] == "x"
        finally:
            heard.set()
            sending.join()
        listener.send_signal(signal.SIGINT)
        listener.communicate(timeout=LONG_S)
        assert listener.returncode == 130


def test_a_password_may_be_a_variable(start: Starting, subject: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (closed,) = start(login=Login(user="ann", password="s3cret"))
    words = ("send", subject, "x", "--client", closed.address)
    said = process(*words)
    assert said.code == 3
    assert "see to user, password or token" in said.sentence
    monkeypatch.setenv("ORDERCAST_USER", "ann")
    monkeypatch.setenv("ORDERCAST_PASSWORD", "s3cret")
    assert process(*words).code == 0


def test_how_a_node_is_doing(server: Server) -> None:
    said = process("status", "--client", server.address)
    if server.kind == "node":
        assert said.code == 0
        assert said.out.startswith("node 1 at 127.0.0.1:")
        document = process("status", "--client", server.address, "--json").document
        assert document["configuration"]["members"] == [1]
    else:
        assert said.code == 1
        assert "see that it is a node of ordercast" in said.sentence


def test_a_node_is_asked_by_its_configuration_where_its_data_directory_is_not(
    server: Server, tmp_path: Path
) -> None:
    """As from another machine."""
    file = tmp_path / "node.toml"
    advertised = f'clients = "0.0.0.0:1"\nclient_advertise = "{server.address}"'
    for place in (f'clients = "{server.address}"', advertised):
        file.write_text(f'data = "{tmp_path / "nowhere"}"\ninsecure = true\n{place}\n')
        said = process("status", "-c", file, "--json")
        assert said.code == (0 if server.kind == "node" else 1)
        if server.kind == "node":
            assert said.document["configuration"]["members"] == [1]
    said = ordercast("status", "-c", file, "--data", tmp_path)
    assert said.code == 2
    assert "in one way" in said.sentence


def test_a_node_that_is_not_there() -> None:
    address = free_address()
    for words in (("send", "orders", "x"), ("listen", "orders")):
        said = process(*words, "--client", address, "--timeout", 0.2)
        assert said.code == 3
        assert f"{address}: " in said.sentence
        assert 'a node runs there with clients = "HOST:PORT"' in said.sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--seed", "127.0.0.1:4801"), "--seed: that is for members. Say --member"),
        (("--client", "http://h:1"), "connect with nats://, tls:// or just host and port"),
        (("--client", "127.0.0.1:1", "--tls", "nowhere.pem"), "nowhere.pem cannot be used as a certificate"),
        (("--client", "127.0.0.1:1", "--user", "u", "--token", "t"), "user and token are both given"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], sentence: str) -> None:
    for command in (("send", "orders", "x"), ("listen", "orders")):
        said = ordercast(*command, *words)
        assert (said.code, said.out) == (2, "")
        assert sentence in said.sentence


def test_a_configuration_names_the_node_or_says_that_it_serves_nobody(tmp_path: Path) -> None:
    (tmp_path / "alone.toml").write_text("id = 1\n")
    said = ordercast("send", "g", "x", "-c", tmp_path / "alone.toml")
    assert said.code == 2
    assert 'serves no clients: write clients = "127.0.0.1:4222" there' in said.sentence
    address = free_address()
    (tmp_path / "serves.toml").write_text(f'clients = "{address}"\n')
    said = ordercast("send", "g", "x", "-c", tmp_path / "serves.toml", "--timeout", 0.1)
    assert said.code == 3
    assert f"{address}: " in said.sentence
    said = ordercast("listen", "g", "-c", tmp_path / "serves.toml", "--client", "h:1")
    assert said.code == 2
    assert "say one of them" in said.sentence


def test_names_of_groups() -> None:
    for words in (("send", "a.*", "x"), ("send", "a b", "x"), ("listen", "a b")):
        said = ordercast(*words)
        assert said.code == 2
        assert "is no name of a group here" in said.sentence


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    said = ordercast("send", "g", "x", "--session", "s")
    assert said.code == 2
    assert "say --safe, too" in said.sentence
    said = ordercast("listen", "g", "--member", "--from", 3)
    assert said.code == 2
    assert "leave out --member" in said.sentence
    said = ordercast("status", "--client", "h:1", "--data", tmp_path)
    assert said.code == 2
    assert "in one way" in said.sentence


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("g x", SendRequest("127.0.0.1:4222", "g", [b"x"])),
        ("g x y --client h-1.x:99", SendRequest("h-1.x:99", "g", [b"x", b"y"])),
        ("--client 10.0.0.1:1 g x", SendRequest("10.0.0.1:1", "g", [b"x"])),
        ("g", None),
        ("g x --safe", None),
        ("g x --client", None),
        ("g x --client h:1 --client i:1", None),
        ("g x --client h", None),
        ("g x --client unix:/x", None),
        ("g x --client nats://h:1", SendRequest("h:1", "g", [b"x"])),
        ("g x --client tls://h:1", None),
        ("g x --client u:p@h:1", None),
        ("g x --client h:70000", None),
        ("g -- -x", None),
        ("g.* x", None),
    ],
)
def test_a_plain_send_is_understood_without_loading_much(words: str, expected: SendRequest | None) -> None:
    assert understood(words.split()) == expected


def test_a_plain_send_with_a_login_is_for_the_command_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERCAST_TOKEN", "s3cret")
    assert understood(["g", "x"]) is None


RUN = """
import os, sys
from ordercast.cli import main
code = 0
try: main()
except SystemExit as end: code = end.code
print(code, os.nice(0), *sorted({"asyncio", "typer", "rich", "ssl"} & set(sys.modules)))
"""


def ran(*words: object) -> list[str]:
    """How the command ended, how nice it was, and what of the heavy modules it has loaded."""
    command = [sys.executable, "-c", RUN, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S)
    assert not done.stderr or "error" in done.stderr.lower(), done.stderr
    return done.stdout.splitlines()[-1].split()


def test_clients_give_way_and_a_plain_send_loads_little(server: Server, subject: str) -> None:
    nice = os.nice(0)
    assert ran("send", subject, "x", "--client", server.address) == ["0", str(min(19, nice + 5))]
    assert ran("send", subject, "x", "--member", "--timeout", 0.1)[:2] == ["3", str(nice)]
    assert ran("protocols")[:2] == ["0", str(nice)]


@pytest.mark.parametrize(
    "last_words", [b"-ERR 'Permissions Violation for Publish'\r\nPONG\r\n", b"", b"NONSENSE\r\n"]
)
def test_what_a_node_does_not_take_is_not_said_to_be_sent(last_words: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            line, _ = listening.accept()
            with line:
                line.sendall(b'INFO {"max_payload": 10}\r\n')
                while b"PING" not in line.recv(4096):
                    pass
                line.sendall(last_words)

        serving = threading.Thread(target=serve)
        serving.start()
        said = process("send", "g", "x", "--client", "127.0.0.1:{}".format(*listening.getsockname()[1:]))
        serving.join()
    assert (said.code, said.out) == (3, "")
    assert "send it again" in said.err


def test_a_send_loads_no_node_and_no_laboratory() -> None:
    script = (
        "import sys\nfrom ordercast.cli import app\n"
        "try: app(['send', 'g', 'x', '--client', '127.0.0.1:1', '--timeout', '0.1'])\n"
        "except SystemExit: pass\n"
        "print(*(name for name in sys.modules if name[:10] == 'ordercast.'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LONG_S)
    loaded = {name.split(".")[1] for name in done.stdout.split()}
    assert "client" in loaded
    assert not loaded & {"groups", "runtime", "protocols", "totem", "audit", "lab", "draw"}

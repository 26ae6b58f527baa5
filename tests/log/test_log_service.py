"""A log over TCP: as it is on disk, sealed with the group key, and not impressed by garbage."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_parts import at, delivered, installed, rows, store, told

from ordercast.errors import KeyProblem, LogError, NotThere, NotYet, SplitAway, Unreachable
from ordercast.keys import Keyring, generate
from ordercast.log import Replica, wire
from ordercast.log import service as service_module
from ordercast.log.client import Connection
from ordercast.log.service import ClientChannel, Service
from ordercast.log.store import Store
from ordercast.transport.address import parse_address

SAFETY_NET_S = 30.0
KEY, OTHER = generate(), generate()


@contextmanager
def served(path: Path, *keys: bytes, **handlers: Callable[..., object]) -> Iterator[Service]:
    """A service in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    keyring = Keyring(keys) if keys else None
    service = Service(path, lambda: keyring, handlers)  # type: ignore[arg-type]
    try:
        asyncio.run_coroutine_threadsafe(service.start("127.0.0.1", 0), loop).result(SAFETY_NET_S)
        yield service
    finally:
        asyncio.run_coroutine_threadsafe(service.close(), loop).result(SAFETY_NET_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SAFETY_NET_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Store]:
    made = store(tmp_path)
    made.append([installed("4.1", 1, 2, first=True)])
    for seq in range(1, 300):
        made.append([delivered(seq, f"a {seq}", "b", group="even" if seq % 2 == 0 else "odd")])
    made.append([installed("8.1", 1), delivered(1, "x" * 100_000)])
    yield made
    made.close()


@pytest.mark.parametrize("keys", [(), (KEY,)], ids=["open", "sealed"])
def test_a_served_log_is_as_it_is_on_disk(log: Store, keys: tuple[bytes, ...]) -> None:
    with (
        served(log.path, *keys) as service,
        Replica(str(log.path)) as here,
        Replica(service.address, keys[0] if keys else None) as there,
    ):
        assert there.bounds() == here.bounds()
        for count in (1, 30, 10_000):
            assert there.after(at("4.1/9/0"), count) == here.after(at("4.1/9/0"), count)
            assert there.before(at("8.1/1/0"), count) == here.before(at("8.1/1/0"), count)
        for group in (None, "even", "neither"):
            assert rows(there, None, "8.1/1/0", group) == rows(here, None, "8.1/1/0", group)
        assert rows(there, "4.1/3/1", "4.1/77/0") == rows(here, "4.1/3/1", "4.1/77/0")
        assert there.after(at("8.1/1/0"), 5) is None


def test_what_cannot_be_given_is_said_over_the_line_as_on_disk(log: Store) -> None:
    with served(log.path) as service, Replica(service.address) as there:
        with pytest.raises(NotYet, match=r"and not 8\.1/2/0: wait"):
            there.after(at("8.1/2/0"), 1)
        with pytest.raises(NotThere, match="is before that"):
            there.read(at("2.1/1/0"), at("8.1/1/0"))
        with pytest.raises(SplitAway, match="split away"):
            there.read(None, at("6.2/1/0"))
        assert there.after(at("4.1/0/0"), 1) == at("4.1/1/0")


def test_a_read_that_is_given_up_does_not_disturb_the_next(log: Store) -> None:
    with served(log.path) as service, Replica(service.address) as there:
        reading = there.read(None, at("8.1/1/0"))
        next(reading)
        assert there.bounds().head == at("8.1/1/0")
        reading.close()  # type: ignore[attr-defined]
        assert told(rows(there, "8.1/0/0", "8.1/1/0")) == ["8.1/1/0 " + "x" * 100_000]


def test_a_node_that_came_back_is_found_again(log: Store) -> None:
    with served(log.path) as service:
        replica = Replica(service.address)
        assert replica.bounds().node == 1
        host, port = parse_address(service.address)
    with pytest.raises(Unreachable, match=r"cannot be reached|has ended the connection"):
        replica.bounds()
    again = Service(log.path, lambda: None)

    async def once() -> None:
        await again.start(host, port)
        assert (await asyncio.to_thread(replica.bounds)).node == 1
        await again.close()

    asyncio.run(once())
    replica.close()


# --- keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("has", "given", "sentence"),
    [
        ((KEY,), OTHER, "the node has another group key: give the one that it has"),
        ((KEY,), None, "the log is sealed: give the group key"),
        ((), KEY, "the node has no group key: leave the key out"),
    ],
    ids=["another", "none", "needless"],
)
def test_a_wrong_key_is_refused_in_words(
    log: Store, has: tuple[bytes, ...], given: bytes | None, sentence: str
) -> None:
    with served(log.path, *has) as service, Replica(service.address, given) as replica:
        with pytest.raises(KeyProblem, match=sentence):
            replica.bounds()
        assert service.drops == {"refused": 1}


def test_while_keys_are_changed_either_is_taken(log: Store, tmp_path: Path) -> None:
    with served(log.path, KEY, OTHER) as service:
        for key in (KEY, OTHER):
            with Replica(service.address, key) as replica:
                assert replica.bounds().node == 1


def test_who_knows_the_name_of_the_key_but_not_the_key_is_told_nothing(log: Store) -> None:
    with served(log.path, KEY) as service, socket.create_connection(parse_address(service.address)) as line:
        nonce = wire.new_nonce()
        line.sendall(wire.greeting(nonce, Keyring((KEY,))))
        how, other, _, _ = wire.read_answer(line.recv(wire.ANSWER_SIZE, socket.MSG_WAITALL))
        assert how == wire.SEALED
        forged = wire.Frames.sealed(OTHER, nonce, other, serving=False)
        line.sendall(forged.made({"op": "bounds"}))
        assert line.recv(100) == b""
        assert service.drops == {"not authentic": 1}


def test_what_was_said_in_one_connection_cannot_be_said_again_in_another(log: Store) -> None:
    with served(log.path, KEY) as service:
        address = parse_address(service.address)
        nonce = wire.new_nonce()
        greeting = wire.greeting(nonce, Keyring((KEY,)))
        with socket.create_connection(address) as line:
            line.sendall(greeting)
            _, other, _, _ = wire.read_answer(line.recv(wire.ANSWER_SIZE, socket.MSG_WAITALL))
            asked = wire.Frames.sealed(KEY, nonce, other, serving=False).made({"op": "bounds"})
            line.sendall(asked)
            assert line.recv(10) != b""
            line.sendall(asked)  # nor a second time in the same one
            until(lambda: service.drops["not authentic"] == 1, "a repeated frame was taken")
        with socket.create_connection(address) as line:
            line.sendall(greeting + asked)
            wire.read_answer(line.recv(wire.ANSWER_SIZE, socket.MSG_WAITALL))
            assert line.recv(100) == b""
        assert service.drops == {"not authentic": 2}


# --- silence ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"OCL", None], ids=["nothing", "half a greeting", "a greeting alone"])
def test_who_does_not_prove_itself_in_time_is_cut_off(
    log: Store, said: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "HANDSHAKE_S", 0.05)
    with served(log.path, KEY) as service, socket.create_connection(parse_address(service.address)) as line:
        line.sendall(wire.greeting(wire.new_nonce(), Keyring((KEY,))) if said is None else said)
        while line.recv(100):
            pass
        assert service.drops == {"silent": 1}


def test_a_client_that_is_idle_for_long_is_cut_off_and_comes_back(
    log: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "IDLE_S", 0.05)
    with served(log.path, KEY) as service, Replica(service.address, KEY) as replica:
        assert replica.bounds().node == 1
        until(lambda: service.drops == {"stalled": 1}, f"{service.drops}")
        assert replica.bounds().node == 1


def test_a_large_frame_is_taken_only_from_who_is_proven(log: Store) -> None:
    large = {"op": "bounds", "more": "x" * 100_000}
    with served(log.path, KEY) as service:
        line = Connection(service.address, Keyring((KEY,)), SAFETY_NET_S)
        with pytest.raises(Unreachable):
            line.ask(large)
        assert service.drops == {"frame too large": 1}
        line = Connection(service.address, Keyring((KEY,)), SAFETY_NET_S)
        assert line.ask({"op": "bounds"})
        assert line.ask(large)
        line.close()


# --- garbage ------------------------------------------------------------------------------------


def greeted(address: str) -> socket.socket:
    line = socket.create_connection(parse_address(address))
    line.sendall(wire.greeting(wire.new_nonce(), None))
    line.recv(wire.ANSWER_SIZE, socket.MSG_WAITALL)
    return line


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "not a client of the log"),
        (b"OC", "not a client of the log"),
        (random.Random(1).randbytes(300), "not a client of the log"),
    ],
    ids=["another protocol", "too short", "chance"],
)
def test_garbage_in_the_place_of_a_greeting_is_counted(log: Store, garbage: bytes, reason: str) -> None:
    with served(log.path) as service:
        with socket.create_connection(parse_address(service.address)) as line:
            line.sendall(garbage)
            line.shutdown(socket.SHUT_WR)
            assert line.recv(10) == b""
        until(lambda: service.drops == {reason: 1}, f"{service.drops}")
        with Replica(service.address) as replica:
            assert replica.bounds().node == 1


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"\xff" * 40, "frame too large"),
        (wire.LENGTH.pack(3) + b"abc", "malformed frame"),
        (wire.LENGTH.pack(20) + wire.LENGTH.pack(16) + b"\xc1" * 16, "malformed frame"),
        (wire.LENGTH.pack(8) + wire.LENGTH.pack(4) + b"\x81\xa1\x80\x01", "malformed frame"),
        (wire.LENGTH.pack(4004) + wire.LENGTH.pack(4000) + b"\x91" * 4000, "malformed frame"),
        (wire.Frames().made({"op": "after", "rows": "many"}), "malformed wish"),
        (wire.Frames().made({"op": "read", "end": [1, 2]}), "malformed wish"),
    ],
)
def test_garbage_behind_a_greeting_is_counted(log: Store, garbage: bytes, reason: str) -> None:
    with served(log.path) as service:
        with greeted(service.address) as line:
            line.sendall(garbage)
            assert line.recv(10) == b""
        until(lambda: service.drops == {reason: 1}, f"{service.drops}")
        with Replica(service.address) as replica:
            assert replica.bounds().node == 1


@given(st.binary(max_size=60))
def test_any_frame_is_taken_or_malformed(inside: bytes) -> None:
    with suppress(wire.Malformed):
        wire.Frames().taken(inside)
    with suppress(wire.Malformed):
        wire.Frames().taken(wire.LENGTH.pack(len(inside)) + inside)


def test_a_wish_that_is_not_known_is_answered(log: Store) -> None:
    with served(log.path) as service:
        line = Connection(service.address, None, SAFETY_NET_S)
        with pytest.raises(LogError, match="does not know 'dance'"):
            line.ask({"op": "dance"})
        line.close()


def test_other_wishes_can_be_served_on_the_same_line(log: Store) -> None:
    async def echo(line: ClientChannel, wish: dict[str, object]) -> None:
        while (said := await line.receive()) is not None and "end" not in said[0]:
            await line.send({"you said": said[0]["word"], "to": wish["name"]}, said[1] * 2)

    with served(log.path, KEY, echo=echo) as service:
        line = Connection(service.address, Keyring((KEY,)), SAFETY_NET_S)
        line.send({"op": "echo", "name": "me"})
        assert line.receive(0.0) is None
        line.send({"word": "hello"}, b"12")
        header, body = line.receive_all()
        assert (header, bytes(body)) == ({"you said": "hello", "to": "me"}, b"1212")
        line.send({"end": True})
        assert line.ask({"op": "bounds"})[0]["bounds"][2] == 1
        line.close()


def test_something_else_than_a_log_service_is_told_from_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def talk() -> None:
            line, _ = other.accept()
            line.sendall(b"220 mail.example ESMTP ready, what can I do for you?\r\n")
            line.close()

        thread = threading.Thread(target=talk)
        thread.start()
        with (
            Replica(f"127.0.0.1:{port}") as replica,
            pytest.raises(Unreachable, match=r"is no log service|ended"),
        ):
            replica.bounds()
        thread.join()
        silent = Replica(f"127.0.0.1:{port}", timeout=0.1)
        with pytest.raises(Unreachable, match=r"did not answer for 0\.1 s"):
            silent.bounds()
    with Replica(f"127.0.0.1:{port}") as replica, pytest.raises(Unreachable, match="cannot be reached"):
        replica.bounds()

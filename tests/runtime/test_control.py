"""Asking a running node: a socket in its data directory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import stat
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ordercast.errors import StorageProblem
from ordercast.runtime import control
from ordercast.runtime.control import Control, NoNode, ask

STATUS = {"node": 1, "state": "operational"}


def serving(path: Path, body: Callable[[Control], Awaitable[Any]]) -> Any:
    """What the body returns while a node serves this socket."""

    async def main() -> Any:
        server = Control(path, lambda: dict(STATUS))
        await server.start()
        try:
            return await body(server)
        finally:
            await server.close()

    return asyncio.run(main())


async def say(path: Path, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    answer = await reader.readline()
    writer.close()
    return answer


def test_a_node_is_asked_for_its_status(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    answers = serving(path, lambda _: asyncio.gather(*(asyncio.to_thread(ask, path) for _ in range(5))))
    assert answers == [STATUS] * 5


def test_only_its_user_may_ask_and_nothing_stays_behind(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    async def mode(_: Control) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert serving(path, mode) == 0o600
    assert not path.exists()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"status\n", "this is no request"),
        (b"[]\n", "this is no request"),
        (b"\xff\n", "this is no request"),
        (b"{}\n", "this is no request"),
        (b'{"what": "tea"}\n', "nothing is known of 'tea': ask for status"),
        (b'{"what": ["status"]}\n', "this is no request"),
        (b"[" * 20_000 + b"\n", "this is no request"),
        (b'{"what": ' + b"[" * 20_000 + b"\n", "this is no request"),
        (b'{"what": ' + b"[" * 800 + b"]" * 800 + b"}\n", "this is no request"),
        (b'{"and": ' * 5_000 + b"\n", "this is no request"),
        (b'{"what": "\\ud800"}\n', "this is no request"),
    ],
)
def test_what_is_no_request_is_told_so(tmp_path: Path, line: bytes, sentence: str) -> None:
    answer = serving(tmp_path / "s", lambda _: say(tmp_path / "s", line))
    assert sentence in json.loads(answer)["error"]


def test_a_line_without_end_is_not_answered(tmp_path: Path) -> None:
    async def flood(_: Control) -> dict[str, Any]:
        with contextlib.suppress(ConnectionError):
            assert await say(tmp_path / "s", b"x" * 4 * control.MAX_REQUEST) == b""
        return await asyncio.to_thread(ask, tmp_path / "s")

    assert serving(tmp_path / "s", flood) == STATUS


def test_closing_does_not_wait_for_who_says_nothing(tmp_path: Path) -> None:
    async def stay(_: Control) -> asyncio.StreamReader:
        reader, _writer = await asyncio.open_unix_connection(tmp_path / "s")
        await asyncio.sleep(0)
        stay.writer = _writer  # type: ignore[attr-defined]
        return reader

    serving(tmp_path / "s", stay)
    assert not (tmp_path / "s").exists()


def test_a_socket_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert path.is_socket()
    assert serving(path, lambda _: asyncio.to_thread(ask, path)) == STATUS


def test_the_socket_of_a_living_node_is_not(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    async def second(_: Control) -> dict[str, Any]:
        with pytest.raises(StorageProblem, match=r"a node is already running with .* directory of its own"):
            await Control(path, dict).start()
        return await asyncio.to_thread(ask, path)

    assert serving(path, second) == STATUS


def test_a_file_of_that_name_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    path.write_text("mine")
    with pytest.raises(StorageProblem, match="cannot be made"):
        asyncio.run(Control(path, dict).start())
    assert path.read_text() == "mine"


def test_the_socket_of_a_successor_stays(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    async def replaced(_: Control) -> None:
        path.unlink()
        successor = Control(path, dict)
        await successor.start()
        replaced.successor = successor  # type: ignore[attr-defined]

    serving(path, replaced)
    assert path.is_socket()


def test_a_path_too_long_for_a_socket_does_as_well(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120) / ("e" * 120)
    directory.mkdir(parents=True)
    path = directory / "control.sock"
    assert serving(path, lambda _: asyncio.to_thread(ask, path)) == STATUS
    assert not path.exists()
    with pytest.raises(NoNode, match="no node is running"):
        ask(path)


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    for name in ("nowhere", "n" * 120):
        with pytest.raises(StorageProblem, match="cannot be made: No such file or directory"):
            asyncio.run(Control(tmp_path / name / "control.sock", dict).start())


# --- who asks -----------------------------------------------------------------------------------


def test_where_no_node_runs_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoNode, match=r"no node is running with .*: start one with `ordercast node`"):
        ask(tmp_path / "control.sock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "control.sock"))
    with pytest.raises(NoNode, match="no node is running"):
        ask(tmp_path / "control.sock")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"", "ended before it answered"),
        (b"hello\n", "is no node of ordercast"),
        (b"[]\n", "is no node of ordercast"),
        (b"{}\n", "is no node of ordercast"),
        (b"[" * 20_000 + b"\n", "is no node of ordercast"),
        (b'{"status": ' + b"[" * 20_000 + b"\n", "is no node of ordercast"),
        (b'{"error": "not now"}\n', "answers: not now"),
    ],
)
def test_an_answer_that_is_none(tmp_path: Path, line: bytes, sentence: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()

        def once() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(line)

        thread = threading.Thread(target=once)
        thread.start()
        with pytest.raises(NoNode, match=sentence):
            ask(tmp_path / "s")
        thread.join()


def test_a_node_that_hangs_is_not_waited_for_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "ANSWER_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        with pytest.raises(NoNode, match="did not answer for"):
            ask(tmp_path / "s")

"""Plays the code blocks of a page of the documentation, one after the other, in a directory of its own.

| block | what is done with it |
|---|---|
| `python` | run, with what the page's blocks before it have defined |
| `python title="FILE"` | written to that file |
| `sh` | run by a shell; lines that only say ``ordercast …`` within this process |
| `toml` | read |
| `text` | nothing: it is no code |

A comment in the line above says what a reader does and a test cannot see:

| comment | |
|---|---|
| `<!-- not run: WHY -->` | it is not run |
| `<!-- from: FILE -->` | it is a part of that file, which the tests run |
| `<!-- background: NAME -->` | it goes on in a terminal of its own, until the page ends or it is killed |
| `<!-- kill: NAME -->` | that one is killed (-9) first |
| `<!-- until it works -->` | what it talks to may still be starting: it is tried again |
| `<!-- prints: TEXT -->` | the last line that it prints |
| `<!-- in the test: OLD -> NEW; … -->` | with less to do |

``ordercast sim run`` simulates half a second unless it says for how long.
Ports of loopback from 4800 to 4899, and 7000 to 7099, are replaced by free ones: pages are played at once.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from free_ports import free_port

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(
    r'^(?:<!-- (?P<said>[^\n]*?) -->\n)?```(?P<kind>\w*)(?: title="(?P<title>[^"\n]+)")?\n(?P<text>.*?)^```$',
    re.M | re.S,
)
INDENTED = re.compile(r"(?<=\n\n)(?:    [^\n]*\n)+")
SAYINGS = ("not run: ", "from: ", "background: ", "kill: ", "until it works", "prints: ", "in the test: ")
PORT = re.compile(r"(?<=127\.0\.0\.1:)48\d\d\b|(?<=\.py )70\d\d\b")
SIMPLE = re.compile(r"ordercast [^|&;<>$`\\]*$")
LONG_S = 120
"""What takes longer than this hangs."""


class Block(NamedTuple):
    """A code block, and what is said of it."""

    kind: str
    text: str
    title: str | None
    said: str
    line: int

    def told(self, word: str) -> str | None:
        """What follows the word, if the comment begins with it."""
        return self.said.removeprefix(word) if self.said.startswith(word) else None


def blocks(page: Path) -> list[Block]:
    """The page's code blocks."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            found["kind"],
            found["text"],
            found["title"],
            found["said"] or "",
            text.count("\n", 0, found.start()),
        )
        for found in BLOCK.finditer(text)
    ]


def unfenced(page: Path) -> list[str]:
    """Blocks that are code by their indentation alone: nobody can say of what kind they are."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    lists = re.sub(r"^(?:[-*]|\d+\.) .*\n(?:(?: {2,}.*)?\n)*", "", text, flags=re.M)
    return [found.group() for found in INDENTED.finditer(lists)]


class Play:
    """One page, being played in a directory."""

    def __init__(self, page: Path, directory: Path) -> None:
        self._page = page
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._ports: dict[str, str] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "100",
            "PYTHONPATH": str(directory),
        }
        for name in ("docs", "examples", "src", "tests"):
            (directory / name).symlink_to(ROOT / name)

    def play(self) -> None:
        """All blocks."""
        try:
            for block in blocks(self._page):
                try:
                    self._block(block)
                except BaseException as error:
                    error.add_note(f"{self._page.name}, the block in line {block.line + 1}:\n{block.text}")
                    raise
        finally:
            for process in self._running.values():
                _kill(process)

    def _block(self, block: Block) -> None:
        assert not block.said or block.said.startswith(SAYINGS), f"nobody knows what {block.said!r} means"
        if block.told("not run: ") is not None:
            return
        if (file := block.told("from: ")) is not None:
            assert block.text in (ROOT / file).read_text(encoding="utf-8"), f"{file} has it no longer"
            return
        text = block.text
        for change in (block.told("in the test: ") or "").split("; ") if block.told("in the test: ") else ():
            old, _, new = change.partition(" -> ")
            assert old in text, f"there is no {old!r} to be replaced"
            text = text.replace(old, new)
        text = PORT.sub(lambda found: self._port(found.group()), text)
        match block.kind:
            case "python" if block.title:
                Path(block.title).write_text(text, encoding="utf-8")
            case "python":
                where = f"{self._page.name}:{block.line + 1}"
                exec(compile(text, where, "exec", dont_inherit=True), self._names)
            case "sh":
                self._shell(block, text)
            case "toml":
                tomllib.loads(text)
            case "text":
                pass
            case other:
                raise AssertionError(f"a block is python, sh, toml or text, not {other!r}")

    def _shell(self, block: Block, text: str) -> None:
        if (name := block.told("background: ")) is not None:
            self._running[name] = subprocess.Popen(
                ["bash", "-c", f"exec {text.strip()}"],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            return
        if (name := block.told("kill: ")) is not None:
            _kill(self._running.pop(name))
        lines = [re.sub(r"\s+#.*$", "", line) for line in text.splitlines() if line.strip()]
        if all(SIMPLE.match(line) for line in lines) and not block.said.startswith("until"):
            for line in lines:
                _command(line)
            return
        tries = 200 if block.said.startswith("until") else 1
        for _ in range(tries):
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                env=self._env,
                capture_output=True,
                text=True,
                timeout=LONG_S,
                check=False,
            )
            if done.returncode == 0:
                break
            time.sleep(0.1)
        assert done.returncode == 0, done.stdout + done.stderr
        if (expected := block.told("prints: ")) is not None:
            assert done.stdout.splitlines()[-1:] == [expected], done.stdout + done.stderr

    def _port(self, told: str) -> str:
        """A free port instead, the next being free as well; the same one on the whole page."""
        if told not in self._ports:
            self._ports[told] = str(free_port())
        return self._ports[told]


def _command(line: str) -> None:
    from ordercast.cli import app

    words = shlex.split(line)[1:]
    if words[:2] == ["sim", "run"] and "--seconds" not in words:
        words += ["--seconds", "0.5"]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "100"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, f"{line}\n{result.stdout}{result.stderr}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()

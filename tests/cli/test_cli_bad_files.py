"""Files and directories that cannot be what they are given for: a sentence each, and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ordercast import plain_file


def said(*words: str | Path, descriptors: int = 256) -> subprocess.CompletedProcess[str]:
    """What ``ordercast`` answers, with so many descriptors."""
    script = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))\n"
        f"from ordercast import plain_file; plain_file.PIPE_S = 0.2\n"
        "from ordercast.cli import main\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """A directory with things that are no files, or not what they are called."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "directory").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("x")
    (tmp_path / "nested.toml").write_text("a = " + "[" * 20_000 + "]" * 20_000)
    (tmp_path / "long.toml").write_text("a" + ".a" * 100_000 + " = 1")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("node", "-c", "pipe"), "nobody has written into it"),
        (("node", "-c", "directory"), "it is a directory"),
        (("node", "-c", "loop"), "Too many levels of symbolic links"),
        (("node", "-c", "nested.toml"), "nested too deeply"),
        (("node", "-c", "long.toml"), "more than 65,536 bytes"),
        (("node", "--key", "pipe"), "nobody has written into it"),
        (("log", "127.0.0.1:1", "--key", "directory"), "is a directory: name the key file in it"),
        (("keygen", "--add", "/dev/zero"), "is no file"),
        (("node", "--data", "file"), "is not a directory"),
        (("node", "--log", "file"), "cannot be written"),
        (("node", "--trace", "file"), "give a directory for the trace"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else None,
)
def test_what_cannot_be_used_is_told_in_a_sentence(
    bad: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(bad)
    more = ("--listen", "127.0.0.1:0") if words[0] == "node" else ()
    found = said(*words, *more)
    assert "Traceback" not in found.stderr
    assert sentence in found.stderr
    assert found.returncode == 2


@pytest.mark.parametrize("descriptors", [8, 12, 24])
def test_a_node_with_too_few_descriptors_says_so(tmp_path: Path, descriptors: int) -> None:
    directories = ("--data", tmp_path / "data", "--log", tmp_path / "log", "--trace", tmp_path / "trace")
    found = said("node", "--listen", "127.0.0.1:0", *directories, descriptors=descriptors)
    assert "Traceback" not in found.stderr
    assert "raise the limit with `ulimit -n 1024`" in found.stderr
    assert found.returncode == 2


def test_a_pipe_that_somebody_writes_into_is_read(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.write(writing, b"some text")
    os.close(writing)
    assert plain_file.read_open(reading, 100) == b"some text"
    os.close(reading)

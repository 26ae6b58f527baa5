"""Ways to run the command line and to read what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from ordercast.cli import app


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What `--json` printed: one object on one line, and nothing else."""
        assert self.out.endswith("}\n"), self
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """What went wrong, without the frame around it, in one line."""
        return " ".join(re.sub(r"[╭╮╰╯│─]", " ", self.err).split())


def ordercast(*words: object) -> Said:
    """The command, in this process. What it raises by mistake is raised here."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "100"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Said(result.exit_code, result.stdout, result.stderr)


def process(*words: object, hash_seed: int = 0, cwd: Path | None = None) -> Said:
    """The command, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", "from ordercast.cli import main; main()", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "COLUMNS": "100"},
        timeout=120,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)

"""What somebody gets who tests a store written on `Group` alone: its mistake, and how to repeat it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from strangers_tests import test_the_store as the_store

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def pytest_says(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of pytest in a process of its own, as a person would type it."""
    assert command.startswith("pytest ")
    paths = (ROOT / "src", HERE, ROOT / "tests", ROOT / "tests" / "clients", ROOT / "tests" / "replicated")
    # the plugin is an entry point, which only an installation of this version has
    whole = f"{sys.executable} -m pytest -p ordercast.pytest_plugin -p no:cacheprovider{command[6:]}"
    return subprocess.run(
        ["bash", "-c", whole],
        cwd=ROOT,
        env={
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("PYTEST", "ORDERCAST"))
            },
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
        },
        capture_output=True,
        text=True,
    )


def failure_in(output: str) -> list[str]:
    """What was raised, what went wrong in the world, and when."""
    return [
        re.sub(r"^E? *", "", line)
        for line in output.splitlines()
        if line.startswith("E ") and re.search(r"AssertionError|NotLinearizable|Stuck|\d s  ", line)
    ]


def test_the_mistake_is_found_within_twenty_seeds_and_the_printed_command_repeats_it() -> None:
    first = pytest_says("pytest tests/testing/strangers_tests.py -k mistake")
    assert first.returncode == 1, first.stdout + first.stderr
    assert "test_the_store_with_its_mistake failed with seed" in first.stdout
    command = re.search(r"^E +(pytest '.*)$", first.stdout, re.M)
    assert command is not None, first.stdout
    again = pytest_says(command[1])
    assert again.returncode == 1, again.stdout + again.stderr
    found = failure_in(first.stdout)
    assert len(found) > 1
    assert failure_in(again.stdout) == found


@pytest.mark.campaign
def test_without_the_mistake_it_passes() -> None:
    the_store()

"""What a program loads with the library stays light: no Arrow, no metrics server, no command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyarrow", "prometheus_client", "typer", "rich", "uvloop", "hypothesis", "numpy")


@pytest.mark.parametrize("module", ["ordercast", "ordercast.threads"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == ""


def test_importing_loads_nothing_of_the_laboratory() -> None:
    script = "import sys, ordercast; print(*(name for name in sys.modules if name[:10] == 'ordercast.'))"
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    loaded = {name.split(".")[1] for name in answer.stdout.split()}
    assert "groups" in loaded
    assert not loaded & {"protocols", "sequencers", "totem", "viewsync"}, "machines, before there is a node"
    assert not loaded & {"audit", "catalogue", "demo", "draw", "lab", "measure", "mutants", "sim"}


def test_a_node_that_runs_loads_nothing_heavy() -> None:
    script = (
        "import asyncio, ordercast, sys\n"
        "async def main():\n"
        "    async with ordercast.Node(listen='127.0.0.1:0') as node:\n"
        "        group = await node.join('g')\n"
        "        await (await group.send(b'x', receipt=True))\n"
        "        node.status()\n"
        "asyncio.run(main())\n"
        f"print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == ""

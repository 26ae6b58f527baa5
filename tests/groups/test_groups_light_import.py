"""What a program loads with the library stays light: no Arrow, no metrics server, no command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ordercast
from ordercast.groups.api import Node

HEAVY = ("pyarrow", "prometheus_client", "typer", "rich", "uvloop", "hypothesis", "numpy")


LOADING = ["import ordercast", "import ordercast.threads", "from ordercast import *"]


@pytest.mark.parametrize("loading", LOADING)
def test_importing_loads_nothing_heavy(loading: str) -> None:
    script = f"{loading}\nimport sys; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == ""


@pytest.mark.parametrize("loading", LOADING)
def test_importing_loads_nothing_of_the_laboratory(loading: str) -> None:
    script = f"{loading}\nimport sys; print(*(name for name in sys.modules if name[:10] == 'ordercast.'))"
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    loaded = {name.split(".")[1] for name in answer.stdout.split()}
    assert ("groups" in loaded) is (loading != LOADING[0]), "it is loaded when it is used"
    assert not loaded & {"protocols", "sequencers", "totem", "viewsync"}, "machines, before there is a node"
    assert not loaded & {"audit", "catalogue", "demo", "draw", "lab", "measure", "mutants", "sim"}


def test_everything_the_package_names_is_there_and_nothing_else() -> None:
    assert set(ordercast.__all__) <= set(dir(ordercast))
    for name in ordercast.__all__:
        assert getattr(ordercast, name) is not None
    assert ordercast.Node is Node
    with pytest.raises(AttributeError, match="module 'ordercast' has no attribute 'Nodes'"):
        _ = ordercast.Nodes  # type: ignore[attr-defined]


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

"""A node that lost its disk under a clock that was set back, or whose disk was put back, learns of it."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from group_nodes import make_node, payloads, run, together, udp, until

from ordercast import Group, Node
from ordercast.audit.files import audit_trace
from ordercast.groups.next_life import NextLife
from ordercast.runtime import incarnations
from ordercast.runtime.storage import Memory
from ordercast.transport import known_lives as lives

HOURS_BACK = 7_200

pytestmark = pytest.mark.usefixtures("journals")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock that lives are counted by; what is `back` is taken off, and nobody waits for a second."""
    told = SimpleNamespace(back=0.0)
    own = SimpleNamespace(time=lambda: time.time() - told.back, sleep=lambda seconds: None)
    monkeypatch.setattr(incarnations, "time", own)
    return told


@asynccontextmanager
async def group_of_three(directory: Path, protocol: str) -> AsyncIterator[list[Node]]:
    nodes: list[Node] = []
    try:
        for id in (1, 2, 3):
            nodes.append(node(directory, id, protocol, [other.address for other in nodes]))
            await nodes[-1].start()
        await together(nodes)
        yield nodes
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))


def node(directory: Path, id: int, protocol: str, seeds: list[str], **more: Any) -> Node:
    data, trace = directory / str(id), directory / "trace"
    return make_node(id=id, seeds=seeds, protocol=protocol, data=data, trace=trace, **more)


async def all_hear(nodes: list[Node]) -> None:
    groups: list[Group] = [await node.join("g") for node in nodes]
    await groups[0].send(b"x")
    await groups[-1].send(b"y")
    for group in groups:
        assert sorted(await payloads(group, 2)) == [b"x", b"y"]


def check(directory: Path) -> None:
    report = audit_trace(directory / "trace")
    assert report.events
    assert report.clean, [violation.sentence for violation in report.violations]


PROTOCOLS = pytest.mark.parametrize("protocol", ["totem", "cm"])


@PROTOCOLS
def test_a_lost_disk_under_a_clock_that_was_set_back(
    protocol: str, tmp_path: Path, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with group_of_three(tmp_path, protocol) as nodes:
            await all_hear(nodes)
            before = nodes[2].incarnation
            nodes[2]._running.driver.end(None)  # as kill -9 does
            await nodes[2].stop()
            shutil.rmtree(tmp_path / "3")
            clock.back = HOURS_BACK
            nodes[2] = node(tmp_path, 3, protocol, [nodes[0].address])
            await nodes[2].start()
            assert nodes[2].incarnation > before
            await together(nodes)
            await all_hear(nodes)

    run(main)
    told = [record.getMessage() for record in caplog.records if "others know life" in record.getMessage()]
    assert len(told) == 1
    assert "clock was set back" in told[0]
    check(tmp_path)


@PROTOCOLS
def test_a_data_directory_that_was_put_back(
    protocol: str, tmp_path: Path, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with group_of_three(tmp_path, protocol) as nodes:
            shutil.copytree(tmp_path / "3", tmp_path / "old", ignore=lambda *_: ["control.sock"])
            for _ in range(2):
                await nodes[2].stop()
                nodes[2] = node(tmp_path, 3, protocol, [nodes[0].address])
                await nodes[2].start()
                await together(nodes)
            before = nodes[2].incarnation
            await nodes[2].stop()
            shutil.rmtree(tmp_path / "3")
            shutil.copytree(tmp_path / "old", tmp_path / "3")
            nodes[2] = node(tmp_path, 3, protocol, [nodes[0].address])
            await nodes[2].start()
            assert nodes[2].incarnation == before + 1
            await together(nodes)
            await all_hear(nodes)

    run(main)
    told = [record.getMessage() for record in caplog.records if "others know life" in record.getMessage()]
    assert len(told) == 1
    assert f"{tmp_path / '3'} was put back as it once was" in told[0]
    check(tmp_path)


def test_who_learns_of_it_when_it_has_begun_alone_takes_a_later_life_then(
    tmp_path: Path, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with group_of_three(tmp_path, "totem") as nodes:
            before = nodes[2].incarnation
            await nodes[2].stop()
            shutil.rmtree(tmp_path / "3")
            clock.back = HOURS_BACK
            nodes[2] = node(tmp_path, 3, "totem", [])
            await nodes[2].start()
            assert nodes[2].incarnation < before
            udp(nodes[0]).links.know([udp(nodes[2]).own])
            await until(lambda: nodes[2].incarnation > before)
            await together(nodes)
            await all_hear(nodes)

    run(main)
    check(tmp_path)


def test_what_the_others_know_survives_them(tmp_path: Path, clock: SimpleNamespace) -> None:
    async def main() -> None:
        async with group_of_three(tmp_path, "totem") as nodes:
            before = nodes[2].incarnation
            await until(lambda: all((tmp_path / id / lives.FILE).exists() for id in "12"))
        shutil.rmtree(tmp_path / "3")
        clock.back = HOURS_BACK
        async with node(tmp_path, 1, "totem", []) as one:
            three = node(tmp_path, 3, "totem", [one.address])
            await three.start()
            assert three.incarnation > before
            await together([one, three])
            await three.stop()

    run(main)
    check(tmp_path)


def test_forged_lives_are_dropped_and_of_several_the_latest_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before the first life has begun: nothing is to be ended then."""
    drops: list[str] = []
    driver: Any = SimpleNamespace(live=False, drops=SimpleNamespace(drop=drops.append))
    parts: Any = SimpleNamespace()
    storage = Memory(1, new=True)
    storage.incarnation = 5
    next_life = NextLife(storage, driver, lambda: parts, parts, sealed=True)
    next_life.outlived(4)
    next_life.outlived(2**40)
    assert drops == ["greeting: life out of reach"] * 2
    assert next_life.outlived_by is None
    for life in (7, 9, 8):
        next_life.outlived(life)
    assert next_life.outlived_by == 9
    (told,) = caplog.messages
    assert "the others know life 7 of this node" in told

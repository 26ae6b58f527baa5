"""What a sender waits for, and what it is told when it waits in vain: in virtual time, without a network."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ordercast import NodeClosed, NoMajority, SendTimeout
from ordercast.core.identity import Guarantee
from ordercast.groups.lifetime import Lifetime
from ordercast.groups.notes import Slow, decode
from ordercast.groups.send_gate import SendGate
from ordercast.groups.slow_readers import SlowReaders
from ordercast.testing import run


class Scene:
    """The gate of node 1, with room for 1,000 bytes, and the parts that it is handed."""

    def __init__(self) -> None:
        self.submitted: list[bytes] = []
        self.settled = True
        self.driver = SimpleNamespace(
            live=True,
            ended=False,
            state="gather",
            because="token lost",
            machine=SimpleNamespace(laggard=None),
            submit=lambda payloads, guarantee: self.submitted.extend(payloads),
        )
        self.readers = SimpleNamespace(unread_by_group=lambda: {"g": 4_321}, slow_groups=(), placed=True)
        self.lifetime = Lifetime()
        driver: Any = self.driver
        readers: Any = self.readers
        self.gate = SendGate(1, driver, readers, self.lifetime, 1_000, lambda: self.settled)
        self.gate.largest = 10_000
        self.gate.release()

    def fill(self) -> None:
        self.gate.submit([bytes(1_000)], 1_000, Guarantee.AGREED)

    async def wait(self) -> str:
        """Wait for room in vain; what is said then."""
        with pytest.raises(SendTimeout) as told:
            await self.gate.wait(["g"], 100, 2.5)
        return str(told.value)


@pytest.mark.parametrize(
    ("slow", "laggard", "settled", "why"),
    [
        ((), None, False, "the group is changing (gather: token lost)"),
        ((), None, True, "the group is saturated"),
        ((), 3, True, "node 3 does not keep up;"),
        ((2,), None, True, "node 2 does not keep up: its application does not read the group g"),
        (
            (1,),
            None,
            True,
            "this node itself does not read the group g (4,321 bytes wait)",
        ),
    ],
)
def test_who_waits_in_vain_is_told_for_what(
    slow: tuple[int, ...], laggard: int | None, settled: bool, why: str
) -> None:
    async def main() -> None:
        scene = Scene()
        scene.fill()
        scene.settled = settled
        scene.driver.machine.laggard = laggard
        for node in slow:
            scene.gate.slow_groups.hear(node, ("g",))
        told = await scene.wait()
        assert told.startswith("nothing could be sent for 2.5 s: ")
        assert why in told
        assert asyncio.get_running_loop().time() == pytest.approx(2.5)

    run(main())


def test_nothing_is_taken_until_the_members_have_told_of_their_processes() -> None:
    async def main() -> None:
        scene = Scene()
        scene.gate.hold()
        assert scene.gate.must_wait(["g"])
        assert "not all members have told yet which groups their processes are in" in await scene.wait()
        waiting = asyncio.create_task(scene.gate.wait(["g"], 100, None))
        await asyncio.sleep(1)
        assert not waiting.done()
        scene.gate.release()
        await waiting
        assert not scene.gate.must_wait(["g"])

    run(main())


def test_who_sends_to_several_groups_waits_for_the_slow_ones_among_them() -> None:
    async def main() -> None:
        scene = Scene()
        scene.gate.slow_groups.hear(2, ("h",))
        assert not scene.gate.must_wait(["g"])
        assert scene.gate.must_wait(["g", "h"])
        waiting = asyncio.create_task(scene.gate.wait(["g", "h"], 100, None))
        await asyncio.sleep(1)
        assert not waiting.done()
        scene.gate.slow_groups.hear(2, ())
        await waiting

    run(main())


def test_nothing_is_taken_once_the_node_leaves_or_has_ended() -> None:
    async def main() -> None:
        scene = Scene()
        scene.lifetime.leave()
        with pytest.raises(NodeClosed, match="is leaving"):
            scene.gate.submit([b"x"], 1, Guarantee.AGREED)
        scene.lifetime.end(None)
        scene.driver.ended = True
        with pytest.raises(NodeClosed, match="has left"):
            scene.gate.submit([b"x"], 1, Guarantee.AGREED)
        assert scene.submitted == []

    run(main())


def test_what_ended_a_node_is_told_once_and_for_all() -> None:
    async def main() -> None:
        lifetime = Lifetime()
        lifetime.end(ValueError("the first"))
        lifetime.end(ValueError("the second"))
        lifetime.end(None)
        with pytest.raises(ValueError, match="the first"):
            lifetime.check_open()
        with pytest.raises(ValueError, match="the first"):
            await lifetime.closed()

    run(main())


def test_of_more_slow_groups_than_fit_into_a_message_some_are_told() -> None:
    async def main() -> None:
        scene = Scene()
        groups = tuple(f"group {number:03}" for number in range(64))
        scene.readers.slow_groups = groups
        scene.readers.unread_by_group = dict
        scene.gate.largest = 200
        readers: Any = scene.readers
        SlowReaders(readers, scene.gate, scene.lifetime).changed()
        await asyncio.sleep(0)
        (note,) = scene.submitted
        told = decode(note)
        assert isinstance(told, Slow)
        assert 0 < len(told.groups) < len(groups)
        assert told.groups == groups[: len(told.groups)]
        assert len(note) <= scene.gate.largest

    run(main())


def test_who_waits_when_the_primary_partition_is_lost_is_told() -> None:
    async def main() -> None:
        scene = Scene()
        scene.fill()
        for_room = asyncio.create_task(scene.gate.wait(["g"], 100, None))
        slow = Scene()
        slow.gate.slow_groups.hear(2, ("g",))
        for_readers = asyncio.create_task(slow.gate.wait(["g"], 100, None))
        await asyncio.sleep(1)
        for each in (scene, slow):
            each.gate.refuse(NoMajority("nodes 2 and 3 are missing"))
        for waiting in (for_room, for_readers):
            with pytest.raises(NoMajority, match="are missing"):
                await waiting
        with pytest.raises(NoMajority, match="are missing"):
            scene.gate.check_majority()
        scene.gate.accept()
        scene.gate.check_majority()

    run(main())

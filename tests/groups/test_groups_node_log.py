"""A node's log as part of the node: whoever opened it lets go of it, however far it came."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from group_nodes import run

from ordercast.core.addresses import address
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.groups.node_log import NodeLog
from ordercast.log import Replica
from ordercast.log.feed import Final
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.connections import Connections

RING = ConfigurationId(4, 1)


class Opened:
    """The log of node 1 in a directory, and what it is told."""

    def __init__(self, directory: Path, **given: Any) -> None:
        self.final: Final = None
        self.path = directory / "log"
        self.log = NodeLog(
            NodeConfig(log=self.path, log_sync=False, **given),
            sealed=False,
            now_us=lambda: time.time_ns() // 1000,
        )

    async def open(self) -> None:
        await self.log.open(1)

    def begin(self) -> None:
        self.log.begin(lambda: self.final, lambda: None, lambda problem: None)

    async def serve(self, *hosts: str) -> None:
        producing: Any = SimpleNamespace(serve=None, commit=None, use_log=lambda notes, note, kept: None)
        await self.log.serve(lambda: None, producing, Connections(), lambda: hosts)

    def deliver(self, seq: int) -> None:
        assert self.log.feed is not None
        self.log.feed.deliver(
            Batch(RING, seq, 0, 1, 0, seq, Guarantee.AGREED, [address(0, ["g"]) + b"%d" % seq])
        )

    def install(self) -> None:
        assert self.log.feed is not None
        self.log.feed.install(Configuration(RING, Kind.REGULAR, (1,)))

    def head(self) -> str:
        with Replica(str(self.path)) as replica:
            return str(replica.bounds().head)

    def others(self) -> Sequence[str]:
        """From where it would be repaired."""
        assert self.log._scrubber is not None
        return self.log._scrubber._others()


@pytest.mark.parametrize("begun", [False, True])
def test_a_log_that_is_closed_before_it_was_served_can_be_opened_again(tmp_path: Path, begun: bool) -> None:
    async def main() -> None:
        for _ in range(2):
            one = Opened(tmp_path)
            await one.open()
            if begun:
                one.begin()
            await one.log.close()
            assert one.log.status() is None

    run(main)


def test_what_was_not_final_when_a_life_ended_is_not_in_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        one = Opened(tmp_path)
        await one.open()
        one.log.life_over()
        one.begin()
        one.install()
        for seq in (1, 2, 3):
            one.deliver(seq)
        one.final = (RING, 2)
        one.log.life_over()
        one.final = (RING, 3)
        await one.log.close()
        assert one.head() == "4.1/2/0"

    run(main)


@pytest.mark.parametrize(
    ("given", "others"),
    [
        ({}, ()),
        ({"log_repair": ("10.0.0.9:4805",)}, ("10.0.0.9:4805",)),
        ({"log_listen": "PLACE"}, ("127.0.0.2:PORT", "[::1]:PORT")),
        ({"log_listen": "PLACE", "log_repair": ("10.0.0.9:4805",)}, ("10.0.0.9:4805",)),
    ],
    ids=["nobody is known", "those that are named", "the others, at the same port", "named, and no others"],
)
def test_where_a_log_is_repaired_from(tmp_path: Path, given: dict[str, Any], others: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    if "log_listen" in given:
        given = {**given, "log_listen": f"127.0.0.1:{port}"}

    async def main() -> None:
        one = Opened(tmp_path, **given)
        await one.open()
        one.begin()
        await one.serve("127.0.0.2", "::1")
        assert tuple(one.others()) == tuple(other.replace("PORT", port) for other in others)
        await one.log.close()

    run(main)

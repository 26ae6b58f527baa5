"""What wakes a node: everything; or, on a brisk ring, the token alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import pytest

from ordercast.transport.wake_policy import (
    AWAKE_US,
    BRISK_US,
    CROWDED_REST_US,
    CROWDED_TIMES,
    CROWDED_US,
    SETTLING_TURNS,
    STAYED_AWAY_US,
    WakePolicy,
)

TURNS = SETTLING_TURNS + 2


class Scene:
    """A wake policy with a clock of its own, and sockets that can be written to."""

    def __init__(self, data_waits: bool) -> None:
        self.now = 1_000_000
        self.woken: list[str] = []
        pairs = [socket.socketpair() for _ in range(2)]
        for _, its in pairs:
            its.setblocking(False)
        self.sockets = [end for pair in pairs for end in pair]
        (self.token, its_token), (self.data, its_data) = pairs
        self.policy = WakePolicy(
            its_token.fileno(),
            [its_data.fileno()],
            lambda: self._read("token", its_token),
            lambda: self._read("data", its_data),
            lambda: self.now,
        )
        if data_waits:
            self.policy.expect_tokens()

    def _read(self, name: str, end: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            end.recv(100)
            self.woken.append(name)

    def came(self, after_us: int) -> None:
        self.now += after_us
        self.policy.came(self.now)

    def close(self) -> None:
        self.policy.close()
        for end in self.sockets:
            end.close()


async def turns(many: int = TURNS) -> None:
    for _ in range(many):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("data_waits", "woken"), [(True, []), (False, ["data"])])
def test_data_waits_for_brisk_tokens_only_where_it_may(data_waits: bool, woken: list[str]) -> None:
    async def main() -> None:
        scene = Scene(data_waits)
        scene.came(BRISK_US)
        scene.came(BRISK_US - 1)
        scene.data.send(b"x")
        await turns(SETTLING_TURNS if data_waits else TURNS)
        assert scene.woken == woken
        scene.token.send(b"x")
        await turns()
        assert "token" in scene.woken
        scene.close()

    asyncio.run(main())


@pytest.mark.parametrize("data_waits", [True, False])
def test_a_slow_token_leaves_data_as_it_is(data_waits: bool) -> None:
    async def main() -> None:
        scene = Scene(data_waits)
        scene.came(BRISK_US)
        scene.came(BRISK_US)
        scene.data.send(b"x")
        await turns()
        assert scene.woken == ["data"]
        scene.close()

    asyncio.run(main())


@pytest.mark.parametrize("data_waits", [True, False])
def test_what_comes_briskly_keeps_the_loop_awake_for_a_while(data_waits: bool) -> None:
    async def main() -> None:
        scene = Scene(data_waits)
        scene.came(BRISK_US)
        assert not scene.policy._awake
        scene.came(1)
        assert scene.policy._awake
        scene.now += AWAKE_US - 1
        await turns()
        assert scene.policy._awake
        scene.now += 1
        await turns()
        assert not scene.policy._awake
        scene.close()

    asyncio.run(main())


def test_who_is_awake_reads_data_as_it_comes_and_who_sleeps_does_not() -> None:
    async def main() -> None:
        scene = Scene(data_waits=True)
        scene.came(BRISK_US)
        scene.came(1)
        scene.data.send(b"x")
        await turns(SETTLING_TURNS)
        assert not scene.woken, "just after a token there is other work"
        await turns()
        assert scene.woken[:1] == ["data"]
        scene.now += AWAKE_US
        await turns()
        scene.woken.clear()
        scene.data.send(b"x")
        await turns()
        assert not scene.woken
        scene.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("took_us", "times", "awake"),
    [
        (CROWDED_US, CROWDED_TIMES, True),
        (CROWDED_US + 1, CROWDED_TIMES - 1, True),
        (CROWDED_US + 1, CROWDED_TIMES, False),
    ],
)
def test_who_yields_to_others_for_long_again_and_again_sleeps_for_a_while(
    took_us: int, times: int, awake: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        scene = Scene(data_waits=True)

        def yields() -> None:
            monkeypatch.undo()
            scene.now += took_us

        for _ in range(times):
            monkeypatch.setattr(os, "sched_yield", yields)
            scene.came(BRISK_US)
            scene.came(1)
            await turns()
            assert not scene.policy._awake  # the token is late by now, whoever took the processor
        scene.came(1)
        scene.came(1)
        assert scene.policy._awake is awake
        for _ in range(CROWDED_REST_US // 1_000):
            scene.came(1_000)
        assert scene.policy._awake
        scene.close()

    asyncio.run(main())


def test_data_is_looked_after_again_when_the_token_stays_away() -> None:
    async def main() -> None:
        scene = Scene(data_waits=True)
        scene.came(BRISK_US)
        scene.came(1)
        scene.data.send(b"x")
        scene.now += STAYED_AWAY_US
        while not scene.woken:
            await asyncio.sleep(0.001)
        assert scene.woken == ["data"]
        scene.close()

    asyncio.run(main())

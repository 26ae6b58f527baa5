"""Malformed, cut, oversized and interleaved lines, and connections that are half open, slow or silent.

None of them raises anything, all are counted, and another client is not disturbed.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from one_node import LONG_S, Line, serving

from hunts import rounds

LINES = rounds(2_000, 200_000, "ORDERCAST_LINES")
"""Lines that are sent."""
PIECES = (
    *(b"PUB a 3\r\nabc\r\n", b"PUB a.b r 1\r\nx\r\n", b"SUB a 1\r\n", b"SUB a.> q 2\r\n", b"UNSUB 1\r\n"),
    *(b"PING\r\n", b"PONG\r\n", b"CONNECT {}\r\n", b'CONNECT {"verbose":true}\r\n', b"UNSUB 2 5\r\n"),
    *(b"HPUB a 12 15\r\nNATS/1.0\r\n\r\nabc\r\n", b"PUB $JS.API.INFO r 0\r\n\r\n"),
    *(b"PUB $JS.API.CONSUMER.CREATE.ORDERCAST r 12\r\n[[[[[[[[[[[[\r\n",),
    *(b"PUB $JS.ACK.ORDERCAST.x.1.1.1.1.1 4\r\n+ACK\r\n", b"PUB $ORDERCAST.STATUS r 0\r\n\r\n"),
)
BROKEN = (
    *(
        b"PUB a 5\r\nabc\r\n",
        b"PUB a\r\n",
        b"PUB a 99999999\r\n",
        b"HPUB a 9 3\r\n",
        b"SUB\r\n",
        b"UNSUB\r\n",
    ),
    *(b"\r\n", b"\x00\x01\x02\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"INFO {}\r\n"),
    *(
        b"SUB " + b"a" * 5000,
        b"CONNECT {\r\n",
        b"CONNECT " + b"[" * 4000 + b"\r\n",
        b"PUB \xff\xfe 1\r\nx\r\n",
    ),
    *(b"CONNECT null\r\n", b"UNSUB 1 -5\r\n", b"ping pong\r\n"),
)


def attack(stream: random.Random) -> bytes:
    """What one connection sends: some right operations, one that is wrong, changed or cut somewhere."""
    data = b"".join(stream.choices(PIECES, k=stream.randrange(4))) + stream.choice(BROKEN)
    if stream.random() < 0.3:
        at = stream.randrange(len(data))
        data = data[:at] + bytes([stream.randrange(256)]) + data[at + 1 :]
    if stream.random() < 0.2:
        data = data[: stream.randrange(len(data) + 1)]
    return data


async def send(server: Any, stream: random.Random) -> int:
    """One connection; how many lines it sent."""
    host, port = server.address.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    data = attack(stream)
    try:
        if stream.random() < 0.5:
            at = stream.randrange(len(data) + 1)
            writer.write(data[:at])
            await asyncio.sleep(0)
            data = data[at:]
        writer.write(data)
        if stream.random() < 0.7:
            writer.write_eof()
        await writer.drain()
    except OSError:
        pass  # it was cut off before it had sent all
    finally:
        if stream.random() < 0.5:
            writer.transport.abort()
        else:
            writer.close()
    return max(1, data.count(b"\n"))


@pytest.mark.untraced
@pytest.mark.campaign
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_nothing_that_is_sent_disturbs_others_or_raises(loop: str) -> None:
    async def case() -> None:
        raised: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        settings = {"client_stream": ("logged.>",), "log": "unused", "client_connections": 200}
        async with serving(**settings) as (node, at):
            good = await Line.to(at)
            good.say(b"SUB good 1")
            await good.settled()
            silent = [await Line.to(at, None) for _ in range(5)]
            stream = random.Random(1)
            lines = 0
            while lines < LINES:
                lines += sum(await asyncio.gather(*(send(at, stream) for _ in range(20))))
                good.say(b"PUB good 2", b"ok")
                assert await good.answers(2) == [b"MSG good 1 2", b"ok"]
            while len(at.clients) > 1 + len(silent):
                await asyncio.sleep(0.01)
            assert sum(at.malformed.values()) > LINES / 100
            assert {"malformed line", "unknown operation", "line too long"} <= set(at.malformed)
            assert not at.connections.drops["defect"]
            for line in silent:
                line.close()
            while at.clients.keys() != {1}:
                await asyncio.sleep(0.01)
            await good.settled()
            assert len(node.processes) == 2, "those of the server itself and of the client that is left"
        assert not raised

    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(case(), LONG_S * 30))

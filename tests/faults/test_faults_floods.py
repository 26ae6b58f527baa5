"""Floods of datagrams by somebody without the key: the kernel keeps them out, and the group goes on.

`ORDERCAST_FLOOD_S=5 pytest -s` tells how fast it was flooded. What is asserted is no speed, but that a member
reads the fewer of the datagrams, orders messages meanwhile and lets another one in.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from group import Cluster, Member

from ordercast import keys
from ordercast.transport.greetings import GREETING, GREETING_MAGIC, HEADER
from ordercast.transport.segments import MAGIC

SECONDS = float(os.environ.get("ORDERCAST_FLOOD_S", "1.5"))
CHANCE = random.Random(1)
JUNK = MAGIC + bytes((0, 1, 200, 0)) + CHANCE.randbytes(208)
GREETINGS = HEADER.pack(GREETING_MAGIC, GREETING, bytes(8), bytes(16)) + CHANCE.randbytes(120)
BY_THE_KERNEL = ("greeting: no room", "data of unknown senders, or no room")
FLOOD = """
import socket, sys, time
to, data, seconds = ("127.0.0.1", int(sys.argv[1])), bytes.fromhex(sys.argv[2]), float(sys.argv[3])
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.bind(("127.0.0.66", 0))
sent, until = 0, time.monotonic() + seconds
while time.monotonic() < until:
    for _ in range(64):
        line.sendto(data, to)
    sent += 64
print(sent)
"""


def flood(member: Member, offset: int, data: bytes) -> subprocess.Popen[str]:
    port = int(member.address.rpartition(":")[2]) + offset
    command = [sys.executable, "-c", FLOOD, str(port), data.hex(), str(SECONDS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "plain"])
def test_floods_of_strangers_are_kept_out(tmp_path: Path, sealed: bool) -> None:
    if sealed:
        keys.create(tmp_path / "key")
    with Cluster(tmp_path, rate=40.0, key=str(tmp_path / "key") if sealed else None) as group:
        one, _ = group.start_all(2)
        for offset, data in ((0, GREETINGS), (0, JUNK), (1, JUNK)):
            before = one.drops
            flooding = flood(one, offset, data)
            group.await_progress(20)
            said, _ = flooding.communicate()
            after = one.drops
            more = {reason: count - before.get(reason, 0) for reason, count in after.items()}
            print(f"{int(said) / SECONDS:,.0f}/s; not used: { ({k: v for k, v in more.items() if v}) }")
            read = more.get("greeting: too many", 0) + more.get("unknown sender", 0)
            kept_out = sum(more.get(reason, 0) for reason in BY_THE_KERNEL)
            assert kept_out > read
        flooding = flood(one, 0, GREETINGS)
        group.start(3)
        group.await_whole()
        flooding.communicate()
        group.await_progress()
        group.conclude()

"""A chat with history: whoever comes later reads what was said before, in the order in which all read it.

    python examples/chat.py 127.0.0.1:7001 127.0.0.1:7001,127.0.0.1:7003,127.0.0.1:7005 ann

Three nodes; what is typed at one is read at all, with its number. Kill one (kill -9) and start it again: it
begins with everything that was said, also while it was away.
"""

import asyncio
import sys
from collections import deque
from typing import NamedTuple

import ordercast


class Line(NamedTuple):
    """Something that was said."""

    number: int
    nick: str
    text: str


class Room(ordercast.Replicated):
    """What was said last."""

    lines: deque[Line]
    said: int

    def __init__(self) -> None:
        self.lines = deque(maxlen=10_000)
        self.said = 0

    @ordercast.command
    def say(self, nick: str, text: str) -> int:
        """Say something; its number."""
        self.said += 1
        self.lines.append(Line(self.said, nick, text))
        self.tell(self.said)
        return self.said


async def show(room: Room) -> None:
    """Print what is said, from the beginning."""
    shown = 0
    with ordercast.watch(room) as events:
        while True:
            for line in [line for line in room.lines if line.number > shown]:
                print(f"{line.number} {line.nick}: {line.text}", flush=True)
                shown = line.number
            await anext(events)


async def main(own: str, every: str, nick: str) -> None:
    """Run a node until its input ends."""
    async with ordercast.Node(listen=own, seeds=every.split(","), protocol="total") as node:
        room = await node.replicate(Room(), "room")
        showing = asyncio.create_task(show(room))
        while text := await asyncio.to_thread(sys.stdin.readline):
            try:
                await room.say(nick, text.strip())
            except (ordercast.Unanswered, ordercast.NoMajority) as error:
                print(f"perhaps nobody heard it: {error}", file=sys.stderr)
        showing.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A cron job that runs at one node at a time, and never twice: a leader with a fencing token.

    python examples/cron.py 127.0.0.1:7001 127.0.0.1:7001,127.0.0.1:7003,127.0.0.1:7005 jobs.txt

Three nodes elect a leader, which runs a job every tenth of a second: it writes a line with its token and the
job's number. Kill the leader (kill -9), or stop it (kill -STOP) and let it go on: another node leads, with a
larger token, and goes on with the next job. The list of jobs takes nothing from a leader that was replaced.
"""

import asyncio
import sys

import ordercast


class Replaced(ordercast.CommandFailed):
    """Somebody with a larger token leads."""


class Jobs(ordercast.Replicated):
    """Hands out jobs by number, each once."""

    next: int
    token: int

    def __init__(self) -> None:
        self.next = self.token = 0

    @ordercast.command
    def begin(self, token: int) -> int:
        """The next job, for who has this fencing token; raises `Replaced` if there was a larger one."""
        if token < self.token:
            raise Replaced(token, self.token)
        self.token, self.next = token, self.next + 1
        return self.next


async def lead(jobs: Jobs, held: ordercast.Held, path: str, address: str) -> None:
    """Run jobs as long as this node leads."""
    while not held.lost.is_set():
        number = await jobs.begin(held.token)
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{held.token} {number} {address}\n")
        await asyncio.sleep(0.1)


async def tell(election: ordercast.Election) -> None:
    """Print who leads."""
    async for leader in election.watch():
        print(f"{leader.says if leader else 'nobody'} leads", flush=True)


async def main(own: str, every: str, path: str) -> None:
    """Run a node until the process is killed."""
    async with ordercast.Node(listen=own, seeds=every.split(","), protocol="total") as node:
        jobs = await node.replicate(Jobs(), "jobs")
        election = node.election("cron", ttl=2, says=own)
        telling = asyncio.create_task(tell(election))
        while not telling.done():
            try:
                async with election as held:
                    await lead(jobs, held, path, own)
            except (Replaced, ordercast.Unanswered, ordercast.NoMajority):
                await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

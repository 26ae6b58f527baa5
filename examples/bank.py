"""A bank: money moves between accounts at every node, and an audit finds that none is made or lost.

    python examples/bank.py 127.0.0.1:7001 127.0.0.1:7001,127.0.0.1:7003,127.0.0.1:7005 ann

Three nodes move money at random. Each says once a second how many of its transfers were acknowledged, and
what the audit found: the sum of all accounts, at one place of the order. Kill one (kill -9): the others go
on, and when it is started again it has the same accounts. When its input ends a node says how they stand.
"""

import asyncio
import json
import random
import sys

import ordercast

ACCOUNTS = [f"account {number}" for number in range(10)]


class NotEnough(ordercast.CommandFailed):
    """There is less than that in an account."""


class Bank(ordercast.Replicated):
    """Accounts, and how many transfers each teller has made."""

    balance: dict[str, int]
    made: dict[str, int]

    def __init__(self) -> None:
        self.balance = dict.fromkeys(ACCOUNTS, 100)
        self.made = {}

    @ordercast.command
    def transfer(self, teller: str, giver: str, taker: str, amount: int) -> None:
        """Move money; raises `NotEnough`."""
        if self.balance[giver] < amount:
            raise NotEnough(giver, amount)
        self.balance[giver] -= amount
        self.balance[taker] += amount
        self.made[teller] = self.made.get(teller, 0) + 1


async def main(own: str, every: str, teller: str) -> None:
    """Run a node until its input ends."""
    async with ordercast.Node(listen=own, seeds=every.split(","), protocol="total") as node:
        bank = await node.replicate(Bank(), "bank")
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        acknowledged, told = bank.made.get(teller, 0), 0.0
        while not ended.done():
            giver, taker = random.sample(ACCOUNTS, 2)
            try:
                await bank.transfer(teller, giver, taker, random.randint(1, 60))
                acknowledged += 1
            except NotEnough:
                pass
            except (ordercast.Unanswered, ordercast.NoMajority):
                await asyncio.sleep(0.1)  # made or not: the bank knows, and counts it
            if (now := asyncio.get_running_loop().time()) > told + 1:
                told = now
                print(
                    json.dumps({"acknowledged": acknowledged, "total": sum(bank.balance.values())}),
                    flush=True,
                )
        await bank.sync()
        print(json.dumps({"balance": bank.balance, "made": bank.made}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

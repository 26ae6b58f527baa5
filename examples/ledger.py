"""A ledger over a live group: Spark keeps the balances, while the replica that it reads is killed.

    pip install 'ordercast[spark]'
    python examples/ledger.py

Three nodes keep the ordered log of a group. Transfers between accounts are sent to it as messages. A transfer
for which there is not enough money is refused, so the balances depend on the order of all transfers; and they
would be wrong if one were lost, or counted twice. A Spark query reads the log as a stream and keeps the
balances as its state. In the middle of it the node that it reads from is killed (SIGKILL): the query goes on
from another one. At the end the balances are compared with those of a member of the group.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from rich.console import Console
from rich.table import Table

from ordercast import Message
from ordercast.spark.sessions import spark_session
from ordercast.threads import Group, Node

GROUP = "ledger"
ACCOUNTS = ("alice", "bob", "carol", "dave", "erin")
OPENING = 100
TRANSFERS = 20_000
STDOUT = Console(highlight=False)


class Ledger:
    """Balances, and the rule by which they change: nobody's falls below nothing."""

    def __init__(self, text: str | None = None) -> None:
        known = json.loads(text) if text else {}
        self.balances: dict[str, int] = known.get("balances", dict.fromkeys(ACCOUNTS, OPENING))
        self.done: int = known.get("done", 0)
        self.refused: int = known.get("refused", 0)

    def apply(self, transfer: bytes | bytearray) -> None:
        """One more transfer, in its turn."""
        giver, taker, amount = json.loads(transfer)
        if self.balances[giver] < amount:
            self.refused += 1
            return
        self.balances[giver] -= amount
        self.balances[taker] += amount
        self.done += 1

    def __str__(self) -> str:
        return json.dumps(vars(self))


# --- the group ----------------------------------------------------------------------------------


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process, ended at the end if it still runs."""
    with output.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            process.terminate()


def start_node(directory: Path, number: int, seed: str | None) -> tuple[list[str], str]:
    """The command that starts a node with a log, and where its log is read."""
    log_address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-c", "from ordercast.cli import main; main()", "node"]
    command += ["--id", str(number), "--listen", "127.0.0.1:0", "--data", str(directory / f"data-{number}")]
    command += ["--log", str(directory / f"log-{number}"), "--log-listen", log_address]
    return command + (["--seed", seed] if seed else []), log_address


def transfers(count: int) -> list[bytes]:
    """Who gives how much to whom."""
    chance = random.Random(2)
    pairs = (chance.sample(ACCOUNTS, 2) for _ in range(count))
    return [json.dumps([giver, taker, chance.randint(1, 60)]).encode() for giver, taker in pairs]


def read_own(group: Group, count: int) -> Ledger:
    """The balances as a member of the group has them: from the messages, in the order it delivers them."""
    ledger = Ledger()
    for event in group:
        if isinstance(event, Message):
            ledger.apply(event.payload)
            if ledger.done + ledger.refused == count:
                break
    return ledger


# --- Spark --------------------------------------------------------------------------------------


def settle(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """The transfers of a batch, in the total order, on the balances that there were before."""
    ledger = Ledger(state.get[0] if state.exists else None)
    batch = pd.concat(frames).sort_values(["configuration", "representative", "seq", "slot"])
    for payload in batch["payload"]:
        ledger.apply(payload)
    state.update((str(ledger),))
    yield pd.DataFrame({"ledger": [str(ledger)], "transfers": [ledger.done + ledger.refused]})


def balances(spark: SparkSession, nodes: list[str]) -> DataFrame:
    """The query: a row with the balances, whenever they have changed."""
    log = spark.readStream.format("ordercast").option("nodes", ",".join(nodes)).option("group", GROUP).load()
    return (
        log.where("kind = 'message'")
        .selectExpr("1 as book", "position.*", "payload")
        .groupBy("book")
        .applyInPandasWithState(
            settle,
            "ledger string, transfers long",
            "ledger string",
            "update",
            GroupStateTimeout.NoTimeout,
        )
    )


def latest(spark: SparkSession) -> Ledger:
    """What the query has found so far."""
    row = spark.sql("select ledger from balances order by transfers desc limit 1").first()
    return Ledger(row.ledger if row is not None else None)


# --- the story ----------------------------------------------------------------------------------


def main() -> int:
    """Play it; 0 if the balances agree."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ledger-")))
        STDOUT.print("[bold]1[/] starting Spark, and three nodes with logs")
        spark = stack.enter_context(spark_session("ledger", settings={"spark.sql.shuffle.partitions": 1}))
        teller = stack.enter_context(Node(listen="127.0.0.1:0"))
        nodes, logs = [], []
        for number in (1, 2, 3):
            command, log_address = start_node(directory, number, teller.address)
            nodes.append(stack.enter_context(running(command, directory / f"node-{number}.txt")))
            logs.append(log_address)
        teller.wait_for(4, timeout=30)
        STDOUT.print(f"  the group is there; its log can be read at {', '.join(logs)}")

        writer = balances(spark, logs).writeStream.format("memory").queryName("balances")
        query = (
            writer.outputMode("update").option("checkpointLocation", str(directory / "checkpoint")).start()
        )
        stack.callback(query.stop)
        group = teller.join(GROUP)
        STDOUT.print(f"[bold]2[/] sending {TRANSFERS:,} transfers, while Spark keeps the balances")
        every = transfers(TRANSFERS)
        for turn in range(20):
            group.send_many(every[turn * TRANSFERS // 20 : (turn + 1) * TRANSFERS // 20])
            time.sleep(0.3)
            if turn == 10:
                while not (seen := latest(spark)).done and query.isActive:
                    time.sleep(0.1)
                STDOUT.print(
                    f"[bold]3[/] after {seen.done + seen.refused:,} of them: [red]kill -9[/] of node 1, from "
                    "which Spark reads"
                )
                os.kill(nodes[0].pid, signal.SIGKILL)
        expected = read_own(group, TRANSFERS)

        until = time.monotonic() + 60
        while (found := latest(spark)).done + found.refused < TRANSFERS and time.monotonic() < until:
            if query.exception() is not None:
                break
            time.sleep(0.2)
        if query.exception() is not None:
            STDOUT.print(f"[red]the query failed[/]: {query.exception()}")
        STDOUT.print("[bold]4[/] the balances, as Spark and a member of the group have them")
        return show(found, expected)


def show(found: Ledger, expected: Ledger) -> int:
    """Both ledgers, side by side."""
    table = Table("", "Spark", "group", box=None)
    for account in ACCOUNTS:
        table.add_row(account, f"{found.balances[account]:,}", f"{expected.balances[account]:,}")
    table.add_row("transfers", f"{found.done:,}", f"{expected.done:,}")
    table.add_row("refused", f"{found.refused:,}", f"{expected.refused:,}")
    STDOUT.print(table)
    agree = vars(found) == vars(expected)
    STDOUT.print("[green]they are equal[/]" if agree else "[red]they differ[/]")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())

"""A replicated object in Spark has the state of its replicas, which see by its fingerprints that it does."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from accounts import Accounts
from live_nodes import PATIENCE_S, Heard

import ordercast
from ordercast.errors import ConfigProblem
from ordercast.streaming import replica
from ordercast.threads import Node
from ordercast.threads.objects import Replica

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark
HISTORY = "accounts.history"


def started(directory: Path, number: int, seeds: list[str]) -> Node:
    log, any_port = directory / f"log-{number}", "127.0.0.1:0"
    node = Node(id=number, listen=any_port, protocol="total", log=log, log_listen=any_port, seeds=seeds)
    node.start()
    return node


def deposit(accounts: Replica[Accounts], name: str) -> None:
    async def all_of_it(target: Accounts) -> None:
        for number in range(50):
            await target.deposit(name, number)

    accounts.do(all_of_it)


def test_it_has_the_state_of_the_replicas_though_the_query_and_a_node_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        one = started(tmp_path, 1, [])
        stack.callback(one.stop)
        two, three = (started(tmp_path, number, [one.address]) for number in (2, 3))
        stack.callback(three.stop)
        stack.callback(two.stop)
        first, second, third = (
            node.replicate(Accounts(), "accounts", history=HISTORY) for node in (one, two, three)
        )
        fingerprints, states = Heard(two.join("fingerprints")), Heard(two.join("states"))
        nodes = ",".join(node.status()["log"]["address"] for node in (one, two, three))

        def follow() -> StreamingQuery:
            log = spark.readStream.format("ordercast").options(nodes=nodes, group=HISTORY).load()
            rows = replica(log, Accounts).selectExpr(
                "coalesce(fingerprint, state) as payload",
                "if(fingerprint is null, 'states', 'fingerprints') as topic",
            )
            query = rows.writeStream.format("ordercast").options(nodes=nodes)
            return query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

        def wait_for(query: StreamingQuery, fingerprint: str) -> None:
            until = time.monotonic() + 2 * PATIENCE_S
            while fingerprint.encode() not in fingerprints.payloads:
                assert query.exception() is None, query.exception()
                assert time.monotonic() < until, f"{fingerprint} did not come"
                time.sleep(0.05)

        query = follow()
        stack.callback(lambda: query.stop())
        deposit(first, "a")
        wait_for(query, second.do(lambda accounts: accounts.fingerprint()))
        query.stop()
        second.do(lambda accounts: accounts.transfer("a", "b", 5))
        one.stop()
        query = follow()
        deposit(third, "b")
        wait_for(query, third.do(lambda accounts: accounts.fingerprint()))
        query.processAllAvailable()
        second.do(lambda accounts: accounts.sync())
        agreed = second.read(lambda accounts: [accounts.agrees(each) for each in fingerprints.payloads])
        assert agreed == [True, True]
        assert json.loads(states.payloads[-1])["balance"] == {"a": 1220, "b": 1230}
        assert json.loads(states.payloads[-1])["gone"] == 1


def test_what_cannot_follow_is_told_before_a_query_begins(spark: SparkSession) -> None:
    numbers = spark.readStream.format("rate").load()
    with pytest.raises(ConfigProblem, match="this lacks group, payload, position"):
        replica(numbers, Accounts)
    table = spark.createDataFrame([], "group string, payload binary, position struct<a: int>")
    with pytest.raises(ConfigProblem, match="in place of spark"):
        replica(table, Accounts)

    class Local(ordercast.Replicated):
        """Has what is no field."""

        count: int

        def __init__(self) -> None:
            self.count = 0
            self.cannot = 1

    with pytest.raises(ConfigProblem, match="cannot is no field"):
        replica(numbers.selectExpr("'g' as group", "binary('') as payload", "value as position"), Local)

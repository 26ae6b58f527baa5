"""From a live group to pictures by SQL: a notebook, in cells (`# %%`) that editors run step by step.

    pip install 'ordercast[lake,spark]'
    python examples/lake.py [DIRECTORY]

Three nodes on loopback take orders. Spark lands what was ordered in a table, each order once; and it keeps
a replica of the accounts, whose state the nodes compare with theirs. Then the traces of the nodes go into a
lake, are judged, and are asked in SQL how long messages took. Tables and a picture are left in DIRECTORY.
"""

# %%
from __future__ import annotations

import json
import random
import sys
import time
from itertools import islice
from pathlib import Path

import matplotlib.pyplot as plt

import ordercast
from ordercast.lake import Lake, Landing
from ordercast.log import Position
from ordercast.spark import session
from ordercast.streaming import replica
from ordercast.threads import Node

directory = Path(sys.argv[1] if len(sys.argv) > 1 else "lake-example")
directory.mkdir(parents=True, exist_ok=True)
ORDERS = 2_000
CUSTOMERS = ["ann", "bob", "eve"]
NODES = (1, 2, 3)


# %% [markdown]
# ## A live group
# Each node keeps a log, which Spark reads, and a trace, which the auditor reads. The accounts are replicated,
# and their history is told in a group of its own.


# %%
class Accounts(ordercast.Replicated):
    """What each customer has paid."""

    paid: dict[str, int]

    def __init__(self) -> None:
        self.paid = {}

    @ordercast.command
    def pay(self, customer: str, amount: int) -> int:
        """A customer pays; how much that is in all."""
        self.paid[customer] = self.paid.get(customer, 0) + amount
        return self.paid[customer]


nodes: list[Node] = []
for number in NODES:
    node = Node(
        id=number,
        listen="127.0.0.1:0",
        protocol="total",
        seeds=[other.address for other in nodes],
        log=directory / f"log-{number}",
        log_listen="127.0.0.1:0",
        trace=directory / "trace",
    )
    node.start()
    nodes.append(node)
nodes[0].wait_for(NODES, timeout=30)
logs = ",".join(node.status()["log"]["address"] for node in nodes)
print("logs are at", logs)

# %%
chance = random.Random(17)
groups = [node.join("orders") for node in nodes]
for turn in range(ORDERS // 20):
    order = {"customer": chance.choice(CUSTOMERS), "amount": chance.randint(1, 50)}
    batch = [json.dumps({**order, "number": turn * 20 + place}).encode() for place in range(20)]
    groups[turn % len(groups)].send_many(batch, safe=turn % 2 == 0)
messages = (event for event in groups[0] if isinstance(event, ordercast.Message))
heard = [message.payload for message in islice(messages, ORDERS)]
print(len(heard), "orders, the last:", heard[-1].decode())

accounts = [node.replicate(Accounts(), "accounts", history="accounts.history") for node in nodes]
for customer in CUSTOMERS:
    accounts[0].do(lambda target, customer=customer: target.pay(customer, chance.randint(10, 99)))
mine = accounts[1].do(lambda target: target.fingerprint())

# %% [markdown]
# ## A table of the orders, each once
# The second query has no checkpoint and reads everything again: nothing is added.

# %%
spark = session("lake", settings={"spark.sql.shuffle.partitions": 2})
landing = Landing(directory / "orders")


def land(checkpoint: str) -> None:
    """Land what there is now."""
    log = spark.readStream.format("ordercast").options(nodes=logs, subscribe="orders", membership="false")
    rows = log.load().selectExpr("position", "sender", "timestamp", "cast(payload as string) as payload")
    query = rows.writeStream.foreachBatch(landing).trigger(availableNow=True)
    query.option("checkpointLocation", str(directory / checkpoint)).start().awaitTermination()


def landed() -> int:
    """How many orders are in the table."""
    return 0 if landing.position is None else landing.as_of(landing.position).num_rows


until = time.monotonic() + 60
for attempt in range(1_000):
    land(f"checkpoint-{attempt}")  # what was sent last may still be on its way into the logs
    if landed() >= ORDERS or time.monotonic() > until:
        break
land("no-checkpoint")
assert landed() == ORDERS, f"{landed()} orders landed"
places = sorted(tuple(place.values()) for place in landing.as_of(landing.position)["position"].to_pylist())
half = landing.as_of(Position(*places[ORDERS // 2 - 1]))
print(landed(), "orders in the table, up to", landing.position, "- and as of half of them:", half.num_rows)

# %% [markdown]
# ## A replica in Spark
# It carries out what the nodes have carried out, and its fingerprint is that of a node.

# %%
history = spark.readStream.format("ordercast").options(nodes=logs, group="accounts.history").load()
kept = replica(history, Accounts).writeStream.format("memory").queryName("accounts").outputMode("append")
query = kept.option("checkpointLocation", str(directory / "accounts-checkpoint")).start()
until = time.monotonic() + 60
while time.monotonic() < until and query.exception() is None:
    prints = [
        row[0]
        for row in spark.sql("select fingerprint from accounts where fingerprint is not null").collect()
    ]
    if mine in prints:
        break
    time.sleep(0.2)
query.stop()
assert query.exception() is None, query.exception()
assert mine in prints, f"{mine} is not among {prints}"
assert accounts[2].read(lambda target: target.agrees(mine)), "Spark has another state than node 3"
print("Spark's replica has the state of the nodes:", mine)

# %% [markdown]
# ## The lake
# The group ends, and its trace goes into a lake, with a verdict.

# %%
for node in reversed(nodes):
    node.stop()
lake = Lake(directory / "lake")
added = lake.add([directory / "trace"])
wanted = lake.unjudged()
findings = list(lake.judged(lake.contents(wanted), wanted))
lake.keep(findings, wanted)
print(
    "added", added.runs, "with", added.events, "events;", "clean" if lake.runs()[0]["clean"] else "violated"
)

# %% [markdown]
# ## Latency, by SQL

# %%
latency = lake.sql("""
    SELECT guarantee, from_submit_us / 1000.0 AS ms,
           cume_dist() OVER (PARTITION BY guarantee ORDER BY from_submit_us) AS share
    FROM latency WHERE "group" = 'orders' AND from_submit_us IS NOT NULL ORDER BY guarantee, from_submit_us
""")
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for guarantee, colour in (("agreed", "#0072B2"), ("safe", "#D55E00")):
    rows = [row for row in latency.to_pylist() if row["guarantee"] == guarantee]
    left.plot([row["ms"] for row in rows], [row["share"] for row in rows], color=colour, label=guarantee)
left.set(xlabel="from send to delivery, ms", ylabel="share of deliveries", xscale="log", ylim=(0, 1))
left.legend(frameon=False)

by_node = lake.sql("""
    SELECT node, percentile_cont(0.5) WITHIN GROUP (ORDER BY from_submit_us) / 1000.0 AS p50,
           percentile_cont(0.99) WITHIN GROUP (ORDER BY from_submit_us) / 1000.0 AS p99
    FROM latency WHERE "group" = 'orders' GROUP BY node ORDER BY node
""").to_pydict()
places = range(len(by_node["node"]))
right.bar([place - 0.2 for place in places], by_node["p50"], 0.4, color="#009E73", label="median")
right.bar([place + 0.2 for place in places], by_node["p99"], 0.4, color="#E69F00", label="99%")
right.set_xticks(places, [f"node {node}" for node in by_node["node"]])
right.set(ylabel="from send to delivery, ms")
right.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
figure.savefig(directory / "latency.png", dpi=120)
print("drawn:", directory / "latency.png")

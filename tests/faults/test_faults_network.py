"""Networks that split and lose packets: namespaces of the kernel, one a node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from group import Cluster

from ordercast.errors import SplitAway
from ordercast.log import Position, Replica
from ordercast.measure.netns import Namespaces, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@pytest.fixture
def network() -> Iterator[Namespaces]:
    with Namespaces(4) as network:
        yield network


def test_a_group_that_was_split_goes_on_on_both_sides_and_merges(network: Namespaces, tmp_path: Path) -> None:
    with Cluster(tmp_path, network, rate=100.0, safe=0.2) as group:
        one, two, three, four = group.start_all(4)
        group.await_progress()
        for _ in range(2):
            network.split({1, 2}, {3, 4})
            group.await_configuration(one, {1, 2})
            group.await_configuration(four, {3, 4})
            group.await_progress(members=[two])
            group.await_progress(members=[three])
            network.heal()
            group.await_whole()
            group.await_progress()
        group.conclude()


def test_the_logs_of_the_sides_of_a_split_are_told_apart(network: Namespaces, tmp_path: Path) -> None:
    logs = {node: tmp_path / f"log-{node}" for node in range(1, 5)}
    with Cluster(tmp_path, network, rate=100.0, safe=0.2) as group:
        one, _, three, _ = [group.start(node, options={"log": str(logs[node])}) for node in logs]
        group.await_whole()
        group.await_progress()
        network.split({1, 2}, {3, 4})
        group.await_configuration(one, {1, 2})
        group.await_configuration(three, {3, 4})
        group.await_progress()
        network.heal()
        group.await_whole()
        group.await_progress()
        group.conclude()
    with ExitStack() as stack:
        replicas = {node: stack.enter_context(Replica(str(path))) for node, path in logs.items()}
        for pair in ((1, 2), (3, 4)):
            first, second = (since_whole(replicas[node]) for node in pair)
            both = min(len(first), len(second))
            assert both > 50
            assert first[:both] == second[:both]
            theirs = replicas[5 - pair[0]]  # of the other side
            with pytest.raises(SplitAway, match="split away"):
                theirs.after(messages_among(replicas[pair[0]], pair)[-1], 1)
            assert theirs.after(messages_among(replicas[pair[0]], (1, 2, 3, 4))[0], 1) is not None


def since_whole(replica: Replica) -> list[tuple[Any, ...]]:
    """Its entries from the first configuration of all on: before it, each may have been with others."""
    head = replica.bounds().head
    assert head is not None
    rows = [row for batch in replica.read(None, head) for row in batch.to_pylist()]
    whole = [row["kind"] == "regular" and len(row["members"]) == 4 for row in rows]
    same = ("config_seq", "config_rep", "seq", "slot", "kind", "payload")
    return [tuple(row[name] for name in same) for row in rows[whole.index(True) :]]


def messages_among(replica: Replica, members: tuple[int, ...]) -> list[Position]:
    """What was delivered while these were the members: also before the others had come, perhaps."""
    head = replica.bounds().head
    assert head is not None
    found: list[Position] = []
    there = False
    for batch in replica.read(None, head):
        for row in batch.to_pylist():
            if row["kind"] != "message":
                there = row["kind"] == "regular" and tuple(row["members"]) == members
            elif there:
                found.append(Position(row["config_seq"], row["config_rep"], row["seq"], row["slot"]))
    return found


def test_what_the_network_loses_is_sent_again(network: Namespaces, tmp_path: Path) -> None:
    with Cluster(tmp_path, network, rate=300.0, safe=0.2) as group:
        one, *_ = group.start_all(4)
        network.lose(0.05)
        group.await_progress(2000)
        counted = one.report()["status"]["statistics"]
        assert counted["retransmissions"] + counted["token_retransmissions"] > 0
        network.lose(0)
        group.conclude()


def test_one_is_cut_off_while_packets_are_lost(network: Namespaces, tmp_path: Path) -> None:
    with Cluster(tmp_path, network, rate=100.0, safe=0.2) as group:
        one, _, three, _ = group.start_all(4)
        network.lose(0.05)
        network.split({1, 2, 4}, {3})
        group.await_configuration(one, {1, 2, 4})
        group.await_configuration(three, {3})
        group.await_progress()
        network.heal()
        group.await_whole()
        network.lose(0)
        group.await_progress()
        group.conclude()

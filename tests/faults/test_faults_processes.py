"""Processes that are killed, stopped, started twice, and started again."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from group import Cluster

from hunts import rounds
from ordercast.errors import DuplicateNode, StorageProblem

CYCLES = rounds(2, 200, "ORDERCAST_CYCLES")
"""Kills and restarts."""


@pytest.mark.campaign
def test_members_are_killed_and_restarted_again_and_again(tmp_path: Path) -> None:
    chance = random.Random(CYCLES)
    took: list[tuple[float, float, float]] = []
    with Cluster(tmp_path, rate=60.0, safe=0.2) as group:
        group.start_all(5)
        for cycle in range(CYCLES):
            time.sleep(chance.uniform(0, 0.3))
            victim = chance.choice(group.living)
            killed = time.monotonic()
            victim.kill()
            formed = group.await_whole() - killed
            again = group.start(victim.node)
            began = again.ready["begun"]
            whole = group.await_whole()
            assert again.ready["incarnation"] == victim.ready["incarnation"] + 1
            took.append((formed, whole - again.spawned, whole - began))
            print(
                f"cycle {cycle}: node {victim.node}: a ring without it after {formed:.3f} s; whole "
                f"{whole - again.spawned:.3f} s after its process began, {whole - began:.3f} s after the node"
            )
        group.conclude()
    print("at most", [f"{max(each):.3f} s" for each in zip(*took, strict=True)])


def test_a_member_that_was_stopped_is_excluded_and_rejoins_by_itself(tmp_path: Path) -> None:
    with Cluster(tmp_path, rate=100.0, safe=0.2) as group:
        one, two, three = group.start_all(3)
        group.await_progress()
        two.stop()
        group.await_configuration(one, {1, 3})
        group.await_progress(members=[one, three])
        two.go_on()
        group.await_whole()
        group.await_progress()
        group.conclude()


def test_a_restarted_node_is_the_same_node_in_its_next_life(tmp_path: Path) -> None:
    with Cluster(tmp_path, rate=50.0) as group:
        first = group.start_all(2)[1]
        assert first.ready["incarnation"] == 0
        group.await_progress()
        first.kill()
        second = group.start(2)
        assert (second.ready["node"], second.ready["incarnation"]) == (2, 1)
        group.await_whole()
        group.await_progress()
        group.conclude()


def test_who_leaves_says_so_and_its_next_life_follows(tmp_path: Path) -> None:
    with Cluster(tmp_path, rate=50.0) as group:
        one, two, _ = group.start_all(3)
        group.await_progress()
        assert two.leave() == 0
        group.await_configuration(one, {1, 3})
        group.start(2)
        group.await_whole()
        group.await_progress()
        group.conclude()


def test_a_second_node_of_an_identifier_is_refused_and_the_first_not_disturbed(tmp_path: Path) -> None:
    with Cluster(tmp_path, rate=50.0) as group:
        _, two, _ = group.start_all(3)
        copy = group.spawn_beside(two, data=str(tmp_path / "copy"), trace=str(tmp_path / "copy-trace"))
        refused = copy.await_word("ready", "failed")
        assert refused.get("error") == DuplicateNode.__name__, refused
        assert "node id 2 is in use" in refused["message"]
        assert two.address in refused["message"] or "the node you greeted" in refused["message"]
        group.await_progress()
        assert not two.gone
        group.conclude()


def test_two_nodes_cannot_share_a_data_directory(tmp_path: Path) -> None:
    with Cluster(tmp_path, rate=50.0) as group:
        _, two = group.start_all(2)
        copy = group.spawn_beside(two, trace=str(tmp_path / "copy-trace"))
        refused = copy.await_word("ready", "failed")
        assert refused.get("error") == StorageProblem.__name__, refused
        assert f"process {two.process.pid}" in refused["message"]
        group.await_progress()
        group.conclude()

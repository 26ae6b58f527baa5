"""Tests in simulation: seeds, faults, shrinking, and how a failure is repeated."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from accounts import DEPOSITS, Accounts, tellers

import ordercast
from hunts import rounds
from ordercast.testing import (
    ANY,
    KINDS,
    Call,
    Client,
    Model,
    NotLinearizable,
    ReplicasDiffer,
    Stuck,
    World,
    simulated,
)

SRC = Path(ordercast.__file__).parent.parent


async def open_accounts(node: ordercast.Node) -> Accounts:
    return await node.replicate(Accounts(), "accounts")


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", ["totem", "total"])
def test_what_was_answered_stays_whatever_fails(protocol: str) -> None:
    @simulated(nodes=3, seeds=range(rounds(10, 3000)), protocol=protocol)
    async def deposits(world: World) -> None:
        tellers(world, world.service(open_accounts, model=DEPOSITS))

    deposits()


class Forgetful(Accounts):
    """Its replicas differ."""

    @ordercast.command
    def deposit(self, name: str, amount: int) -> int:
        self.balance[name] = id(self) % 1_000_003
        return 0


def test_replicas_that_differ_are_noticed() -> None:
    @simulated(nodes=3, seeds=range(1), faults=False)
    async def differing(world: World) -> None:
        async def open(node: ordercast.Node) -> Forgetful:
            return await node.replicate(Forgetful(), "accounts")

        accounts = world.service(open)

        async def teller(client: Client) -> None:
            await client.call(accounts, "deposit", "a", 1)

        world.client(teller)

    with pytest.raises(ReplicasDiffer, match="balance is"):
        differing()


class Raffle(ordercast.Replicated):
    """Its replicas draw by the order of a set, which is that of their processes."""

    names: set[str]

    def __init__(self) -> None:
        self.names = set()

    @ordercast.command
    def draw(self, number: int) -> None:
        self.names.add(f"{id(self) % 1_000_003} {number}")


def test_where_replicas_with_sets_differ_it_is_told_how_their_order_matters() -> None:
    @simulated(nodes=3, seeds=range(1), faults=False)
    async def differing(world: World) -> None:
        async def open(node: ordercast.Node) -> Raffle:
            return await node.replicate(Raffle(), "raffle")

        raffle = world.service(open)
        await world.ready()
        await raffle.at(1).draw(1)

    with pytest.raises(ReplicasDiffer, match=r"names may hold sets: go through sorted") as caught:
        differing()
    assert " 1'] at node" in str(caught.value), "elements of sets are shown as they are"


def test_histories_are_judged() -> None:
    def step(state: int, call: Call) -> tuple[object, int]:
        return (ANY if call.result is None else 1000), state

    @simulated(nodes=3, seeds=range(1), faults=False)
    async def wrong(world: World) -> None:
        accounts = world.service(open_accounts, model=Model("account", 0, step))

        async def teller(client: Client) -> None:
            await client.call(accounts, "deposit", "a", 1)

        world.client(teller)

    with pytest.raises(NotLinearizable, match="not linearizable as a account"):
        wrong()


# --- failures -----------------------------------------------------------------------------------


@simulated(nodes=3, seeds=range(100), faults={"crash", "pause", "slow"})
async def fails_if_node_2_is_down(world: World) -> None:
    for _ in range(50):
        assert world.process(2) is not None, "node 2 is down"
        await asyncio.sleep(0.05)


def told_by(error: BaseException) -> str:
    return "\n".join(error.__notes__)


def test_a_failing_seed_is_told_with_its_smallest_faults_its_drawing_and_a_command() -> None:
    with pytest.raises(AssertionError, match="node 2 is down") as raised:
        fails_if_node_2_is_down()
    told = told_by(raised.value)
    assert "fails_if_node_2_is_down failed with seed" in told
    wrong = [line for line in told.splitlines() if " s  node" in line]
    assert len(wrong) == 1, "one crash is enough"
    assert "node 2 crashes" in wrong[0]
    assert "regular configuration" in told, "a drawing"
    assert "pytest 'tests/testing/test_simulated.py::test_a_failing_seed" in told
    assert raised.traceback[-1].name == "fails_if_node_2_is_down", "the traceback leads into the test"


def chosen_by(command: str) -> tuple[str, str]:
    words = command.split()
    return words[words.index("--ordercast-seed") + 1], words[words.index("--ordercast-faults") + 1]


def test_the_command_repeats_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError) as raised:
        fails_if_node_2_is_down()
    told = told_by(raised.value)
    seed, faults = chosen_by(told.splitlines()[-1])
    monkeypatch.setenv("ORDERCAST_SEED", seed)
    monkeypatch.setenv("ORDERCAST_FAULTS", faults)
    with pytest.raises(AssertionError) as again:
        fails_if_node_2_is_down()
    same = [line for line in told_by(again.value).splitlines() if " s  node" in line]
    assert same == [line for line in told.splitlines() if " s  node" in line]
    monkeypatch.setenv("ORDERCAST_FAULTS", "none")
    fails_if_node_2_is_down()


@pytest.mark.parametrize(
    ("variable", "told", "problem"),
    [
        ("ORDERCAST_SEED", "x", "the seed is 'x'"),
        ("ORDERCAST_FAULTS", "1", "without a seed"),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    variable: str, told: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, told)
    with pytest.raises(ValueError, match=problem):
        fails_if_node_2_is_down()


def test_a_fault_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no fault 'flood'"):
        simulated(faults={"flood"})


def test_a_plain_function_is_refused() -> None:
    with pytest.raises(TypeError, match="make it an async def"):
        simulated()(lambda world: None)  # type: ignore[arg-type, return-value]


def test_who_waits_for_ever_fails_with_a_sentence() -> None:
    @simulated(nodes=3, seeds=range(1), faults=False, limit_s=30)
    async def stuck(world: World) -> None:
        accounts = world.service(open_accounts)

        async def teller(client: Client) -> None:
            while True:
                with suppress(ordercast.Unanswered):
                    await client.call(accounts, "deposit", "a", 1)

        await world.ready()
        world.partition({1}, {2}, {3})
        await asyncio.sleep(5)
        world.client(teller)

    with pytest.raises(Stuck, match=r"30 virtual seconds: teller 1 waits for deposit\('a', 1\)"):
        stuck()


def test_who_never_lets_time_pass_fails_with_a_sentence() -> None:
    @simulated(nodes=1, seeds=range(1), protocol="total", faults=False)
    async def busy(world: World) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="no time passes"):
        busy()


class Cached(Accounts):
    """Keeps something that is no field of its state."""

    def __init__(self) -> None:
        super().__init__()
        self._cache = 0


def test_an_object_that_the_library_refuses_fails_the_test_at_once() -> None:
    @simulated(nodes=2, seeds=range(1), faults=False)
    async def refused(world: World) -> None:
        async def open(node: ordercast.Node) -> Cached:
            return await node.replicate(Cached(), "accounts")

        cached = world.service(open)

        async def caller(client: Client) -> None:
            await client.call(cached, "deposit", "ann", 1)

        world.client(caller)

    with pytest.raises(ordercast.ConfigProblem, match=r"Cached\._cache is no field of its state"):
        refused()


def test_programs_that_raise_fail_the_test() -> None:
    @simulated(nodes=3, seeds=range(1), faults=False)
    async def raising(world: World) -> None:
        async def program(node: ordercast.Node) -> None:
            await asyncio.sleep(1)
            raise ZeroDivisionError("in a program")

        world.run(program)
        await asyncio.sleep(10)

    with pytest.raises(ZeroDivisionError, match="in a program"):
        raising()


# --- the same everywhere ------------------------------------------------------------------------

DIGESTS = """
import asyncio, sys
from contextlib import suppress
import ordercast
from ordercast.testing import simulated
from ordercast.testing.rows import KeptRows
from ordercast.testing.simulated import Settings, faults_of, run_seed
from accounts import DEPOSITS, Accounts, tellers

async def test(world):
    async def open(node):
        return await node.replicate(Accounts(), "accounts")

    accounts = world.service(open)

    async def teller(client):
        for _ in range(8):
            with suppress(ordercast.Unanswered):
                await client.call(accounts, "deposit", "a", 1)
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(asyncio.sleep(client.random.random()))

    for _ in range(3):
        world.client(teller)

for protocol in sys.argv[1:]:
    how = Settings(3, protocol, ("crash", "pause", "partition", "slow", "lose"), 600.0, {})
    for seed in range(4):
        rows = KeptRows()
        run = run_seed(test, how, seed, faults_of(seed, how, 3.0), rows)
        print(protocol, seed, len(rows.rows), rows.sha256, run.faults, run.error)
"""


def test_the_same_seed_is_the_same_run_in_every_process() -> None:
    told = set()
    for hashes in ("0", "77"):
        env = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": f"{SRC}{os.pathsep}tests/replicated"}
        said = subprocess.run(
            [sys.executable, "-c", DIGESTS, "totem", "total"],
            env=env,
            cwd=SRC.parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert said.count("totem") == said.count("total") == 4
        told.add(said)
    assert len(told) == 1


def test_all_kinds_of_faults_happen() -> None:
    seen: set[str] = set()

    @simulated(nodes=3, seeds=range(12))
    async def idle(world: World) -> None:
        await asyncio.sleep(8)
        seen.update(word for _, words in world.faults for word in words.split())

    idle()
    assert {"crashes", "stopped", "cut", "takes", "lost"} <= seen
    assert len(KINDS) == 5

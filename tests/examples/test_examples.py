"""The examples with real processes that are killed while they work."""

from __future__ import annotations

import ast
import asyncio
import json
import random
import signal
import time
from pathlib import Path

import pytest
from example_nodes import EXAMPLES, Nodes, nodes

from free_ports import free_port
from ordercast.testing import MAP, History, linearizable

SHORT = ("store.py", "bank.py", "cron.py", "chat.py")
LONGEST = 60


@pytest.mark.parametrize("name", SHORT)
def test_an_example_is_short(name: str) -> None:
    """Lines of code: without those that are empty, comments, or text about what it is."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    lines = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#")
    }
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    assert len(lines) < LONGEST


# --- store --------------------------------------------------------------------------------------


class StoreClient:
    """Asks one node after the other, and records what it was answered."""

    def __init__(self, name: str, ports: list[int], history: History) -> None:
        self._name = name
        self._ports = ports
        self._history = history
        self._chance = random.Random(name)
        self.acknowledged = 0

    async def run(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._chance.choice(self._ports))
            except OSError:
                await asyncio.sleep(0.05)
                continue
            try:
                while not ended.is_set() and await self._ask(reader, writer):
                    pass
            except OSError:
                pass  # it was killed; what was asked last may have been done
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        key, value = f"k{self._chance.randrange(4)}", f"{self._name}-{self.acknowledged}"
        words = self._chance.choice(
            [["get", key], ["put", key, value], ["delete", key], ["swap", key, "-", value]]
        )
        name, *args = words
        if name == "swap":
            name, args = "compare_and_set", [key, None, value]  # type: ignore[list-item]
        number = self._history.begin(self._name, name, *args)
        writer.write(f"{' '.join(words)}\n".encode())
        answer = (await reader.readline()).decode().split()
        if not answer or answer[0] == "error":
            return False
        self.acknowledged += 1
        told = answer[1]
        result = {"value": None if told == "None" else told, "swapped": told == "True"}.get(answer[0])
        self._history.end(number, result)
        await asyncio.sleep(0.01)
        return True


def test_the_store_keeps_what_it_has_answered_though_nodes_are_killed() -> None:
    ports = [free_port() for _ in range(3)]
    history = History(time.monotonic)
    clients = [StoreClient(f"c{number}", ports, history) for number in range(3)]

    async def main(running: Nodes) -> None:
        ended = asyncio.Event()
        tasks = [asyncio.create_task(each.run(ended)) for each in clients]
        for number in (0, 1, 2):
            await asyncio.sleep(1)
            running.kill(number)
            await asyncio.sleep(1.5)
            process = running.restart(number)
            await asyncio.to_thread(process.wait_for, lambda lines: "serving" in lines)
        ended.set()
        await asyncio.gather(*tasks)

    with nodes("store.py", [str(port) for port in ports]) as running:
        for process in running.running:
            process.wait_for(lambda lines: "serving" in lines)
        asyncio.run(main(running))
    assert min(client.acknowledged for client in clients) > 20
    assert linearizable(history, MAP)


# --- bank ---------------------------------------------------------------------------------------


def test_the_bank_loses_and_makes_no_money_though_nodes_are_killed() -> None:
    def reports(lines: list[str]) -> list[dict[str, int]]:
        return [json.loads(line) for line in lines if line.startswith('{"ack')]

    def acknowledged(lines: list[str]) -> int:
        return max((each["acknowledged"] for each in reports(lines)), default=0)

    tellers = ["ann", "bob", "eve"]
    told = dict.fromkeys(tellers, 0)
    with nodes("bank.py", tellers) as running:
        for number, teller in enumerate(tellers):
            before = running.running[number].wait_for(lambda lines: len(reports(lines)) > 1)
            running.kill(number)
            told[teller] = acknowledged(before)
            others = [each for each in running.running if each is not running.running[number]]
            for each in others:
                so_far = acknowledged(each.lines)
                each.wait_for(lambda lines, so_far=so_far: acknowledged(lines) > so_far)  # type: ignore[misc]
            running.restart(number).wait_for(lambda lines: len(reports(lines)) > 0)
        everything = [report for process in running.running for report in reports(process.lines)]
        assert {report["total"] for report in everything} == {1000}
        for number, teller in enumerate(tellers):
            told[teller] = max(told[teller], acknowledged(running.running[number].lines))
        for process in running.running:
            process.end_input()
        last = [
            json.loads(process.wait_for(lambda lines: any('"balance"' in line for line in lines))[-1])
            for process in running.running
        ]
    assert all(sum(each["balance"].values()) == 1000 for each in last)
    assert min(each["balance"][name] for each in last for name in each["balance"]) >= 0
    for each in last:
        for teller in tellers:
            assert each["made"][teller] >= told[teller] > 0, "what was acknowledged was made"


# --- cron ---------------------------------------------------------------------------------------


def test_no_job_runs_twice_though_leaders_are_killed_and_stopped(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.touch()

    def jobs() -> list[tuple[int, int, str]]:
        rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
        return [(int(token), int(number), address) for token, number, address in rows]

    def knows_leader(lines: list[str]) -> bool:
        return any(line.endswith(" leads") for line in lines)

    def wait_for_leader(*others: int) -> int:
        """Wait until somebody with a larger token has run jobs; who."""
        until = time.monotonic() + 60
        while not (found := [each for each in jobs() if each[0] not in others]) or len(found) < 3:
            assert time.monotonic() < until, f"nobody else leads: {jobs()[-3:]}"
            time.sleep(0.05)
        return found[-1][0]

    with nodes("cron.py", [str(path)] * 3) as running:
        for process in running.running:
            process.wait_for(knows_leader)
        number_of = {running.address(number): number for number in range(3)}
        tokens: list[int] = []
        for what in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL):
            tokens.append(wait_for_leader(*tokens))
            number = number_of[jobs()[-1][2]]
            if what is signal.SIGKILL:
                running.kill(number)
                wait_for_leader(*tokens)
                running.restart(number).wait_for(knows_leader)
            else:
                running.running[number].send(what)
                wait_for_leader(*tokens)
                stopped, so_far = running.running[number], len(running.running[number].lines)
                stopped.send(signal.SIGCONT)  # it is back when it knows who leads now
                stopped.wait_for(lambda lines, so_far=so_far: knows_leader(lines[so_far:]))  # type: ignore[misc]
        wait_for_leader(*tokens)
        found = jobs()
    numbers = [number for _, number, _ in found]
    assert len(set(numbers)) == len(numbers), "no job runs twice"
    assert max(numbers) - len(numbers) <= len(tokens), "a job is lost only with a leader that was killed"
    assert len({address for _, _, address in found}) > 1
    by_number = [token for token, number, _ in sorted(found, key=lambda job: job[1])]
    assert by_number == sorted(by_number), "a later leader has a larger token"


# --- chat ---------------------------------------------------------------------------------------


def test_the_chat_has_the_same_history_everywhere_though_nodes_are_killed() -> None:
    said: set[str] = set()

    def talk(running: Nodes, number: int, count: int) -> None:
        for _ in range(count):
            text = f"line {len(said)}"
            running.running[number].say(text)
            said.add(text)
        running.running[number].wait_for(lambda lines: any(line.endswith(text) for line in lines))

    def spoken(lines: list[str]) -> list[str]:
        return [line for line in lines if line[:1].isdigit()]

    with nodes("chat.py", ["ann", "bob", "eve"]) as running:
        for number in range(3):
            talk(running, number, 5)
        for number in range(3):
            running.kill(number)
            talk(running, (number + 1) % 3, 5)
            running.restart(number)
            talk(running, number, 5)
            talk(running, (number + 2) % 3, 5)
        histories = [
            spoken(process.wait_for(lambda lines: len(spoken(lines)) >= len(said)))
            for process in running.running
        ]
    assert histories[0] == histories[1] == histories[2]
    assert [int(line.split()[0]) for line in histories[0]] == list(range(1, len(said) + 1))
    assert {line.split(": ", 1)[1] for line in histories[0]} == said

"""The front for programs without an event loop: used from several threads, stopped, interrupted."""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ordercast import AddressProblem, Configuration, Delivery, Joined, Left, Message, NodeClosed, SendTimeout
from ordercast.threads import Group, Node

SAFETY_NET_S = 30
ANYWHERE = "127.0.0.1:0"
SMALL: dict[str, Any] = {"send_buffer": 4096, "receive_buffer": 65_536}


@contextmanager
def pair(**given: Any) -> Iterator[tuple[Node, Node]]:
    with Node(listen=ANYWHERE, **given) as one, Node(listen=ANYWHERE, seeds=[one.address], **given) as two:
        for node in (one, two):
            node.wait_for([one.id, two.id], timeout=SAFETY_NET_S)
        yield one, two


def read(group: Group, count: int) -> list[bytes]:
    found: list[bytes] = []
    for event in group:
        if isinstance(event, Message):
            found.append(event.payload)
            if len(found) == count:
                return found
    raise AssertionError("the group ended")


class Worker:
    """A thread, and what came of it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._out: queue.Queue[object] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            self._out.put(work())
        except BaseException as error:  # noqa: BLE001 (told to who asks)
            self._out.put(error)

    def result(self) -> object:
        return self._out.get(timeout=SAFETY_NET_S)


def await_calls(node: Node, *names: str) -> None:
    """Wait until the node's event loop has all of these calls of threads."""
    loop = node._runner.loop._loop
    while not set(names) <= {task.get_coro().__qualname__ for task in asyncio.all_tasks(loop)}:  # type: ignore[union-attr]
        time.sleep(0.01)


def test_members_of_a_group_without_a_loop() -> None:
    with pair() as (one, two):
        ann = one.join("room", properties={"nick": "ann"})
        bob = two.join("room", properties={"nick": "bob"}, timeout=SAFETY_NET_S)
        assert [member.properties["nick"] for member in bob.members] == ["ann", "bob"] or one.id > two.id
        assert {member.process for member in bob.members} == {ann.me, bob.me}
        assert two.join("room", receive=False).me is None
        bob.leave()
        message = two.send(["room", "other"], b"from outside", safe=True).result(timeout=SAFETY_NET_S)
        assert message.groups == ("room", "other")
        seen: list[str] = []
        for event in ann:
            if isinstance(event, Joined | Left):
                seen.append(f"{type(event).__name__} {event.member.properties['nick']}")
            elif isinstance(event, Message):
                break
        assert seen == ["Joined ann", "Joined bob", "Left bob"]


def test_two_nodes_without_a_loop() -> None:
    with pair() as (one, two):
        mine, its = one.join("g"), two.join("g")
        mine.send(b"1")
        mine.send_many([b"2", b"3"], safe=True)
        receipt = mine.send(b"4", receipt=True)
        assert read(its, 4) == [b"1", b"2", b"3", b"4"]
        message = receipt.result(timeout=SAFETY_NET_S)
        assert (message.payload, message.sender) == (b"4", one.id)
        assert receipt.done
        assert one.status()["sent"] >= 4
        assert one.members == one.configuration.members
        assert one.incarnation == 0
        its.leave()
        assert list(its) == []


def test_reading_that_stopped_in_the_middle_goes_on() -> None:
    with Node(listen=ANYWHERE) as node:
        group = node.join("g")
        group.send_many([b"%d" % number for number in range(10)])
        assert read(group, 3) == [b"0", b"1", b"2"]
        assert read(group, 3) == [b"3", b"4", b"5"]
        for entry in group.batches():
            assert isinstance(entry, Delivery)
            assert entry.payloads == [b"6", b"7", b"8", b"9"]
            assert len(entry.numbers) == 4
            break


def test_many_threads_send_and_one_reads() -> None:
    with pair() as (one, two):
        its = two.join("g")
        mine = one.join("g", receive=False)

        def send(name: int) -> None:
            for number in range(50):
                mine.send(b"%d %d" % (name, number), safe=number % 10 == 0)

        workers = [Worker(lambda name=name: send(name)) for name in range(4)]  # type: ignore[misc]
        found = read(its, 200)
        assert [worker.result() for worker in workers] == [None] * 4
        for name in range(4):
            own = [payload for payload in found if payload.startswith(b"%d " % name)]
            assert own == [b"%d %d" % (name, number) for number in range(50)]


def test_stopping_while_others_wait() -> None:
    with pair(**SMALL) as (one, two):
        stuck = two.join("g")
        mine = one.join("g", receive=False)
        with pytest.raises(SendTimeout):
            fill(mine)
        reading, sending, waiting = (
            Worker(lambda: [event for event in one.join("h") if isinstance(event, Message)]),
            Worker(lambda: mine.send(bytes(1000))),
            Worker(lambda: one.wait_for(9)),
        )
        await_calls(one, "next_of", "Group.send", "Node.wait_for")
        stopping = Worker(one.stop)
        assert isinstance(sending.result(), NodeClosed)
        stuck.leave()
        assert stopping.result() is None
        assert isinstance(waiting.result(), NodeClosed)
        assert reading.result() == []
        one.stop()
        with pytest.raises(NodeClosed, match="has stopped: make a new Node"):
            mine.send(b"x")
        with pytest.raises(NodeClosed, match="has stopped"):
            one.status()


def test_a_thread_that_answers_what_it_reads_never_waits_for_itself() -> None:
    with pair(evict_after=math.inf, **SMALL) as (one, two):
        asking, its = one.join("g", receive=False), two.join("g")
        sending = Worker(lambda: asking.send_many([b"?" * 1000] * 200))
        while two.status()["slow_groups"] != {"g": [two.id]}:
            time.sleep(0.01)
        answered = 0
        for event in its:
            if isinstance(event, Message) and event.sender == one.id:
                its.send(b"!" * 1000)
                answered += 1
                if answered == 200:
                    break
        assert sending.result() is None


def fill(group: Group) -> None:
    while True:
        group.send(bytes(1000), timeout=0.5)


def test_stopping_while_another_thread_never_rests() -> None:
    """Whenever it comes: what is under way ends, and nobody hangs."""
    for _ in range(5):
        node = Node(listen=ANYWHERE)
        node.start()
        group = node.join("g", receive=False)

        def work(node: Node = node, group: Group = group) -> None:
            while True:
                group.send(b"x")
                node.status()

        workers = [Worker(work) for _ in range(3)]
        stops = [Worker(node.stop) for _ in range(2)]
        assert [stop.result() for stop in stops] == [None, None]
        assert all(isinstance(worker.result(), NodeClosed) for worker in workers)


def test_what_is_interrupted_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with Node(listen=ANYWHERE) as node:
        group = node.join("g")
        assert isinstance(next(iter(group)), Configuration)
        assert isinstance(next(iter(group)), Joined)
        schedule = asyncio.run_coroutine_threadsafe

        def interrupted(work: Any, loop: Any) -> Any:
            future = schedule(work, loop)
            result = future.result

            def interrupt(timeout: float | None = None) -> Any:
                with pytest.raises(TimeoutError):
                    result(0.05)
                raise KeyboardInterrupt

            monkeypatch.setattr(future, "result", interrupt)
            return future

        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(iter(group))
            with pytest.raises(KeyboardInterrupt):
                node.wait_for(9)
        group.send(b"x")
        assert read(group, 1) == [b"x"], "nobody else is reading any more"


def test_misuse() -> None:
    node = Node(listen=ANYWHERE)
    node.stop()
    with pytest.raises(NodeClosed, match="not started: use `with Node"):
        node.join("g")
    with node, pytest.raises(NodeClosed, match="started before"):
        node.start()
    with Node(listen=ANYWHERE) as other, pytest.raises(AddressProblem), Node(listen=other.address):
        pass
    with Node(listen=ANYWHERE) as node, pytest.raises(TypeError, match="a message is bytes"):
        node.join("g").send("text")  # type: ignore[call-overload]


def test_a_receipt_that_takes_too_long() -> None:
    with pair(**SMALL) as (one, two):
        stuck = two.join("g")
        mine = one.join("g", receive=False)
        with pytest.raises(SendTimeout):
            fill(mine)
        mine_too = one.join("g", receive=False)
        with pytest.raises(SendTimeout, match="does not keep up"):
            mine_too.send(b"x", timeout=0.1)
        stuck.leave()
        receipt = mine.send(b"x", receipt=True)
        assert receipt.result(SAFETY_NET_S).payload == b"x"


def test_no_thread_is_left_behind() -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        with Node(listen=ANYWHERE):
            pass
        with pytest.raises(AddressProblem), Node(listen="192.0.2.1:0", insecure=True):
            pass
    left = set(threading.enumerate()) - before
    assert not any(thread.name == "ordercast" for thread in left)
    for thread in left:  # of the loop's own pool: they end when they notice that it did
        thread.join(SAFETY_NET_S)
        assert not thread.is_alive()

"""What local processes of a node ask for, and what they are told: a node that is alone, without a network."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from lone_readers import ALONE, RING

from ordercast import ConfigProblem, MessageTooLarge
from ordercast.core.addresses import stamp
from ordercast.core.identity import Batch, Guarantee
from ordercast.core.subjects import subscription
from ordercast.groups import local_process as module
from ordercast.groups.processes import Processes
from ordercast.process_groups.views import Cause, Received, Unheard, View

SENT_US = 1_760_000_000_123_000
"""What the node's clock says whenever something is sent, in microseconds since the epoch."""


class Heard:
    """Remembers what one process is told."""

    def __init__(self) -> None:
        self.received_: list[Received] = []
        self.views: list[View] = []
        self.left_: list[tuple[str, Cause]] = []
        self.unheard_: list[Unheard] = []

    def received(self, received: Received) -> None:
        self.received_.append(received)

    def installed(self, view: View) -> None:
        self.views.append(view)

    def left(self, group: str, cause: Cause) -> None:
        self.left_.append((group, cause))

    def unheard(self, unheard: Unheard) -> None:
        self.unheard_.append(unheard)

    def configuration(self, change: object) -> None:
        pass

    @property
    def bodies(self) -> list[bytes]:
        return [body for each in self.received_ for body in each.batch.payloads]


class Scene:
    """Node 1, alone: what its processes send is ordered at once, or held back."""

    def __init__(self) -> None:
        self.full = False
        self.gate: Any = SimpleNamespace(
            largest=1_000,
            hold=lambda: None,
            release=lambda: None,
            submit=self._order,
            must_wait=lambda groups: self.full,
            check_majority=lambda: None,
            attend=lambda attend: None,
            stamp=lambda: stamp(SENT_US),
        )
        self.numbers = 0
        self.held: list[tuple[int, list[bytes], Guarantee]] | None = None
        self.processes = Processes(1, 0, lambda: self.gate, lambda: False)
        self.processes.install(ALONE, None)

    def _order(self, payloads: list[bytes], size: int, guarantee: Guarantee) -> int:
        number = self.numbers + 1
        self.numbers += len(payloads)
        if self.held is None:
            self._deliver(number, payloads, guarantee)
        else:
            self.held.append((number, payloads, guarantee))
        return number

    def _deliver(self, number: int, payloads: list[bytes], guarantee: Guarantee) -> None:
        life = self.processes.life
        self.processes.deliver(
            Batch(RING, number, 0, life.node, life.incarnation, number, guarantee, payloads)
        )

    def let_go(self) -> None:
        held, self.held = self.held or [], None
        for each in held:
            self._deliver(*each)


def test_what_cannot_be_joined_or_left_is_refused() -> None:
    scene = Scene()
    process = scene.processes.begin(Heard())
    process.join("g")
    with pytest.raises(ConfigProblem, match="is in 'g' already: leave it first"):
        process.join("g")
    with pytest.raises(ConfigProblem, match="has not joined 'h': join it first"):
        process.leave("h")
    scene.gate.largest = 100
    with pytest.raises(MessageTooLarge, match="name of the group and properties take"):
        process.join("k", {"what it says of itself": "much" * 20})


def test_a_group_that_is_left_between_two_lives_is_not_joined_in_the_next() -> None:
    scene = Scene()
    heard = Heard()
    process = scene.processes.begin(heard)
    process.join("kept")
    process.join("left")
    scene.processes.life_over()
    process.leave("left")
    scene.processes.begin_life(1)
    scene.processes.install(ALONE, None)
    assert [member.process for member in scene.processes.members("kept")] == [
        scene.processes.process(process)
    ]
    assert scene.processes.members("left") == ()


def test_messages_are_sent_at_once_or_not_at_all() -> None:
    scene = Scene()
    heard = Heard()
    process = scene.processes.begin(heard)
    process.join("g")
    before = scene.numbers
    assert process.try_send(("g",), [b"one", b"two"], Guarantee.AGREED) == before + 2
    assert heard.bodies == [b"one", b"two"]
    scene.full = True
    assert process.try_send(("g",), [b"three"], Guarantee.AGREED) is None
    scene.full = False
    with pytest.raises(MessageTooLarge, match="split it"):
        process.try_send(("g",), [bytes(1_000)], Guarantee.AGREED)
    assert heard.bodies == [b"one", b"two"]


def test_a_head_reaches_who_gets_the_message_and_its_sender_hears_of_one_that_reaches_nobody() -> None:
    scene = Scene()
    heard = Heard()
    process = scene.processes.begin(heard)
    process.join("g")
    process.try_send(("g", "nobody's"), [b"body"], Guarantee.AGREED, heads=[b"head"])
    ((received,), (body,)) = heard.received_, heard.bodies
    assert (received.heads, body) == ([b"head"], b"body")
    process.try_send(("nobody's",), [b"lost"], Guarantee.AGREED, heads=[b"answer me"])
    ((unheard,),) = (heard.unheard_,)
    assert (unheard.heads, unheard.batch.payloads) == ([b"answer me"], [b"lost"])


def test_a_process_that_remembers_enough_addresses_begins_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ADDRESSES", 2)
    scene = Scene()
    heard = Heard()
    process = scene.processes.begin(heard)
    for group in ("a", "b", "c"):
        process.join(group)
    for group in ("a", "b", "c", "a"):
        process.try_send((group,), [group.encode()], Guarantee.AGREED)
    assert heard.bodies == [b"a", b"b", b"c", b"a"]


def test_who_has_ended_when_its_messages_are_delivered_is_told_nothing() -> None:
    scene = Scene()
    first, second = Heard(), Heard()
    process = scene.processes.begin(first)
    process.join("g")
    other = scene.processes.begin(second)
    other.join("g")
    scene.held = []
    process.try_send(("nobody's",), [b"x"], Guarantee.AGREED, heads=[b"h"])
    process.try_send(("g",), [b"y"], Guarantee.AGREED)
    views = len(first.views)
    process.end()
    scene.let_go()
    assert (first.bodies, first.unheard_, len(first.views)) == ([], [], views)
    assert second.bodies == [b"y"]
    assert [member.process.number for member in scene.processes.members("g")] == [other.number]


def test_what_a_member_of_a_queue_could_not_take_another_gets() -> None:
    scene = Scene()
    queue = subscription("jobs", "workers")
    heard = [Heard(), Heard()]
    workers = [scene.processes.begin(each) for each in heard]
    for worker in workers:
        worker.join(queue)
    scene.processes.outside.try_send(("jobs",), [b"job"], Guarantee.AGREED)
    chosen = next(at for at, each in enumerate(heard) if each.received_)
    (received,) = heard[chosen].received_
    workers[chosen].end()
    scene.processes.hand_over(received)
    assert heard[1 - chosen].bodies == [b"job"]
    scene.processes.life_over()
    scene.processes.hand_over(received)  # too late: its next life knows nothing of it
    assert heard[1 - chosen].bodies == [b"job"]

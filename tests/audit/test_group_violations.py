"""For every property of process groups, histories that break it: the auditor names it, and says who and what.

001, "The Totem Process Group Interface".
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ordercast.audit.properties import PROCESS_GROUPS, Expectation, audit
from ordercast.core.identity import GROUPS_BETWEEN, Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.core.subjects import subscription
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import Row

Process = tuple[int, int, int]
P, Q, R = (1, 0, 1), (2, 0, 1), (2, 0, 2)
"""P is at node 1, Q and R are at node 2."""
HERE = ConfigurationId(8, 1)


class GroupStory:
    """A run of nodes 1 and 2 in one configuration, told process by process."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.records = {node: Recorder(node, self.rows, describe=_described) for node in (1, 2)}
        self.now = 0
        for record in self.records.values():
            record.install(0, Configuration(HERE, Kind.REGULAR, (1, 2)))

    def row(
        self,
        process: Process,
        event: str,
        group: str | None,
        members: tuple[int, ...] | None = None,
        view: tuple[int, int, int] | tuple[None, None, None] = (None, None, None),
        part: tuple[int, int] | None = None,
    ) -> None:
        self.now += 10
        columns = (*(part or (None, None)), process[2], *view, None, None)
        self.records[process[0]].group_event(self.now, event, members, columns, group, None, None)

    def join(self, process: Process, group: str) -> None:
        self.row(process, "group_join", group)

    def leave(self, process: Process, group: str) -> None:
        self.row(process, "group_leave", group)
        self.row(process, "group_left", group)

    def end(self, process: Process) -> None:
        self.row(process, "process_end", None)

    def view(
        self,
        number: int,
        members: list[Process],
        at: list[Process] | None = None,
        group: str = "G",
        part: tuple[int, int] | None = None,
    ) -> None:
        flat = tuple(number for member in members for number in member)
        for process in members if at is None else at:
            self.row(process, "group_view", group, members=flat, view=(*HERE, number), part=part)

    def order(self, number: int, *groups: str, at: tuple[int, ...] = (1, 2)) -> None:
        """Message `number` of node 1 to these groups is delivered by the nodes' ordering machines."""
        self.now += 10
        payload = ",".join(groups).encode()
        batch = Batch(HERE, number, 0, 1, 0, number, Guarantee.AGREED, [payload])
        for node in at:
            self.records[node].deliver(self.now, batch)

    def receive(
        self,
        number: int,
        *processes: Process,
        groups: tuple[str, ...] = ("G",),
        queue: str | None = None,
    ) -> None:
        """Processes receive message `number` of node 1, over a queue or not."""
        for process in processes:
            self.now += 10
            message = (1, 0, number, *HERE, number, 0, "agreed")
            self.records[process[0]].group_event(
                self.now, "group_deliver", (process[2],), message, GROUPS_BETWEEN.join(groups), 10, queue
            )


def _described(payload: bytes) -> tuple[str | None, int]:
    return payload.decode().replace(",", GROUPS_BETWEEN) or None, len(payload)


def joined() -> GroupStory:
    """P, then Q, then R have joined G."""
    story = GroupStory()
    for number, members in enumerate(([P], [P, Q], [P, Q, R]), 1):
        story.join(members[-1], "G")
        story.view(number, members)
    return story


QUEUE = subscription("*", "q")


def in_queue() -> GroupStory:
    """P and Q have joined a queue of which one gets each message."""
    story = GroupStory()
    for number, members in enumerate(([P], [P, Q]), 1):
        story.join(members[-1], QUEUE)
        story.view(number, members, group=QUEUE)
    return story


PLANTED: list[tuple[str, Callable[[], GroupStory]]] = []


def breaks(code: str) -> Callable[[Callable[[], GroupStory]], Callable[[], GroupStory]]:
    def register(tell: Callable[[], GroupStory]) -> Callable[[], GroupStory]:
        PLANTED.append((code, tell))
        return tell

    return register


@breaks("group-views")
def one_identifier_two_memberships() -> GroupStory:
    story = joined()
    story.view(4, [P, Q], at=[P])
    story.view(4, [P, Q, R], at=[Q, R])
    return story


@breaks("group-views")
def a_view_twice() -> GroupStory:
    story = joined()
    story.view(3, [P, Q, R], at=[Q])
    return story


@breaks("group-self-inclusion")
def a_view_without_oneself() -> GroupStory:
    story = joined()
    story.view(4, [Q, R], at=[P, Q, R])
    return story


@breaks("group-receivers")
def a_message_to_a_group_that_one_never_joined() -> GroupStory:
    story = joined()
    story.order(1, "H")
    story.receive(1, Q, groups=("H",))
    return story


@breaks("group-receivers")
def a_message_after_one_has_left() -> GroupStory:
    story = joined()
    story.leave(R, "G")
    story.view(4, [P, Q])
    story.order(1, "G")
    story.receive(1, P, Q, R)
    return story


@breaks("group-receivers")
def a_message_to_the_dead() -> GroupStory:
    story = joined()
    story.end(R)
    story.order(1, "G")
    story.receive(1, P, Q, R)
    return story


@breaks("group-once")
def once_for_each_group_addressed() -> GroupStory:
    story = joined()
    story.join(Q, "H")
    story.view(4, [Q], group="H")
    story.order(1, "G", "H")
    story.receive(1, P, Q, Q, R, groups=("G", "H"))
    return story


@breaks("group-order")
def a_later_message_first() -> GroupStory:
    story = joined()
    story.order(1, "G")
    story.order(2, "G")
    story.receive(1, P, R)
    story.receive(2, P, Q, R)
    story.receive(1, Q)
    return story


@breaks("group-order")
def intersecting_groups_in_two_orders() -> GroupStory:
    """001: r is in G and H, and has m2 to H before m1 to G, which p and q had before m2 was sent."""
    story = joined()
    for number, members in enumerate(([P], [P, Q], [P, Q, R]), 4):
        story.join(members[-1], "H")
        story.view(number, members, group="H")
    story.order(1, "G")
    story.order(2, "H")
    story.receive(1, P, Q)
    story.receive(2, P, Q, R, groups=("H",))
    story.receive(1, R)
    return story


@breaks("group-order")
def a_message_that_was_not_ordered() -> GroupStory:
    story = joined()
    story.order(1, "G", at=(1,))
    story.receive(1, P, Q, R)
    return story


@breaks("group-synchrony")
def a_message_that_only_some_had_before_the_next_view() -> GroupStory:
    story = joined()
    story.order(1, "G")
    story.receive(1, P, R)
    story.leave(R, "G")
    story.view(4, [P, Q])
    return story


@breaks("group-one-view")
def a_message_in_two_views() -> GroupStory:
    story = joined()
    story.order(1, "G")
    story.receive(1, P)
    story.leave(R, "G")
    story.view(4, [P, Q])
    story.receive(1, Q)
    return story


@breaks("live-groups")
def a_join_that_never_took_effect() -> GroupStory:
    story = joined()
    story.join(R, "H")
    return story


@breaks("live-groups")
def members_that_ended_in_different_views() -> GroupStory:
    story = joined()
    story.leave(R, "G")
    story.view(4, [P, Q], at=[P])
    return story


@breaks("live-groups")
def a_transitional_view_in_the_end() -> GroupStory:
    story = joined()
    story.view(4, [P, Q, R], part=(1, 0))
    return story


@breaks("live-groups")
def a_dead_process_that_is_still_in_the_view() -> GroupStory:
    story = joined()
    story.end(R)
    return story


@breaks("live-group-delivery")
def a_message_that_nobody_received() -> GroupStory:
    story = joined()
    story.order(1, "G")
    return story


@breaks("group-receivers")
def a_message_over_a_queue_to_who_is_not_in_it() -> GroupStory:
    story = in_queue()
    story.order(1, "G")
    story.receive(1, R, queue=QUEUE)
    return story


@breaks("group-receivers")
def a_message_to_a_member_of_a_queue_that_the_queue_did_not_choose() -> GroupStory:
    story = in_queue()
    story.order(1, "G")
    story.receive(1, P)
    return story


@breaks("group-queue")
def a_message_to_two_members_of_a_queue() -> GroupStory:
    story = in_queue()
    story.order(1, "G")
    story.receive(1, P, Q, queue=QUEUE)
    return story


@breaks("live-group-delivery")
def a_message_that_no_member_of_a_queue_received() -> GroupStory:
    story = in_queue()
    story.order(1, "G")
    return story


@breaks("live-group-delivery")
def a_message_that_a_pattern_describes_and_nobody_received() -> GroupStory:
    story = GroupStory()
    story.join(P, subscription(">"))
    story.view(1, [P], group=subscription(">"))
    story.order(1, "a.b")
    return story


def _codes(story: GroupStory) -> dict[str, int]:
    expectation = Expectation(components=(frozenset({1, 2}),))
    report = audit(story.rows, expectation, PROCESS_GROUPS)
    assert not report.unchecked
    assert all(found.sentence.endswith(".") and found.nodes for found in report.violations)
    return {code: count for code, count in report.properties.items() if count}


@pytest.mark.parametrize(("code", "tell"), PLANTED, ids=[tell.__name__ for _, tell in PLANTED])
def test_the_violation_is_named(code: str, tell: Callable[[], GroupStory]) -> None:
    assert code in _codes(tell())


def test_every_property_is_broken_by_some_history() -> None:
    assert {code for code, _ in PLANTED} == set(PROCESS_GROUPS)


def test_a_right_history_keeps_them_all() -> None:
    story = joined()
    story.join(Q, "H")
    story.view(4, [Q], group="H")
    story.order(1, "G", "H")
    story.receive(1, P, Q, R, groups=("G", "H"))
    story.leave(R, "G")
    story.view(5, [P, Q])
    story.order(2, "H")
    story.receive(2, Q, groups=("H",))
    story.end(Q)
    story.view(6, [P])
    assert _codes(story) == {}


def test_a_right_history_of_a_queue_keeps_them_all() -> None:
    story = in_queue()
    story.order(1, "G")
    story.receive(1, Q, queue=QUEUE)
    story.order(2, "a.b")
    story.order(3, "G")
    story.end(Q)
    story.view(3, [P], group=QUEUE)
    story.order(4)
    story.receive(4, P, queue=f"{QUEUE}{GROUPS_BETWEEN}1.0.3")
    assert _codes(story) == {}


def test_a_message_may_be_received_in_transitional_views_by_parts_that_know_nothing_of_each_other() -> None:
    story = joined()
    story.view(4, [P], part=(1, 0))
    story.view(4, [Q, R], part=(2, 0))
    story.order(1, "G")
    story.receive(1, P, Q, R)
    story.view(5, [P, Q, R])
    assert _codes(story) == {}


def test_where_rows_are_missing_nothing_is_said_of_process_groups() -> None:
    report = audit(a_message_to_the_dead().rows, None, PROCESS_GROUPS, whole=False)
    assert report.clean
    assert set(report.unchecked) == set(PROCESS_GROUPS)

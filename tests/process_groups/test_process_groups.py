"""001, "The Totem Process Group Interface": groups of processes over one order of messages."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from written_order import ROOM, Order

from ordercast.core.addresses import address, withheld
from ordercast.core.contract import Attend, QueueFull
from ordercast.core.identity import Configuration, ConfigurationId, Guarantee, Kind, MessageId
from ordercast.core.subjects import subscription
from ordercast.process_groups.machine import ProcessGroups
from ordercast.process_groups.notes import NOTE, Again, End, Join, Membership, State, read, states, written
from ordercast.process_groups.views import Cause, Left, Numbered, Received, Recounted


def two_members() -> Order:
    """Nodes 1 and 2, each with its first process in group G, in configuration 8.1."""
    order = Order(1, 2)
    order.regular(8, [1, 2])
    for node in (1, 2):
        order.machines[node].begin()
        order.machines[node].join(1, "G", {"nick": f"n{node}"})
        order.order(node)
    return order


# --- joining and leaving ---------------------------------------------------------------------------


def test_a_join_takes_effect_where_it_is_ordered_and_all_members_are_told_the_same() -> None:
    order = two_members()
    assert order.members(1, 1, "G") == ["1.0.1: joined", "1.0.1 2.0.1: joined"]
    assert order.members(2, 1, "G") == ["1.0.1 2.0.1: joined"]
    assert order.views(1, 1, "G")[-1] == order.views(2, 1, "G")[-1]


def test_members_know_names_and_properties_of_each_other() -> None:
    order = two_members()
    assert [each.properties for each in order.views(2, 1, "G")[-1].members] == [
        {"nick": "n1"},
        {"nick": "n2"},
    ]


def test_joining_takes_one_ordered_message_and_so_does_leaving() -> None:
    order = two_members()
    third = order.machines[1].begin()
    order.machines[1].join(third, "G")
    assert order.machines[1].waiting == 1
    order.order(1)
    order.machines[1].leave(third, "G")
    assert order.machines[1].waiting == 1


def test_who_joins_before_the_first_configuration_gets_all_of_it() -> None:
    order = Order(1, 2)
    machine = order.machines[2]
    stays, leaves, ends = machine.begin(), machine.begin(), machine.begin()
    for process in (stays, leaves, ends):
        machine.join(process, "G")
    machine.leave(leaves, "G")
    machine.end(ends)
    assert machine.waiting == 0
    order.regular(8, [1, 2])
    assert order.members(2, stays, "G") == ["2.0.1: merged"]
    assert [str(each.process) for each in order.machines[1].members("G")] == ["2.0.1"]


def test_who_leaves_is_told_where_it_left_and_the_others_see_why() -> None:
    order = two_members()
    order.machines[2].leave(1, "G")
    assert not order.left(2)
    order.order(2)
    assert order.left(2) == [Left(1, "G", Cause.LEFT)]
    assert order.members(1, 1, "G")[-1] == "1.0.1: left"
    assert order.members(2, 1, "G")[-1] == "1.0.1 2.0.1: joined"


def test_a_process_that_died_leaves_all_its_groups_with_one_message() -> None:
    order = two_members()
    order.machines[2].join(1, "H")
    order.machines[1].join(1, "H")
    order.order(2)
    order.order(1)
    order.machines[2].end(1)
    order.order(2)
    assert order.members(1, 1, "G")[-1] == "1.0.1: process died"
    assert order.members(1, 1, "H")[-1] == "1.0.1: process died"


def test_a_dead_process_gets_nothing_more_though_others_do_not_know_yet() -> None:
    order = two_members()
    order.machines[2].end(1)
    order.machines[1].send(1, ["G"], b"late")
    order.order(1)
    assert order.messages(2, 1) == []
    assert order.messages(1, 1) == [b"late"]


def test_a_process_that_asked_to_leave_and_died_gets_nothing_more_either() -> None:
    order = two_members()
    order.machines[2].leave(1, "G")
    order.machines[2].end(1)
    order.machines[1].send(1, ["G"], b"late")
    order.order(1)
    order.order(2)
    assert order.messages(2, 1) == []
    assert not order.left(2)
    assert not order.machines[2]._ended


def test_a_group_that_nobody_is_in_any_more_is_forgotten() -> None:
    order = two_members()
    for node in (1, 2):
        order.machines[node].leave(1, "G")
        order.order(node)
    assert not list(order.machines[1]._table.groups)
    assert not order.machines[1]._table._processes


# --- messages --------------------------------------------------------------------------------------


def test_a_message_to_several_groups_reaches_a_process_in_several_of_them_once() -> None:
    order = two_members()
    order.machines[1].join(1, "H")
    order.order(1)
    order.machines[2].send(1, ["G", "H", "I"], b"m")
    order.order(2)
    assert order.messages(1, 1) == [b"m"]
    assert order.messages(2, 1) == [b"m"]


def test_a_sender_need_not_be_in_the_group_and_who_is_not_gets_nothing() -> None:
    order = two_members()
    outside = order.machines[2].begin()
    order.machines[2].send(outside, ["G"], b"from outside")
    order.machines[2].send(0, ["G"], b"from the node")
    order.order(2)
    assert order.messages(1, 1) == [b"from outside", b"from the node"]
    assert order.messages(2, outside) == []
    received = [each for each in order.told[1] if isinstance(each, Received)]
    assert [each.sender for each in received] == [outside, 0]


def test_p_q_and_r_in_two_groups_see_one_order_of_their_messages() -> None:
    """001: m1 to G causally precedes m2 to H, so r, who is in both, never has m2 before m1."""
    order = Order(1, 2, 3)
    order.regular(8, [1, 2, 3])
    for machine in order.machines.values():
        machine.begin()
        machine.join(1, "G")
        machine.join(1, "H")
    for node in (1, 2, 3):
        order.order(node)
    order.machines[1].send(1, ["G"], b"m1")
    order.order(1)
    assert order.messages(2, 1) == [b"m1"]
    order.machines[2].send(1, ["H"], b"m2")
    order.order(2)
    assert order.messages(3, 1) == [b"m1", b"m2"]


def test_messages_of_a_packet_to_the_same_groups_come_together() -> None:
    order = two_members()
    for body in (b"a", b"b", b"c"):
        order.machines[1].send(1, ["G"], body)
    order.order(1)
    received = [each for each in order.told[2] if isinstance(each, Received)]
    assert [each.batch.payloads for each in received] == [[b"a", b"b", b"c"]]


# --- configurations --------------------------------------------------------------------------------


def test_a_node_that_is_lost_takes_its_processes_along_first_in_a_transitional_view() -> None:
    order = two_members()
    order.transitional(11, [1])
    order.regular(12, [1])
    assert order.members(1, 1, "G")[-2:] == ["~1.0.1: node lost", "1.0.1: node lost"]


def test_a_group_that_loses_nobody_keeps_its_view_through_a_change_of_configuration() -> None:
    order = two_members()
    order.transitional(11, [1, 2])
    order.regular(12, [1, 2])
    assert len(order.views(1, 1, "G")) == 2


def test_a_remerge_gives_each_group_one_new_view_the_same_at_all() -> None:
    order = two_members()
    for node in (1, 2):
        order.transitional(11, [node])
        order.regular(12, [node])
    order.machines[1].join(1, "H")
    order.order(1, to=[1])
    order.machines[2].leave(1, "G")
    order.order(2, to=[2])
    late = order.machines[2].begin()
    order.machines[2].join(late, "H")
    order.order(2, to=[2])
    for node in (1, 2):
        order.transitional(15, [node])
    order.regular(16, [1, 2])
    assert order.members(1, 1, "G")[-1] == "1.0.1: node lost", "it had this before, and nobody came back"
    assert order.members(1, 1, "H")[-1] == "1.0.1 2.0.2: merged"
    assert order.views(1, 1, "H")[-1] == order.views(2, late, "H")[-1]


def test_what_comes_before_the_last_state_waits_for_it() -> None:
    """A late-comer is told the memberships before the first message that depends on them."""
    order = two_members()
    order.machines[1].send(1, ["G"], b"early")
    submit = order.machines[1].take(ROOM)
    assert submit is not None
    order.transitional(11, [1, 2])
    order.install(12, [1, 2])
    order.deliver(1, submit.payloads)
    order.order(1)
    assert order.messages(1, 1) == order.messages(2, 1) == []
    order.order(2)
    assert order.messages(1, 1) == order.messages(2, 1) == [b"early"]


def test_until_then_a_node_submits_nothing_but_its_state() -> None:
    order = two_members()
    order.install(12, [1, 2])
    order.machines[1].send(1, ["G"], b"waits")
    order.order(1)
    assert order.machines[1].waiting == 1
    order.order(2)
    order.order(1)
    assert order.messages(2, 1) == [b"waits"]


def test_a_configuration_that_ends_before_the_states_came_leaves_who_came_together_in_their_views() -> None:
    order = two_members()
    order.machines[1].send(1, ["G"], b"m")
    submit = order.machines[1].take(ROOM)
    assert submit is not None
    order.transitional(11, [1, 2])
    order.install(12, [1, 2])
    order.order(1)
    order.deliver(1, submit.payloads)
    order.transitional(15, [1, 2])
    assert order.story(1, 1)[-2:] == ["G 8.1/3", "m"]
    assert order.story(2, 1)[-2:] == ["G 8.1/3", "m"]


def test_nodes_that_meet_in_it_and_part_again_know_nothing_of_each_others_joins() -> None:
    """Node 2 cannot know who else is in G at node 1; so it does not learn of one of them alone."""
    order = Order(1, 2)
    for node in (1, 2):
        order.machines[node].begin()
        order.regular(8, [node])
        order.machines[node].join(1, "G")
        order.order(node, to=[node])
    second = order.machines[1].begin()
    order.machines[1].join(second, "G")
    submit = order.machines[1].take(ROOM)
    assert submit is not None
    order.install(12, [1, 2])
    order.deliver(1, submit.payloads)
    order.transitional(15, [1, 2])
    assert order.members(1, second, "G") == ["~1.0.1 1.0.2: joined"]
    assert order.members(2, 1, "G") == ["2.0.1: joined", "~2.0.1: unsettled"]
    order.regular(16, [1, 2])
    assert order.members(2, 1, "G")[-1] == order.members(1, second, "G")[-1] == "1.0.1 1.0.2 2.0.1: merged"
    assert order.views(1, 1, "G")[-1] == order.views(2, 1, "G")[-1]


def test_views_are_numbered_alike_at_nodes_for_which_a_merge_changed_nothing() -> None:
    order = Order(1, 2, 3)
    for node in (1, 2, 3):
        order.machines[node].begin()
        order.regular(8, [node])
    order.machines[1].join(1, "G")
    order.order(1, to=[1])
    order.regular(12, [1, 2, 3])
    for node in (2, 3):
        order.machines[node].join(1, "G")
        order.order(node)
    assert order.views(1, 1, "G")[-1] == order.views(2, 1, "G")[-1] == order.views(3, 1, "G")[-1]


def test_a_state_of_a_configuration_that_ended_says_nothing_in_the_next() -> None:
    order = two_members()
    order.install(12, [1, 2])
    old = order.machines[2].take(ROOM)
    assert old is not None
    order.install(16, [1, 2])
    order.order(1)
    order.deliver(2, old.payloads)
    assert not order.machines[1].settled
    order.order(2)
    assert order.machines[1].settled
    assert order.machines[2].settled


def test_a_node_that_lives_again_has_other_processes() -> None:
    """In a primary partition it may be in the next view under the same name, without a transitional one."""
    order = two_members()
    order.restart(2, 1)
    order.machines[2].begin()
    order.regular(12, [1, 2])
    assert order.members(1, 1, "G")[-1] == "1.0.1: node lost"
    order.machines[2].join(1, "G")
    order.order(2)
    assert order.members(1, 1, "G")[-1] == "1.0.1 2.1.1: joined"


# --- limits ----------------------------------------------------------------------------------------


def test_a_state_goes_in_parts() -> None:
    order = Order(1, 2)
    order.regular(8, [1])
    order.machines[1].begin()
    for number in range(900):
        order.machines[1].join(1, f"group{number}", {"about": "x" * 30})
    order.order(1, to=[1])
    order.install(12, [1, 2])
    parts = order.machines[1].take(ROOM)
    assert parts is not None
    assert len(parts.payloads) > 2
    assert max(map(len, parts.payloads)) < 20_000
    order.order(2)
    order.deliver(1, parts.payloads[1:])
    assert not order.machines[2].settled
    order.deliver(1, parts.payloads[:1])
    assert order.machines[2].settled
    assert len(list(order.machines[2]._table.groups)) == 900


def test_a_member_that_never_tells_is_left_out_before_too_much_is_held_and_let_in_when_it_does() -> None:
    order = Order(1, 2, most_held=1_000)
    order.regular(8, [1, 2])
    for node in (1, 2):
        order.machines[node].begin()
        order.machines[node].join(1, "G")
        order.order(node)
    order.install(12, [1, 2])
    order.order(1)
    for _ in range(20):
        order.deliver(1, [address(1, ["G"]) + b"m" * 30])
    assert order.machines[1].settled
    assert order.machines[2].settled
    assert order.members(1, 1, "G")[-1] == "1.0.1: node lost"
    assert order.left(2) == [Left(1, "G", Cause.LOST)]
    assert len(order.messages(1, 1)) == 20
    assert not order.messages(2, 1)
    assert order.machines[1].stats["left_out"] == 1
    order.order(2)
    assert order.members(1, 1, "G")[-1] == "1.0.1 2.0.1: merged"
    assert order.views(1, 1, "G")[-1] == order.views(2, 1, "G")[-1]


def test_a_state_without_end_is_given_up_and_again_when_its_sender_goes_on() -> None:
    order = Order(1, 2, most_held=1_000)
    order.regular(8, [1])
    order.machines[1].begin()
    order.machines[1].join(1, "G")
    order.order(1, to=[1])
    order.install(12, [1, 2])
    order.order(1)
    for part in range(100):
        order.deliver(2, [written(State(order.here, part, 1_000, ()))])
        gathering = order.machines[1]._gathering
        kept = 0 if gathering is None else sum(map(len, gathering._parts.values()))
        assert kept < 25
    assert order.machines[1].settled
    assert order.machines[1].stats["left_out"] == 1
    assert order.members(1, 1, "G") == ["1.0.1: joined"]


def test_the_queue_of_local_messages_is_bounded_but_leaving_is_always_possible() -> None:
    machine = ProcessGroups(1, 0, queue=300)
    machine.install(Configuration(ConfigurationId(4, 1), Kind.REGULAR, (1,)))
    process = machine.begin()
    machine.join(process, "G")
    machine.send(process, ["G"], b"x" * 50)
    with pytest.raises(QueueFull, match="wait until"):
        machine.send(process, ["G"], b"x" * 100)
    with pytest.raises(QueueFull, match="wait until"):
        machine.join(process, "H", {"about": "x" * 200})
    machine.leave(process, "G")
    machine.end(process)
    assert machine.waiting == 5, "with the state of the configuration"


def test_payloads_that_fit_are_taken_in_order_one_guarantee_at_a_time() -> None:
    order = two_members()
    machine = order.machines[1]
    for body, guarantee in ((b"a", Guarantee.AGREED), (b"b", Guarantee.SAFE), (b"c", Guarantee.SAFE)):
        machine.send(1, ["G"], body, guarantee)
    size = len(address(1, ["G"])) + 1
    assert machine.take(size - 1) is None
    taken = [machine.take(size * 2), machine.take(size), machine.take(size), machine.take(size)]
    assert [each and (each.guarantee, [one[-1:] for one in each.payloads]) for each in taken] == [
        (Guarantee.AGREED, [b"a"]),
        (Guarantee.SAFE, [b"b"]),
        (Guarantee.SAFE, [b"c"]),
        None,
    ]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda machine: machine.join(1, ""), "group's name"),
        (lambda machine: machine.join(1, "x" * 256), "group's name"),
        (lambda machine: machine.join(1, "\ud800"), "group's name"),
        (lambda machine: machine.join(1, "G", {"nick": "x" * 300}), "properties"),
        (lambda machine: machine.join(1, "G", {"nick": 7}), "properties"),
        (lambda machine: machine.join(7, "G"), "no process 7"),
        (lambda machine: machine.leave(1, "G"), "has not joined"),
        (lambda machine: machine.send(1, [], b""), "different groups"),
        (lambda machine: machine.send(1, ["G", "G"], b""), "different groups"),
        (lambda machine: machine.send(7, ["G"], b""), "no process 7"),
        (lambda machine: machine.end(7), "no process 7"),
    ],
)
def test_a_callers_mistake_raises_at_once(wrong: object, words: str) -> None:
    machine = ProcessGroups(1, 0)
    machine.begin()
    assert callable(wrong)
    with pytest.raises(ValueError, match=words):
        wrong(machine)
    assert not machine.waiting


# --- what no right member sends ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x04",
        b"\x04\x00\x00\x00\x00\x00",
        b"\x04\x00\x00\x00\x00\x01",
        b"\x04\x00\x00\x00\x00\x01\x05GG",
        b"\x04\x00\x00\x00\x00\x01\x00",
        b"\x04\x00\x00\x00\x00\x01\x01\xff",
        b"\x04\x00\x00\x00\x00\x02\x01G\x01G",
        b"\x04\x00\x00\x00\x00\x01\x03\x1e\x1e*",
        b"\x06\x00\x00\x00\x00\x00",
        written(Join(1, "\x1e\x1ea..b", {})),
        written(Join(1, "\x1e\x1ea.b", {})),
        written(Again(MessageId(1, 0, 1), "\x1e\x1e>", address(1, ["G"]))),
        written(Again(MessageId(1, 0, 1), "\x1eq\x1e>", b"G")),
        b"\x05",
        b"\x05\xc1",
        b"\x06hello",
        written(End(1))[:-1],
        written(Join(1, "G" * 128, {}))[:-3],
        b"\x05\x93\xa4join\x00\xa1G",
        b"\x05" + b"\x94\xa4join\x01\xa2\xff\xfe\x80",
        written(State(ConfigurationId(12, 1), 3, 2, ())),
    ],
)
def test_a_malformed_payload_is_dropped_and_counted(payload: bytes) -> None:
    order = two_members()
    before = order.story(1, 1)
    order.deliver(2, [payload])
    assert order.machines[1].stats["malformed"] == 1
    assert order.story(1, 1) == before


def test_no_payload_makes_a_machine_raise_and_all_members_agree_on_what_it_means() -> None:
    chance = random.Random("payloads")
    order = two_members()
    real = [written(Join(1, "H", {"a": "b"})), written(End(2)), address(1, ["G", "H"]) + b"m"]
    real.append(written(State(ConfigurationId(12, 1), 0, 1, ())))
    for round_ in range(2_000):
        payload = bytearray(chance.choice(real))
        for _ in range(chance.randrange(4)):
            payload[chance.randrange(len(payload))] = chance.randrange(256)
        cut = (
            bytes(payload[: chance.randrange(len(payload) + 1)]) if chance.random() < 0.3 else bytes(payload)
        )
        order.deliver(chance.choice((1, 2)), [cut, bytes(payload)])
        if round_ % 500 == 499:
            order.install(12 + round_, [1, 2])
            order.order(1)
            order.order(2)
    one, other = (dict(order.machines[node].stats) for node in (1, 2))
    assert one == other
    assert one["malformed"] > 100
    table, same = (order.machines[node]._table for node in (1, 2))
    assert set(table.groups) == set(same.groups)
    assert all(table.same(same, group) for group in table.groups)


def test_a_note_nested_absurdly_deep_is_malformed() -> None:
    """The decoder gives up with a `RecursionError`; nothing of that leaves the machine."""
    assert read(bytes((NOTE,)) + b"\x91" * 100_000) is None
    assert read(bytes((NOTE,)) + b"\x81\x01" * 50_000) is None


def test_parts_of_a_state_fit_into_small_messages() -> None:
    memberships = [Membership(number, "g" * 20, {"nick": "n" * 40}) for number in range(1, 50)]
    parts = list(states(ConfigurationId(8, 1), memberships, 300))
    assert max(map(len, parts)) <= 300
    told = [note for part in parts if isinstance(note := read(part), State)]
    assert [each for state in told for each in state.memberships] == memberships


# --- numbers ---------------------------------------------------------------------------------------


def counting() -> tuple[Order, Callable[[int], list[object]]]:
    """Nodes 1 and 2, of which the second knows of ten messages, and what a node is told of numbers."""
    order = Order()
    for node, counted in ((1, 0), (2, 10)):
        order.machines[node] = ProcessGroups(node, 0, counted=counted, numbers=True)
        order.told[node], order.numbers[node] = [], 0

    def told(node: int) -> list[object]:
        found: list[object] = []
        for output in order.told[node]:
            if isinstance(output, Recounted):
                found.append((output.before, output.base))
            elif isinstance(output, Numbered):
                found.append(output.first)
        return found

    return order, told


def test_a_node_is_told_from_which_number_on_messages_are_counted() -> None:
    order, told = counting()
    order.regular(4, [1])
    order.deliver(1, [address(0, ["G"]) + b"alone"], to=[1])
    order.regular(8, [1, 2])
    order.deliver(1, [address(0, ["G"]) + b"together"])
    order.regular(12, [1, 2])
    order.deliver(1, [address(0, ["G"]) + b"again"])
    assert told(1) == [(0, 0), 1, (1, 10), 11, 12]
    assert told(2) == [(10, 10), 11, 12], "once in a life, and where numbers jump"


def test_what_is_held_is_counted_among_what_was_delivered() -> None:
    order, told = counting()
    order.install(4, [1, 2])
    order.deliver(1, [address(0, ["G"]) + b"early", address(0, ["G"]) + b"too"])
    assert (order.machines[1].counted, order.machines[1].reached) == (0, 2)
    for node in (1, 2):
        order.order(node)
    assert told(1) == [(0, 10), 11]
    assert (order.machines[1].counted, order.machines[1].reached) == (12, 12)


# --- which groups a node needs ---------------------------------------------------------------------


def test_a_node_needs_the_groups_that_its_processes_are_in_or_asked_to_join() -> None:
    order = two_members()
    machine = order.machines[1]
    assert machine.attend() == Attend(frozenset("G"))
    assert machine.attend() is None, "nothing has changed"
    machine.join(1, "H")
    assert machine.attend() == Attend(frozenset("GH"))
    machine.join(machine.begin(), "H")
    assert machine.attend() is None


def test_a_group_is_needed_until_it_is_told_that_its_last_process_left() -> None:
    order = two_members()
    machine = order.machines[1]
    machine.attend()
    machine.leave(1, "G")
    assert machine.attend() is None
    order.order(1)
    assert machine.attend() == Attend(frozenset())


def test_who_leaves_and_joins_again_needs_the_group_all_the_time() -> None:
    order = two_members()
    machine = order.machines[1]
    machine.attend()
    machine.leave(1, "G")
    machine.join(1, "G")
    order.order(1)
    assert machine.attend() is None


def test_the_groups_of_a_process_are_needed_until_its_end_is_ordered() -> None:
    order = two_members()
    machine = order.machines[1]
    machine.join(1, "H")
    order.order(1)
    machine.attend()
    machine.end(1)
    assert machine.attend() is None
    order.order(1)
    assert machine.attend() == Attend(frozenset())


def test_before_the_first_configuration_what_is_left_is_not_needed() -> None:
    machine = ProcessGroups(1, 0)
    first, second = machine.begin(), machine.begin()
    for process in (first, second):
        machine.join(process, "G")
    machine.join(first, "H")
    machine.leave(first, "H")
    machine.end(second)
    assert machine.attend() == Attend(frozenset("G"))
    machine.end(first)
    assert machine.attend() == Attend(frozenset())


@pytest.mark.parametrize(
    ("pattern", "queue", "needed"),
    [("G.*", None, Attend(None)), ("G", "q", Attend(None, shared=True))],
)
def test_patterns_need_everything_and_queues_everywhere(
    pattern: str, queue: str | None, needed: Attend
) -> None:
    machine = ProcessGroups(1, 0)
    machine.join(machine.begin(), subscription(pattern, queue))
    assert machine.attend() == needed


def test_a_node_with_a_log_needs_everything() -> None:
    assert ProcessGroups(1, 0, needs_all=True).attend() == Attend(None)
    assert ProcessGroups(1, 0, numbers=True).attend() == Attend(None)


def test_a_message_without_contents_is_not_delivered_but_counted() -> None:
    """It is for a process here, and all who had its contents are gone."""
    order = two_members()
    order.deliver(1, [withheld(address(1, ["G"]))])
    order.deliver(1, [withheld(address(1, ["elsewhere"]))])
    assert order.messages(2, 1) == []
    assert order.machines[2].stats["withheld"] == 1

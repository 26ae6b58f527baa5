from __future__ import annotations

import pytest

from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind, MessageId
from ordercast.sim.expect import judge, parse_expectation
from ordercast.sim.run_record import RunRecord
from ordercast.sim.world import Change
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import Row

NODES = {"p": 1, "q": 2, "r": 3}
NAMES = {node: name for name, node in NODES.items()}
RING = ConfigurationId(4, 1)


def message(number: int) -> Batch:
    return Batch(RING, number, 0, 1, 0, number, Guarantee.AGREED, (b"",))


def told() -> RunRecord:
    """p and q go from pqr over (pq) to pq; q delivers a b, p delivers b a; r halts, comes back."""
    rows: list[Row] = []
    p, q, r = (Recorder(node, rows, True, bytes.decode) for node in (1, 2, 3))
    for record in (p, q, r):
        record.install(0, Configuration(RING, Kind.REGULAR, (1, 2, 3)))
    for record, order in ((p, (2, 1)), (q, (1, 2))):
        record.deliver(1, message(order[0]))
        record.install(2, Configuration(ConfigurationId(7, 1), Kind.TRANSITIONAL, (1, 2)))
        record.deliver(3, message(order[1]))
        record.install(4, Configuration(ConfigurationId(8, 1), Kind.REGULAR, (1, 2)))
    for number, timestamp in ((1, 5), (2, 7)):
        p.originate(4, message(number)._replace(timestamp=timestamp, ring=1))
    p.packet(5, "packet_sent", b"ack")
    r.halt(5)
    r.restart(6, 1)
    p.packet(6, "packet_sent", b"ack")
    q.packet(6, "packet_received", b"ack")
    r.install(7, Configuration(ConfigurationId(12, 3), Kind.REGULAR, (3,)))
    q.crash(8)
    names = {MessageId(1, 0, 1): "a", MessageId(1, 0, 2): "b"}
    changes = [
        Change(1, 1, "gather", "token lost"),
        Change(2, 1, "commit", "consensus"),
        Change(3, 1, "gather", "token lost"),
        Change(4, 3, "gather", "member left"),
        Change(6, 3, "gather", "started"),
        Change(8, 2, "commit", "consensus"),
    ]
    return RunRecord(rows, names, changes)


def problems(expectation: str) -> list[str]:
    return judge(parse_expectation(expectation, NODES), told(), NAMES, [])


def test_configurations_follow_each_other_directly_but_for_dots() -> None:
    assert problems("p q installs pqr, (pq), pq") == []
    assert problems("p installs (pq), pq") == []
    assert problems("p installs pqr, ..., pq") == []
    assert problems("p installs pqr, ..., (pq), pq, ...") == []
    assert problems("p installs pqr, pq") == ["p installed pqr, (pq), pq"]
    assert problems("p installs pq, (pq)") == ["p installed pqr, (pq), pq"]


def test_a_restart_lies_between_two_lives() -> None:
    assert problems("r installs pqr, r") == ["r installed pqr, restart, r"]
    assert problems("r installs pqr, ..., r") == []
    assert problems("r ends in r") == []
    assert problems("r halts") == []


def test_the_place_of_a_delivery_is_the_configuration_installed_last() -> None:
    assert problems("q delivers a in pqr") == []
    assert problems("q delivers b in (pq)") == []
    assert problems("q delivers b in pqr") == ["q delivered b in (pq)"]


def test_another_order_at_two_nodes_is_named() -> None:
    assert problems("same-order p q") == ["p delivered b where q delivered a"]
    assert problems("same-order p r") == []


def test_timestamps_are_compared_and_told_if_they_are_not_so() -> None:
    assert problems("timestamps a < b") == []
    assert problems("timestamps a = b") == ["of the timestamps, a has 5, b has 7"]
    assert problems("timestamps b < a") == ["of the timestamps, b has 7, a has 5"]
    assert problems("timestamps a < c") == ["of the timestamps, a has 5, c has none"]
    with pytest.raises(ValueError, match="timestamps a < b = c"):
        problems("timestamps a b")


def test_states_are_entered_at_least_so_often() -> None:
    assert problems("p enters gather (2nd)") == []
    assert problems("p enters gather (3rd)") == ["p entered gather 2 times"]


def test_states_are_entered_from_somewhere_and_for_a_reason() -> None:
    assert problems("p enters gather because token lost (2nd)") == []
    assert problems("p enters gather from commit because token lost") == []
    assert problems("p enters commit from gather") == []
    assert problems("p enters gather from commit (2nd)") == [
        "p entered gather so 1 times; it did from nothing because token lost (1), "
        "from commit because token lost (1)"
    ]
    assert problems("p enters recovery because recovered") == [
        "p entered recovery so 0 times; it did not at all"
    ]


def test_a_new_life_comes_from_no_state() -> None:
    found = problems("r enters gather from gather")
    assert found == [
        "r entered gather so 0 times; it did from nothing because member left (1), "
        "from nothing because started (1)"
    ]


def test_packets_are_sent_and_received_at_least_so_often_or_never() -> None:
    assert problems("p sends ack") == []
    assert problems("p sends ack (2nd)") == []
    assert problems("p sends ack (3rd)") == ["p sent ack 2 times"]
    assert problems("p sends ack (2nd) after 6us") == ["p sent ack 1 times"]
    assert problems("q r receives ack") == ["r received ack 0 times"]
    assert problems("q never sends ack") == []
    assert problems("p never sends ack before 5us") == []
    assert problems("p q never receives ack") == ["q received ack 1 times"]


def test_what_one_of_all_has_to_do_any_of_them_may() -> None:
    assert problems("any receives ack") == []
    assert problems("any enters commit from gather because consensus") == []
    assert problems("any receives req") == [f"{name} received req 0 times" for name in "pqr"]


def test_a_node_that_halted_did_not_never_halt() -> None:
    assert problems("p q never halts") == []
    assert problems("p r never halts") == ["r halted 1 times"]


def test_a_node_crashes_in_a_state() -> None:
    assert problems("q crashes in commit") == []
    assert problems("q crashes in gather") == ["q crashed in commit"]
    assert problems("p crashes in commit") == ["p crashed in no state"]


def test_when_a_configuration_is_installed_may_be_bounded() -> None:
    assert problems("p installs (pq), pq after 2us before 5us") == []
    assert problems("p installs pqr after 1us") == ["p installed (pq), pq"]
    assert problems("p installs pq before 4us") == ["p installed pqr, (pq)"]
    assert problems("q delivers b after 3us") == []
    assert problems("q delivers a b before 3us") == ["q never delivered b"]


def test_so_many_configurations_and_no_more() -> None:
    assert problems("p installs at most 3") == []
    assert problems("p installs at most 2 after 1us") == []
    assert problems("r installs at most 1 after 1us") == []
    assert problems("p q installs at most 1 after 1us before 5us") == [
        "p installed 2: (pq), pq, …",
        "q installed 2: (pq), pq, …",
    ]


def test_longer_names_are_shown_apart() -> None:
    nodes = {"north": 1, "south": 2, "r": 3}
    names = {node: name for name, node in nodes.items()}
    found = judge(parse_expectation("north ends in r", nodes), told(), names, [])
    assert found == ["north ended in north south"]

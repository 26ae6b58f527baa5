from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from toy_protocol import FRAGILE, PRODUCT, toy
from toy_sequencer import Sequencer, sequencers

from ordercast.audit.explain import Violation
from ordercast.audit.history import History
from ordercast.core.identity import Guarantee, NodeId
from ordercast.sim.expect import Delivers, Installs
from ordercast.sim.faults import At, Clog, Crash, Partition, Send, When
from ordercast.sim.network import Lan
from ordercast.sim.protocol import LabProtocol
from ordercast.sim.run_record import Membership
from ordercast.sim.scenario import Report, ScenarioError, parse, run
from ordercast.sim.world import MachineFactory

PAIR = {"toy": toy(make=lambda settings: sequencers((1, 2)))}

STORY = """
# a sequencer p, and q that is cut off for a while
nodes p q r
protocol toy
network lan loss=0 tail_us=0
set room=5000
at 1ms p sends a
at 2ms partition p r | q          # q misses b
at 3ms r sends b safe
at 10ms heal
when r enters quiet +1ms crash it
until 200ms
"""


def named(name: str, **changes: Any) -> LabProtocol:
    return toy(PRODUCT._replace(name=name), **changes)


def play(expectations: str, violations: Sequence[Violation] = ()) -> Report:
    def factory(settings: Mapping[str, object]) -> MachineFactory:
        assert settings == {"room": "5000"}

        def make(node: NodeId) -> Sequencer:
            return Sequencer(node, (1, 2, 3), int(str(settings["room"])))

        return make

    def check(history: History) -> list[Violation]:
        assert history.events
        return list(violations)

    return run(parse(STORY + expectations), {"toy": toy(make=factory, checks={"check": check})})


@pytest.mark.parametrize(
    "expectation",
    [
        "p installs pqr",
        "p q r installs p q r",
        "p ends in pqr",
        "p r delivers a b",
        "p q r delivers a",
        "p delivers a b in pqr",
        "q never delivers b",
        "r enters quiet",
        "q enters quiet (2nd)",
        "p sends order (2nd)",
        "q receives order",
        "p q never sends ask",
        "any sends ask",
        "p q r never halts",
        "same-order p q r",
        "clean",
    ],
)
def test_an_expectation_comes_true(expectation: str) -> None:
    report = play(f"expect {expectation}")
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("expectation", "because"),
    [
        ("p installs pqr, (pr)", "p installed pqr"),
        ("p installs ..., (pqr)", "p installed pqr"),
        ("p q ends in (pr)", "p ended in pqr"),
        ("q delivers a b", "q never delivered b"),
        ("r delivers b a", "r delivered in another order: a b"),
        ("r delivers a in (pqr)", "r delivered a in pqr"),
        ("p never delivers a", "p delivered a"),
        ("r enters quiet (2nd)", "r entered quiet 1 times"),
        ("p halts", "p did not halt"),
        ("q sends order", "q sent order 0 times"),
        ("p never sends order", "p sent order 2 times"),
        ("any halts", "r did not halt"),
    ],
)
def test_a_failed_expectation_says_what_happened_instead(expectation: str, because: str) -> None:
    report = play(f"expect {expectation}")
    assert not report.ok
    assert because in report.outcomes[0].problems
    assert "line 13" in str(report.outcomes[0])


def test_clean_fails_with_what_the_auditor_found() -> None:
    report = play("expect clean", violations=[Violation("total-order", (), (), (), "it is broken.")])
    assert report.outcomes[0].problems == ("total-order: it is broken.",)


def test_clean_asks_for_what_the_protocol_promises() -> None:
    def objection(history: History) -> list[Violation]:
        return [Violation("objection", (), (), (), "there is one.")]

    both = {
        "easy": named("easy"),
        "strict": named("strict", checks={"objection": objection}),
    }
    story = "nodes p q r\nprotocol {}\nuntil 1ms\nexpect clean"
    assert run(parse(story.format("easy")), both).ok
    assert not run(parse(story.format("strict")), both).ok


def test_the_first_protocol_runs_where_none_is_named() -> None:
    def refused(settings: Mapping[str, object]) -> MachineFactory:
        raise ValueError("there is no setting room")

    both = {
        "first": named("first"),
        "second": named("second", make=refused),
    }
    assert run(parse("nodes p q r\nuntil 1ms\nexpect p ends in pqr"), both).ok
    with pytest.raises(ScenarioError, match="no setting room"):
        run(parse("nodes p q r\nprotocol second\nuntil 1ms"), both)


def test_a_machine_that_halts_by_itself_comes_back() -> None:
    text = "nodes p q r\nset nodes=3\nat 5ms gone q at q\nat 60ms p sends a\nuntil 90ms\nexpect q halts"
    report = run(parse(f"{text}\nexpect q delivers a"), {"fragile": FRAGILE})
    assert report.ok, str(report)
    assert report.world.hosts[2].incarnation == 1


def test_messages_are_sent_at_a_level_of_resilience() -> None:
    text = "nodes p q r\nat 1ms p sends a k=3\nat 2ms q sends b\nuntil 9ms"
    world = run(parse(text), {"toy": toy()}).world
    assert [row[16] for row in world.rows if row[4] == "submit"] == ["k=3", "agreed"]


def test_a_partition_at_0_is_there_before_the_nodes_start() -> None:
    text = "nodes p q\nat 0ms partition p | q\nat 0ms p sends a\nuntil 5ms\nexpect q never delivers a"
    assert run(parse(text), PAIR).ok


def test_others_start_later_by_restart_in_their_first_life() -> None:
    text = "nodes p q\nstart p\nat 5ms restart q\nat 6ms p sends a\nuntil 9ms\nexpect q delivers a"
    report = run(parse(text), PAIR)
    assert report.ok, str(report)
    assert report.world.hosts[2].incarnation == 0
    assert {row[4] for row in report.world.rows} == {"install", "submit", "deliver"}


def test_a_packet_is_lost_and_another_is_waited_for() -> None:
    text = """
        nodes p q r
        at 0ms lose p -> r order (2nd)
        when p sends order (2nd) +1ms p sends c
        at 1ms p sends a b
        until 9ms
        expect p q delivers a b c
        expect r never delivers b c
    """
    report = run(parse(text), {"toy": toy()})
    assert report.ok, str(report)
    assert not report.world.network.links.planned_losses


def test_load_runs_beside_named_messages() -> None:
    load = "load arrivals=deterministic rate=1000 size=20"
    text = f"nodes p q\n{load}\nat 5ms p sends a*3 size 7\nuntil 20ms\nexpect q delivers a*3"
    report = run(parse(text), PAIR)
    assert report.ok, str(report)
    assert report.world.applications.accepted == 24


def test_statements_become_data() -> None:
    scenario = parse(
        """
        nodes p q r
        network lan loss=0.5
        at 1.5ms crash p after 2 effects
        at 2s r sends a x*3 size 10 safe
        at 3us clog p -> q by 5ms
        when any enters recovery (2nd) before 3s +1ms partition p | q r
        until 3s
        expect q installs pqr, (qr), ..., r
        expect q delivers x*2 in (qr)
        """
    )
    assert scenario.network == Lan(loss=0.5)
    assert scenario.faults == [
        At(1500, Crash(1, 2)),
        At(2_000_000, Send(3, ("a", "x*3"), 10, Guarantee.SAFE)),
        At(3, Clog(1, 2, 5000)),
        When(None, "recovery", Partition(((1,), (2, 3))), 2, 1000, 3_000_000),
    ]
    assert [expectation.what for expectation in scenario.expectations] == [
        Installs(
            (2,), (Membership(False, (1, 2, 3)), Membership(True, (2, 3)), None, Membership(False, (3,)))
        ),
        Delivers((2,), ("x1", "x2"), Membership(True, (2, 3))),
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected 'nodes'"),
        ("nodes p", "expected 'until'"),
        ("until 3s", "line 1: expected 'nodes' with the names of the nodes first"),
        ("nodes p p", "line 1: expected names of nodes, different"),
        ("nodes p any", "found 'any'"),
        ("nodes p\nnodes q", "line 2: the nodes are named already"),
        ("nodes p\nfrobnicate 3", "line 2: expected a statement .*found 'frobnicate'"),
        ("nodes p\nuntil", "line 2: expected something behind 'until'"),
        ("nodes p\nuntil 3", "line 2: expected a time such as 20ms"),
        ("nodes p\nuntil 0.5us", "finer than a microsecond"),
        ("nodes p\nnetwork wifi", "no network 'wifi'; there are lan"),
        ("nodes p\nnetwork lan lag=3", "network lan has no 'lag'; it has"),
        ("nodes p\nnetwork lan loss=much", "network lan: .*loss"),
        ("nodes p\nnetwork lan loss", "expected field=value, found 'loss'"),
        ("nodes p\nload rate=-1", "above 0"),
        ("nodes p\nat 3ms explode p", "line 2: expected an action .*found 'explode'"),
        ("nodes p\nat 3ms", "line 2: expected an action"),
        ("nodes p\nat 3ms crash q", "line 2: no node is called 'q'; there are p"),
        ("nodes p\nat 3ms crash it", "no node is called 'it'"),
        ("nodes p\nat 3ms crash p softly", "to be written like 'crash p, or crash p after 3 effects'"),
        ("nodes p q\nat 3ms cut p q", "written like 'cut p -> q'"),
        ("nodes p q\nat 3ms partition p | p q", "share no node"),
        ("nodes p q\nat 3ms p sends", "names of messages"),
        ("nodes p q\nat 3ms p sends a*x", "expected the name of a message, such as a or"),
        ("nodes p\nwhen p recovers crash p", "written like: when p enters STATE"),
        ("nodes p\nwhen p enters x (two) crash p", "expected 1st, 2nd, 3rd or so, found 'two'"),
        ("nodes p\nwhen p sends x", "written like: when p enters STATE"),
        ("nodes p q\nat 3ms lose p -> q", r"written like 'lose p -> q ack, or lose p -> q ack \(2nd\)'"),
        ("nodes p q\nat 3ms lose p -> q ack (0th)", "expected 1st, 2nd, 3rd or so, found '0th'"),
        ("nodes p\nexpect p explodes", "line 2: expected one of: clean, same-order"),
        ("nodes p\nexpect p never installs p", "p never delivers, halts, sends, receives"),
        ("nodes p\nexpect p never sends ack (2nd)", "p sends ack .2nd., or p never sends ack"),
        ("nodes p\nexpect p sends", "expected something behind 'sends'"),
        ("nodes p\nexpect p installs", "expected something behind 'installs'"),
        ("nodes p\nexpect p installs pz", "no node is called 'z'"),
        ("nodes p q\nexpect p installs ()", "expected a membership"),
        ("nodes p q\nexpect p ends in pp", "twice in 'pp'"),
        ("nodes p\nuntil 1s\nexpect p delivers a", "line 3: nobody sends a message 'a'"),
        ("nodes p\nuntil 1s\nat 0ms p sends a\nat 1ms p sends a", "two messages are called 'a'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_line_and_expectation(text: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        parse(text)


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ScenarioError, match="no protocol 'x'; there are toy"):
        run(parse("nodes p\nprotocol x\nuntil 1s"), PAIR)

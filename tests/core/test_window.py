"""The receive window: what is here, where the gaps are, all-received-up-to (000 §5.1)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ordercast.core.window import ReceiveWindow


def window(*received: int, span: int = 100) -> ReceiveWindow[str]:
    made: ReceiveWindow[str] = ReceiveWindow(span)
    for seq in received:
        assert made.add(seq, f"packet {seq}")
    return made


def test_aru_stands_before_the_first_gap() -> None:
    """000 §5.1: my_aru is a number up to which the processor has received all messages."""
    assert window(1, 2, 4, 5).aru == 2


def test_filling_a_gap_moves_aru_over_everything_behind_it() -> None:
    made = window(1, 3, 4, 6)
    made.add(2, "late")
    assert (made.aru, made.high) == (4, 6)


def test_a_packet_is_kept_once() -> None:
    made = window(1, 3)
    assert not made.add(1, "again")
    assert not made.add(3, "again")
    assert (made.get(1), made.get(3)) == ("packet 1", "packet 3")


def test_a_discarded_packet_does_not_come_back() -> None:
    """000 §5.1: a message that has become safe is discarded; late copies of it are redundant."""
    made = window(1, 2, 3)
    made.discard(2)
    assert not made.add(2, "late copy")
    assert made.get(2) is None
    assert 2 not in made
    assert (len(made), made.discarded) == (1, 2)


@pytest.mark.parametrize(("seq", "kept"), [(-1, False), (0, False), (1, True), (12, True), (13, False)])
def test_only_numbers_within_the_span_are_kept(seq: int, kept: bool) -> None:
    """No correct sender gives out a number further than the span beyond aru, so none is buffered."""
    made = window(2, span=12)
    assert made.add(seq, "packet") is kept
    assert (seq in made) is kept


def test_the_span_moves_with_aru() -> None:
    made = window(1, 2, 3, span=4)
    assert not made.add(8, "packet")
    assert made.add(7, "packet")


def test_missing_names_the_lowest_gaps_within_the_limit() -> None:
    """000 §5.2: a processor augments rtr with the missed messages."""
    made = window(1, 3, 6)
    assert made.missing(8, limit=10) == [2, 4, 5, 7, 8]
    assert made.missing(8, limit=2) == [2, 4]
    assert made.missing(8, limit=0) == []
    assert made.missing(3, limit=10) == [2]


def test_missing_up_to_an_absurd_number_looks_no_further_than_the_limit() -> None:
    assert window(1, 2, 4).missing(2**62, limit=3) == [3, 5, 6]


def test_after_gives_what_is_beyond_a_number_in_order() -> None:
    assert window(5, 1, 3).after(1) == [(3, "packet 3"), (5, "packet 5")]


def test_discarding_what_was_never_received_is_a_defect_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="discarding up to 2, received only up to 1"):
        window(1, 3).discard(2)


def test_discarding_twice_changes_nothing() -> None:
    made = window(1, 2, 3)
    made.discard(2)
    made.discard(1)
    made.discard(2)
    assert (made.discarded, made.after(0)) == (2, [(3, "packet 3")])


SPAN = 12


class WindowAgainstASet(RuleBasedStateMachine):
    """The window, and beside it the plain set of what was received and the mark of what was given up."""

    def __init__(self) -> None:
        super().__init__()
        self.window: ReceiveWindow[int] = ReceiveWindow(SPAN)
        self.received: set[int] = set()
        self.given_up = 0

    @property
    def aru(self) -> int:
        seq = 0
        while seq + 1 in self.received:
            seq += 1
        return seq

    @rule(ahead=st.integers(-20, SPAN + 5))
    def add(self, ahead: int) -> None:
        seq = self.aru + ahead
        fresh = seq not in self.received and 0 < seq <= self.aru + SPAN
        assert self.window.add(seq, -seq) is fresh
        if fresh:
            self.received.add(seq)

    @precondition(lambda self: self.aru > 0)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        upto = data.draw(st.integers(0, self.aru))
        self.window.discard(upto)
        self.given_up = max(self.given_up, upto)

    @rule(ahead=st.integers(-5, 30), limit=st.integers(0, 8))
    def missing(self, ahead: int, limit: int) -> None:
        upto = self.aru + ahead
        gaps = [seq for seq in range(1, upto + 1) if seq not in self.received]
        assert self.window.missing(upto, limit) == gaps[:limit]

    @rule(back=st.integers(-10, 10))
    def after(self, back: int) -> None:
        seq = self.aru + back
        here = sorted(kept for kept in self.received if kept > max(seq, self.given_up))
        assert self.window.after(seq) == [(kept, -kept) for kept in here]

    @invariant()
    def agrees(self) -> None:
        made = self.window
        kept = {seq for seq in self.received if seq > self.given_up}
        assert (made.aru, made.high, made.discarded) == (
            self.aru,
            max(self.received, default=0),
            self.given_up,
        )
        assert len(made) == len(kept) <= made.aru - made.discarded + SPAN
        for seq in range(self.aru + SPAN + 2):
            assert (seq in made) is (seq in kept)
            assert made.get(seq) == (-seq if seq in kept else None)


TestWindowAgainstASet = WindowAgainstASet.TestCase
TestWindowAgainstASet.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)

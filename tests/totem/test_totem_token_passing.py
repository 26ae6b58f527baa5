"""The token between visits: sent again until it is seen to move on (000 §5.2); held on an idle ring."""

from __future__ import annotations

import pytest
from totem_parts import CONFIG, RING, ring, token

from ordercast.core.contract import CancelTimer, Effect, Lane, SetTimer, Unicast
from ordercast.totem.config import TotemConfig
from ordercast.totem.ordering import SOLE_PACKETS, Ring
from ordercast.totem.packets import Hurry
from ordercast.totem.token_passing import (
    HOLD,
    IDLE_FOR_LONG,
    TOKEN_LOSS,
    TOKEN_RETRANSMISSION,
    TokenPassing,
)

LOSS = SetTimer(TOKEN_LOSS, CONFIG.token_loss_us)
RETRANSMISSION = SetTimer(TOKEN_RETRANSMISSION, CONFIG.token_retransmission_us)
HOLDING = SetTimer(HOLD, CONFIG.hold_us)
HURRY = Unicast(1, Hurry(RING).encode())


@pytest.fixture
def passing() -> TokenPassing:
    return TokenPassing(CONFIG)


@pytest.fixture
def effects() -> list[Effect]:
    return []


def visits(passing: TokenPassing, count: int, *, me: int = 1, busy: bool = False) -> list[bool]:
    """So many visits of an idle ring's token; whether it was held at each."""
    return [passing.hold(ring(me=me), token(), busy, []) for _ in range(count)]


def passes(passing: TokenPassing, *, me: int = 1, idle: bool = False) -> bool:
    """The token leaves the node; whether it says that it will be held."""
    visiting = token()
    visiting.idle = idle
    passing.pass_on(0, ring(me=me), visiting, 0, True, 0, [])
    return visiting.idle


# --- sent ---------------------------------------------------------------------------------------


def test_a_forwarded_token_is_watched_by_two_timers(passing: TokenPassing, effects: list[Effect]) -> None:
    """000 §5.2: each time a processor forwards the token, it sets a Token Retransmission timeout."""
    passing.send(0, 2, b"token", effects)
    assert effects == [Unicast(2, b"token", Lane.TOKEN), LOSS, RETRANSMISSION]
    assert passing.awaiting_sign


def test_the_regular_token_goes_to_the_successor_and_is_counted(
    passing: TokenPassing, effects: list[Effect]
) -> None:
    """000 §5.2: if the token is accepted, the processor increments token_seq."""
    made, visiting = ring(me=3), token(token_seq=7, seq=5)
    passing.pass_on(0, made, visiting, 4, True, 0, effects)
    assert effects == [Unicast(1, visiting.encode(), Lane.TOKEN), LOSS, RETRANSMISSION]
    assert (visiting.token_seq, made.token_seq, made.forwarded_seq, made.arrived_seq) == (8, 8, 5, 4)


def test_in_gather_the_token_is_passed_on_without_timers(
    passing: TokenPassing, effects: list[Effect]
) -> None:
    """000 Fig. 4: there, the Token Loss timeout waits for the Commit token."""
    visiting = token()
    passing.pass_on(0, ring(), visiting, 0, False, 0, effects)
    assert effects == [Unicast(2, visiting.encode(), Lane.TOKEN)]
    assert not passing.awaiting_sign


def test_alone_there_is_nobody_to_pass_the_token_to(passing: TokenPassing, effects: list[Effect]) -> None:
    made, visiting = ring(members=(1,)), token(token_seq=7)
    passing.pass_on(0, made, visiting, 0, True, 0, effects)
    assert effects == []
    assert (made.token_seq, passing.awaiting_sign) == (8, False)


def test_a_sign_that_the_token_moved_on_cancels_its_retransmission_once(
    passing: TokenPassing, effects: list[Effect]
) -> None:
    """000 §5.2: if a processor receives a regular message or the token, it cancels the timeout."""
    passing.send(0, 2, b"token", [])
    passing.moved(0, effects)
    passing.moved(0, effects)
    assert effects == [CancelTimer(TOKEN_RETRANSMISSION)]
    assert not passing.awaiting_sign


def test_without_a_sign_the_token_is_sent_again_and_again(
    passing: TokenPassing, effects: list[Effect]
) -> None:
    """000 §5.2: on the timeout, the processor retransmits the token and then resets the timeout."""
    passing.send(0, 2, b"token", [])
    passing.resend(effects)
    passing.resend(effects)
    assert effects == [Unicast(2, b"token", Lane.TOKEN), RETRANSMISSION] * 2


def test_a_token_that_moved_on_is_not_sent_again(passing: TokenPassing, effects: list[Effect]) -> None:
    passing.send(0, 2, b"token", [])
    passing.moved(0, [])
    passing.resend(effects)
    assert effects == []


def test_of_two_tokens_sent_the_later_is_sent_again(passing: TokenPassing, effects: list[Effect]) -> None:
    passing.send(0, 2, b"first", [])
    passing.send(0, 2, b"second", [])
    passing.resend(effects)
    assert effects[0] == Unicast(2, b"second", Lane.TOKEN)


def test_with_the_ring_its_token_is_given_up(passing: TokenPassing, effects: list[Effect]) -> None:
    """000 Fig. 7, Shift_to_Gather: cancel Token Loss timeout and Token Retransmission timeouts."""
    passing.send(0, 2, b"token", [])
    visits(passing, CONFIG.idle_rotations + 1)
    assert passes(passing)
    passing.give_up(effects)
    assert effects == [CancelTimer(TOKEN_LOSS), CancelTimer(TOKEN_RETRANSMISSION), CancelTimer(HOLD)]
    effects.clear()
    passing.resend(effects)
    passing.ask_to_hurry(ring(me=2), effects)
    assert passing.release(effects) is None
    assert effects == []
    assert visits(passing, CONFIG.idle_rotations + 1) == [False] * CONFIG.idle_rotations + [True]


# --- held ---------------------------------------------------------------------------------------


def test_the_representative_holds_the_token_of_a_ring_that_stays_idle(
    passing: TokenPassing, effects: list[Effect]
) -> None:
    assert visits(passing, CONFIG.idle_rotations) == [False] * CONFIG.idle_rotations
    idle = token()
    assert passing.hold(ring(), idle, False, effects)
    assert effects == [CancelTimer(TOKEN_RETRANSMISSION), HOLDING]
    effects.clear()
    assert passing.release(effects) is idle
    assert effects == [CancelTimer(HOLD)]
    assert passing.release(effects) is None
    assert visits(passing, 1) == [True], "an idle ring's token is held at every further rotation"


def test_other_members_do_not_hold_the_token(passing: TokenPassing) -> None:
    assert not any(visits(passing, 10, me=2))


def test_holding_can_be_turned_off() -> None:
    assert not any(visits(TokenPassing(TotemConfig(hold_us=0)), 10))


def test_a_representative_with_something_to_send_does_not_hold_the_token(passing: TokenPassing) -> None:
    visits(passing, CONFIG.idle_rotations)
    assert visits(passing, 1, busy=True) == [False]
    assert visits(passing, CONFIG.idle_rotations) == [False] * CONFIG.idle_rotations


def test_a_token_that_brings_news_is_not_held(passing: TokenPassing) -> None:
    """Held is only what is quiet: nothing broadcast, nothing missing, nothing waiting."""
    visits(passing, CONFIG.idle_rotations)
    assert not passing.hold(ring(), token(seq=1), False, [])
    assert visits(passing, CONFIG.idle_rotations) == [False] * CONFIG.idle_rotations


def test_a_token_that_is_hurried_is_not_held_at_its_next_visit(passing: TokenPassing) -> None:
    visits(passing, CONFIG.idle_rotations)
    passing.hurry()
    assert visits(passing, CONFIG.idle_rotations + 2) == [False] * (CONFIG.idle_rotations + 1) + [True]


# --- the others are told ------------------------------------------------------------------------


def test_the_token_says_whether_it_will_be_held_next_time(passing: TokenPassing) -> None:
    marks = []
    for _ in range(CONFIG.idle_rotations + 1):
        passing.hold(ring(), token(), False, [])
        marks.append(passes(passing))
    assert marks == [False] * (CONFIG.idle_rotations - 1) + [True, True]


def sends(passing: TokenPassing, made: Ring, seq: int, arrived: int) -> bool:
    """The token leaves with packets up to `seq`, after others sent up to `arrived`; whether it is marked."""
    leaving = token(seq=seq, aru=seq)
    passing.hold(made, leaving, True, [])
    passing.pass_on(0, made, leaving, arrived, True, 0, [])
    return leaving.idle


def comes_back(passing: TokenPassing, made: Ring, seq: int) -> tuple[bool, bool]:
    """The token comes back with nothing new; whether it is held, and whether it leaves with the mark."""
    back = token(seq=seq, aru=seq)
    held = passing.hold(made, back, False, [])
    if not held:
        passing.pass_on(0, made, back, seq, True, 0, [])
    return held, back.idle


def test_the_only_sender_holds_the_token_once_all_know_that_all_have_everything(
    passing: TokenPassing,
) -> None:
    """The next rotation tells the representative that all have what it sent, and the one after tells all."""
    made = ring()
    assert not sends(passing, made, SOLE_PACKETS, 0)
    assert comes_back(passing, made, SOLE_PACKETS) == (False, True)
    assert comes_back(passing, made, SOLE_PACKETS)[0]
    passing.release([])
    assert not sends(passing, made, SOLE_PACKETS + 1, SOLE_PACKETS)
    assert comes_back(passing, made, SOLE_PACKETS + 1) == (False, True)
    assert comes_back(passing, made, SOLE_PACKETS + 1)[0]


def test_where_others_send_too_the_token_goes_round_for_a_while(passing: TokenPassing) -> None:
    made = ring()
    sends(passing, made, 100, 100 - SOLE_PACKETS + 1)
    assert not any(comes_back(passing, made, 100)[0] for _ in range(CONFIG.idle_rotations + 1))
    assert comes_back(passing, made, 100)[0]


def test_the_token_is_not_held_before_the_others_were_told(passing: TokenPassing) -> None:
    """When it left last, somebody had something to send: it had no mark, and nobody would say hurry."""
    made = ring()
    sends(passing, made, SOLE_PACKETS, 0)
    busy = token(seq=SOLE_PACKETS, aru=SOLE_PACKETS)
    busy.backlog = 1
    assert not passing.hold(made, busy, False, [])
    passing.pass_on(0, made, busy, SOLE_PACKETS, True, 0, [])
    assert not busy.idle
    assert comes_back(passing, made, SOLE_PACKETS) == (False, True)
    assert comes_back(passing, made, SOLE_PACKETS)[0]


def test_a_token_that_leaves_with_something_new_will_not_be_held(passing: TokenPassing) -> None:
    made = ring()
    visits(passing, CONFIG.idle_rotations + 1)
    released = passing.release([])
    assert released is not None
    released.seq = released.aru = 1
    passing.pass_on(0, made, released, 0, True, 0, [])
    assert not released.idle


def test_the_mark_is_taken_off_when_something_comes_up(passing: TokenPassing) -> None:
    visits(passing, CONFIG.idle_rotations + 1)
    visits(passing, 1, busy=True)
    assert not passes(passing, idle=True)


def test_other_members_leave_the_mark_as_it_is(passing: TokenPassing) -> None:
    assert passes(passing, me=2, idle=True)
    assert not passes(passing, me=2, idle=False)


def test_who_has_something_to_send_wakes_the_representative_once(
    passing: TokenPassing, effects: list[Effect]
) -> None:
    passes(passing, me=2, idle=True)
    passing.ask_to_hurry(ring(me=2), effects)
    passing.ask_to_hurry(ring(me=2), effects)
    assert effects == [HURRY]
    passes(passing, me=2, idle=True)
    passing.ask_to_hurry(ring(me=2), effects)
    assert effects == [HURRY, HURRY]


def test_a_token_on_its_way_needs_no_hurry(passing: TokenPassing, effects: list[Effect]) -> None:
    passes(passing, me=2)
    passing.ask_to_hurry(ring(me=2), effects)
    assert effects == []


def test_the_representative_does_not_write_to_itself(passing: TokenPassing, effects: list[Effect]) -> None:
    visits(passing, CONFIG.idle_rotations)
    assert passes(passing)
    passing.ask_to_hurry(ring(), effects)
    assert effects == []
    assert visits(passing, 1, busy=True) == [False], "it sees at the token's next visit that it is busy"


# --- idle for long ------------------------------------------------------------------------------

LONG = TotemConfig(hold_us=10_000, long_hold_us=150_000, idle_rotations=1)


def rounds(count: int, *, me: int = 1, merge: tuple[int, ...] = ()) -> TokenPassing:
    """A member of a ring whose token was to be held so many times in a row."""
    passing = TokenPassing(LONG)
    for _ in range(count):
        idle_token(passing, me=me, merge=merge)
    return passing


def idle_token(passing: TokenPassing, *, me: int = 1, merge: tuple[int, ...] = ()) -> dict[str, int]:
    """The token comes, is held by the representative, and passed on; how long timers were set to."""
    effects: list[Effect] = []
    visiting = token()
    visiting.idle, visiting.merge = True, merge
    passing.hold(ring(me=me), visiting, False, effects)
    passing.release([])
    passing.pass_on(0, ring(me=me), visiting, 0, True, 0, effects)
    return {effect.name: effect.delay_us for effect in effects if isinstance(effect, SetTimer)}


def test_a_ring_that_has_been_idle_for_long_holds_its_token_for_longer() -> None:
    before, after = rounds(IDLE_FOR_LONG - 1), rounds(IDLE_FOR_LONG + 1)
    assert idle_token(before)[HOLD] == LONG.hold_us
    assert idle_token(after)[HOLD] == LONG.long_hold_us


def test_its_members_wait_for_it_for_longer_by_as_much_and_send_it_again_later() -> None:
    usual, for_long = idle_token(rounds(1, me=2), me=2), idle_token(rounds(IDLE_FOR_LONG, me=2), me=2)
    longer_us = LONG.long_hold_us - LONG.hold_us
    assert {name: for_long[name] - us for name, us in usual.items()} == {
        TOKEN_LOSS: longer_us,
        TOKEN_RETRANSMISSION: longer_us,
    }


@pytest.mark.parametrize("me", [1, 2])
def test_a_token_that_is_not_to_be_held_ends_that(me: int) -> None:
    passing = rounds(IDLE_FOR_LONG, me=me)
    passing.hurry()
    passing.pass_on(0, ring(me=me), token(), 0, True, 0, [])
    effects: list[Effect] = []
    passing.pass_on(0, ring(me=me), token(), 0, True, 0, effects)
    assert SetTimer(TOKEN_LOSS, LONG.token_loss_us) in effects


def test_while_rings_are_about_to_merge_the_token_is_held_for_no_longer_than_usual() -> None:
    assert idle_token(rounds(IDLE_FOR_LONG + 1, merge=(7,)))[HOLD] == LONG.hold_us


def test_who_holds_nothing_holds_nothing_for_longer() -> None:
    passing = TokenPassing(TotemConfig(hold_us=0, long_hold_us=150_000))
    for _ in range(IDLE_FOR_LONG + 1):
        timers = idle_token(passing, me=2)
    assert timers[TOKEN_LOSS] == TotemConfig().token_loss_us

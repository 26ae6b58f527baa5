"""Recovery (000 §7): the old ring's messages are exchanged on the new one, then accounts are settled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from totem_parts import CONFIG, data, delivered, examples, ring, story, token

from ordercast.core.contract import Deliver, Effect, Install
from ordercast.core.identity import Configuration, ConfigurationId, Ended, Kind
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import (
    CONTINUED,
    Commit,
    Data,
    Entry,
    Recovered,
    Token,
    decode,
    encode_recovered,
)
from ordercast.totem.recovery import Exchange, Obligations, settle, transitional

OLD = ConfigurationId(8, 1)
OTHER = ConfigurationId(4, 7)
NEW = ConfigurationId(12, 1)


def old_ring(*seqs: int, me: int = 1, members: tuple[int, ...] = (1, 2, 3)) -> Ring:
    return ring(*(data(seq, ring=OLD) for seq in seqs), me=me, members=members, id=OLD)


def entry(node: int, aru: int = 0, high: int = 0, *, old: ConfigurationId = OLD, flg: bool = False) -> Entry:
    return Entry(node, old, aru, high, flg, CONFIG.limits)


def exchange(old: Ring, *entries: Entry, obligations: Obligations | None = None) -> Exchange:
    """An attempt at a new ring with the members of these entries, as the old ring's node sees it."""
    members = tuple(line.node for line in entries)
    commit = Commit(NEW, members, 2 * len(members), entries)
    return Exchange(Ring(NEW, members, old.me, CONFIG), old, commit, obligations or Obligations())


def retransmitted(made: Exchange) -> list[int]:
    """The old sequence numbers that this node would broadcast, in order."""
    return [broadcast(made, place + 1).old.seq for place in range(made.backlog)]


def broadcast(made: Exchange, seq: int) -> Recovered:
    packet = made.next_packet(made.ring, seq, 1, [])
    assert packet is not None
    return packet


# --- the beginning (Fig. 7, Shift_to_Recovery) --------------------------------------------------


def test_who_comes_from_my_old_ring_is_in_my_transitional_configuration() -> None:
    """000 §7.1: my_trans_memb: those that are transitioning from my old ring to the new one."""
    made = exchange(old_ring(), entry(1), entry(3), entry(7, old=OTHER))
    assert made.trans_memb == (1, 3)


def test_everything_beyond_the_lowest_aru_is_retransmitted_in_order() -> None:
    """000 §7.2: ... every message that it has received and that is beyond the lowest my_aru."""
    made = exchange(old_ring(1, 2, 3, 6, 5), entry(1, aru=3), entry(2, aru=2), entry(7, aru=0, old=OTHER))
    assert made.backlog == 3
    assert retransmitted(made) == [3, 5, 6]


def test_a_retransmission_is_an_envelope_with_a_place_on_the_new_ring() -> None:
    """000 §7.2: broadcast with a new ring identifier, it encapsulates the old ring message."""
    made = exchange(old_ring(1), entry(1, aru=1), entry(2))
    sent = broadcast(made, 9)
    assert sent == encode_recovered(NEW, 9, 1, data(1, ring=OLD))
    assert decode(sent.raw) == sent
    assert made.next_packet(made.ring, 10, 1, []) is None


def test_the_duty_is_to_deliver_for_all_of_them_what_any_of_them_delivered() -> None:
    """000 Fig. 7: my_deliver_memb := my_trans_memb, high_ring_delivered := the highest delivered."""
    obligations = Obligations()
    exchange(old_ring(), entry(1, 5, 2), entry(2, 5, 4), entry(7, 9, 9, old=OTHER), obligations=obligations)
    assert (obligations.deliver_memb, obligations.high_ring_delivered, obligations.received_flg) == (
        frozenset({1, 2}),
        4,
        False,
    )


def test_when_all_have_received_everything_the_earlier_duty_stands() -> None:
    """000 §7.2: if received_flg is set for all of my_trans_memb, it must retain my_deliver_memb."""
    obligations = Obligations()
    obligations.received_flg = True
    obligations.deliver_memb = frozenset({1, 2, 3})
    obligations.high_ring_delivered = 3
    made = exchange(
        old_ring(1, 2, 3, 4), entry(1, 4, 3, flg=True), entry(2, 4, 2, flg=True), obligations=obligations
    )
    assert (obligations.deliver_memb, obligations.high_ring_delivered, obligations.received_flg) == (
        frozenset({1, 2, 3}),
        3,
        True,
    )
    assert made.backlog == 0
    assert made.trans_memb == (1, 2)


def test_when_somebody_lacks_messages_the_duty_starts_afresh() -> None:
    """000 Fig. 7: if for some processor in my_trans_memb received_flg = false."""
    obligations = Obligations()
    obligations.received_flg = True
    obligations.deliver_memb = frozenset({1, 2, 3})
    made = exchange(old_ring(1, 2), entry(1, 2, flg=True), entry(2, 1), obligations=obligations)
    assert (obligations.deliver_memb, obligations.received_flg) == (frozenset({1, 2}), False)
    assert made.backlog == 1


# --- retransmissions of others (Fig. 6, regular message received) -------------------------------


def recovered(seq: int, old_seq: int, old: ConfigurationId = OLD) -> Recovered:
    return encode_recovered(NEW, seq, 2, data(old_seq, ring=old))


def test_an_old_message_that_was_missing_is_kept() -> None:
    """000 Fig. 6: if retransmitted message from my old ring, add to receive_message_queue for old ring."""
    old = old_ring(1, 3)
    made = exchange(old, entry(1, 1), entry(2, 3))
    made.receive(recovered(1, 2))
    assert (old.window.aru, old.window.get(2)) == (3, data(2, ring=OLD))


def test_what_another_has_retransmitted_need_not_be_retransmitted_by_me() -> None:
    """000 Fig. 6: remove message from retrans_message_queue for old ring."""
    made = exchange(old_ring(1, 2, 3), entry(1, 3), entry(2, 0))
    made.receive(recovered(1, 2))
    assert retransmitted(made) == [1, 3]


def test_messages_of_other_old_rings_do_not_concern_me() -> None:
    """000 §7.2: they are not delivered by any processor that was not a member of the old ring."""
    old = old_ring(1)
    made = exchange(old, entry(1, 1), entry(2, 0), entry(7, old=OTHER))
    made.receive(recovered(1, 1, OTHER))
    made.receive(recovered(2, 2, ConfigurationId(OLD.seq, OTHER.rep)))
    made.receive(recovered(3, 3, ConfigurationId(OTHER.seq, OLD.rep)))
    assert (len(old.window), made.backlog) == (1, 1)


# --- the end (Fig. 6, before forwarding) --------------------------------------------------------


def test_who_has_retransmissions_left_raises_the_flag_and_lowers_it_when_done() -> None:
    """000 §7.1: retrans_flg tells whether there are old ring messages that must be rebroadcast."""
    made = exchange(old_ring(1), entry(1, 1), entry(2, 0))
    visiting = token(ring=NEW)
    made.update(visiting)
    assert visiting.retrans_flg
    made.update(visiting)
    assert visiting.retrans_flg
    broadcast(made, 1)
    made.update(visiting)
    assert not visiting.retrans_flg


def test_the_flag_of_another_is_left_alone() -> None:
    """000 Fig. 6: else if token.retrans_flg = true and I set it."""
    made = exchange(old_ring(1), entry(1, 1), entry(2, 0))
    visiting = token(ring=NEW, retrans_flg=True)
    made.update(visiting)
    broadcast(made, 1)
    made.update(visiting)
    assert visiting.retrans_flg
    done = exchange(old_ring(), entry(1), entry(2))
    done.update(visiting)
    assert visiting.retrans_flg


def test_the_flag_is_lowered_once_by_who_raised_it() -> None:
    made = exchange(old_ring(1), entry(1, 1), entry(2, 0))
    visiting = token(ring=NEW)
    made.update(visiting)
    broadcast(made, 1)
    made.update(visiting)
    visiting.retrans_flg = True  # raised by another, later
    made.update(visiting)
    assert visiting.retrans_flg


def quiet_visits(made: Exchange, count: int, seq: int = 0) -> None:
    for _ in range(count):
        made.update(token(ring=NEW, seq=seq))


def test_after_two_quiet_visits_all_old_messages_are_here() -> None:
    """000 Fig. 6: my_retrans_flg_count ≥ 2 and my_aru ≥ my_install_seq: my_received_flg := true."""
    obligations = Obligations()
    made = exchange(old_ring(), entry(1), entry(2), obligations=obligations)
    quiet_visits(made, 1)
    assert not obligations.received_flg
    quiet_visits(made, 1)
    assert obligations.received_flg


def test_not_before_everything_up_to_the_install_seq_is_here() -> None:
    obligations = Obligations()
    made = exchange(old_ring(), entry(1), entry(2), obligations=obligations)
    quiet_visits(made, 3, seq=1)
    assert not obligations.received_flg
    made.ring.window.add(1, recovered(1, 5))
    quiet_visits(made, 1, seq=1)
    assert obligations.received_flg


def test_a_raised_flag_starts_the_count_again() -> None:
    """000 Fig. 6: else my_retrans_flg_count := 0."""
    obligations = Obligations()
    made = exchange(old_ring(), entry(1), entry(2), obligations=obligations)
    quiet_visits(made, 1)
    made.update(token(ring=NEW, retrans_flg=True))
    quiet_visits(made, 1)
    assert not obligations.received_flg
    quiet_visits(made, 1)
    assert obligations.received_flg


def test_it_is_complete_when_everyone_is_known_to_have_everything() -> None:
    """000 Fig. 6: my_retrans_flg_count ≥ 3 and token.aru ≥ my_install_seq on last two rotations."""
    made = exchange(old_ring(), entry(1), entry(2))
    made.ring.window.add(1, recovered(1, 5))
    quiet_visits(made, 2, seq=1)
    made.ring.safe = 1
    assert not made.complete
    made.ring.safe = 0
    quiet_visits(made, 1, seq=1)
    assert not made.complete
    made.ring.safe = 1
    assert made.complete


def test_the_install_seq_is_that_of_the_second_quiet_visit() -> None:
    """000 §7.1: the highest new ring number of any old ring message; later ones are new messages."""
    made = exchange(old_ring(), entry(1), entry(2))
    quiet_visits(made, 2, seq=1)
    quiet_visits(made, 1, seq=7)
    made.ring.safe = 1
    assert made.complete


# --- settling (§7.2, steps 2 to 5) --------------------------------------------------------------


def settled(made: Exchange, old: Ring, obligations: Obligations) -> list[bytes | Configuration]:
    effects: list[Effect] = []
    settle(made, old, obligations, effects)
    return story(effects)


BETWEEN = Configuration(ConfigurationId(10, 1), Kind.TRANSITIONAL, (1, 2))
AFTER = Configuration(NEW, Kind.REGULAR, (1, 2, 7))


def test_the_two_configuration_changes_separate_the_guarantees() -> None:
    """000 §7.2: steps 2 to 5: old ring, transitional configuration, the rest, new configuration."""
    packets = [
        data(1, ring=OLD),
        data(2, ring=OLD, safe=True),
        data(3, ring=OLD, safe=True),
        data(4, ring=OLD),
        data(5, ring=OLD, origin=3),
        data(7, ring=OLD, origin=1),
        data(8, ring=OLD, origin=3),
    ]
    old = ring(*packets, id=OLD)
    obligations = Obligations()
    made = exchange(old, entry(1, 5, 1), entry(2, 5, 2), entry(7, old=OTHER), obligations=obligations)
    assert settled(made, old, obligations) == [b"1", b"2", BETWEEN, b"3", b"4", b"5", b"7", AFTER]


def changes(made: Exchange, old: Ring, obligations: Obligations) -> list[Ended | None]:
    effects: list[Effect] = []
    settle(made, old, obligations, effects)
    return [effect.ended for effect in effects if isinstance(effect, Install)]


def test_each_change_names_what_it_ends_and_the_last_message_before_it() -> None:
    """000 §6.1: the largest sequence number of a message delivered in the preceding regular configuration."""
    packets = [
        data(1, ring=OLD),
        data(2, ring=OLD, safe=True),
        data(3, ring=OLD),
        data(5, ring=OLD, origin=1),
    ]
    old = ring(*packets, id=OLD)
    obligations = Obligations()
    made = exchange(old, entry(1, 3, 1), entry(2, 3, 1), entry(7, old=OTHER), obligations=obligations)
    assert changes(made, old, obligations) == [Ended(OLD, 1), Ended(BETWEEN.id, 5)]


def test_a_configuration_without_a_message_ends_at_place_0() -> None:
    old, obligations = old_ring(), Obligations()
    made = exchange(old, entry(1), entry(2), entry(7, old=OTHER), obligations=obligations)
    assert changes(made, old, obligations) == [Ended(OLD, 0), Ended(BETWEEN.id, 0)]


def test_packets_in_which_no_message_ends_are_no_places() -> None:
    """The middle of a large message is not shown to the application: it is nowhere in its order."""
    begun = data(2, ring=OLD, flags=CONTINUED)
    old = ring(data(1, ring=OLD), begun, id=OLD)
    obligations = Obligations()
    made = exchange(old, entry(1, 2, 2), entry(2, 2, 2), entry(7, old=OTHER), obligations=obligations)
    assert changes(made, old, obligations) == [Ended(OLD, 1), Ended(BETWEEN.id, 1)]


def test_what_some_member_delivered_as_safe_is_delivered_on_the_old_ring() -> None:
    """000 §7.2: including all messages with old ring numbers ≤ high_ring_delivered."""
    old = ring(data(1, ring=OLD, safe=True), data(2, ring=OLD, safe=True), id=OLD)
    obligations = Obligations()
    made = exchange(old, entry(1, 2), entry(2, 2, 2), entry(7, old=OTHER), obligations=obligations)
    assert settled(made, old, obligations) == [b"1", b"2", BETWEEN, AFTER]


def test_messages_behind_a_gap_of_nodes_left_behind_are_not_delivered() -> None:
    """000 §7.2: such messages follow a gap; delivering them might violate causality."""
    old = ring(data(1, ring=OLD), data(3, ring=OLD, origin=3), data(4, ring=OLD, origin=2), id=OLD)
    obligations = Obligations()
    made = exchange(old, entry(1, 1, 1), entry(2, 1, 1), entry(7, old=OTHER), obligations=obligations)
    assert settled(made, old, obligations) == [b"1", BETWEEN, b"4", AFTER]


def test_after_failed_attempts_those_who_were_in_the_first_are_still_delivered_for() -> None:
    """000 §7.2: it must deliver the message in the transitional configuration of the ring it installs."""
    old = ring(data(1, ring=OLD, origin=3, safe=True), id=OLD)
    obligations = Obligations()
    first = exchange(old, entry(1, 1), entry(2, 1), entry(3, 1), obligations=obligations)
    first.receive(recovered(1, 1))
    retransmitted(first)
    quiet_visits(first, 2)
    assert obligations.received_flg
    second = exchange(
        old, entry(1, 1, flg=True), entry(2, 1, flg=True), entry(7, old=OTHER), obligations=obligations
    )
    assert settled(second, old, obligations) == [BETWEEN, b"1", AFTER]


def test_without_a_message_that_a_member_says_it_delivered_nothing_is_settled() -> None:
    """An entry of the Commit token may be wrong: the attempt is not sound, and leaves no obligation."""
    old = old_ring(1)
    obligations = Obligations()
    made = exchange(old, entry(1, 1), entry(2, 2, 2), obligations=obligations)
    assert not made.sound
    for _ in range(4):
        made.update(Token(NEW))
    assert made.complete
    assert not obligations.received_flg
    alone = exchange(old, entry(1, 1), obligations=obligations)
    assert alone.sound
    settle(alone, old, obligations, [])


def test_a_flag_that_nobody_set_does_not_hold_a_recovery_up_for_ever() -> None:
    """Who has something left to retransmit broadcasts it: if nobody does, the flag is wrong."""
    made = exchange(old_ring(1), entry(1, 1), entry(2, 1))
    flags = []
    for _ in range(5):
        token = Token(NEW, retrans_flg=True)
        made.update(token, still=True)
        flags.append(token.retrans_flg)
    assert flags == [True, True, True, False, False]
    token = Token(NEW, retrans_flg=True)
    made.update(token, still=False)
    assert token.retrans_flg


def test_a_transitional_configuration_has_a_number_of_its_own_and_a_member_as_representative() -> None:
    """000 §6.2.2: the number two less than that of the new ring; members from the same old ring."""
    assert transitional(NEW, (3, 5)) == Configuration(ConfigurationId(10, 3), Kind.TRANSITIONAL, (3, 5))
    numbers = {(NEW.seq - 2, 3), (NEW.seq + 4 - 2, 3), (NEW.seq, 3), (NEW.seq + 4, 3)}
    assert len(numbers) == 4


def test_messages_recovered_before_the_old_ring_was_installed_never_have_to_be_recovered_again() -> None:
    """000 Fig. 6: a ring is installed only when all its members have every recovered message.

    An entry that says otherwise is wrong.
    """
    old = ring(id=OLD)
    old.window.add(1, encode_recovered(OLD, 1, 2, data(1, ring=OTHER)))
    old.window.add(2, data(2, ring=OLD))
    assert exchange(old, entry(1, 2), entry(2, 0)).backlog == 1


# --- a whole recovery ---------------------------------------------------------------------------

MESSAGES = 8


class Attempt:
    """Members of two old rings exchange messages on a new ring, over a medium that loses packets."""

    def __init__(self, olds: dict[int, Ring]) -> None:
        self.olds = olds
        self.before = {node: list[Effect]() for node in olds}
        for node, old in olds.items():
            old.deliver(self.before[node])
        members = tuple(sorted(olds))
        entries = tuple(
            Entry(node, olds[node].id, olds[node].window.aru, olds[node].delivered, False, CONFIG.limits)
            for node in members
        )
        commit = Commit(ConfigurationId(40, members[0]), members, 2 * len(members), entries)
        self.owed = {node: Obligations() for node in members}
        self.exchanges = {
            node: Exchange(Ring(commit.ring, members, node, CONFIG), olds[node], commit, self.owed[node])
            for node in members
        }
        self.token = token(ring=commit.ring)

    def broadcast(self, raw: bytes, lost: set[int]) -> None:
        packet = decode(raw)
        assert isinstance(packet, Recovered)
        for node, made in self.exchanges.items():
            if node not in lost and made.ring.window.add(packet.seq, packet):
                made.receive(packet)

    def visit(self, node: int, lost: set[int], most: int) -> None:
        """One visit of the token in Recovery (Fig. 6)."""
        made, visiting = self.exchanges[node], self.token
        arrived_seq = visiting.seq
        for raw in made.ring.answer(visiting):
            self.broadcast(raw, lost)
        for _ in range(min(most, made.backlog)):
            visiting.seq += 1
            packet = broadcast(made, visiting.seq)
            made.ring.window.add(visiting.seq, packet)
            self.broadcast(packet.raw, lost)
        made.ring.update_aru(visiting)
        made.ring.request(visiting)
        made.update(visiting)
        made.ring.forward(visiting, arrived_seq)


@st.composite
def held(draw: st.DrawFn) -> tuple[dict[int, Ring], dict[int, set[int]]]:
    """Two old rings, {1, 2, 3, 4} and {5, 6}, of which all but 4 come to the new one; and who has what.

    A sender has its own messages. What aru has passed somewhere as delivered is not missing elsewhere
    among those who had it safe; here nothing is safe yet, so that anything may be missing anywhere.
    """
    olds: dict[int, Ring] = {}
    holdings: dict[int, set[int]] = {}
    for members, id in (((1, 2, 3, 4), ConfigurationId(32, 1)), ((5, 6), ConfigurationId(28, 5))):
        origins = draw(st.lists(st.sampled_from(members), max_size=MESSAGES))
        safe = draw(st.lists(st.booleans(), min_size=len(origins), max_size=len(origins)))
        packets: list[Data] = [
            data(seq, origin=origin, number=origins[:seq].count(origin), safe=wanted, ring=id)
            for seq, (origin, wanted) in enumerate(zip(origins, safe, strict=True), start=1)
        ]
        for me in members:
            if me != 4:
                kept = [packet for packet in packets if packet.origin == me or draw(st.booleans())]
                olds[me] = ring(*kept, me=me, members=members, id=id)
                holdings[me] = {packet.seq for packet in kept}
    return olds, holdings


@examples(60)
@given(start=held(), data_=st.data(), most=st.integers(1, 4))
def test_members_of_the_same_old_ring_deliver_the_same_messages(
    start: tuple[dict[int, Ring], dict[int, set[int]]], data_: st.DataObject, most: int
) -> None:
    """000 §4.2: p and q, members of consecutive C1 and C2, deliver the same set of messages in C1.

    Each hears the same story of its old ring: what it delivered before, what it delivers in the
    transitional configuration, and nothing of the other old ring.
    """
    olds, holdings = start
    attempt = Attempt(olds)
    visits = 0
    while not all(made.complete for made in attempt.exchanges.values()):
        visits += 1
        assert visits < 200, "the exchange does not end"
        for node in attempt.exchanges:
            lost = data_.draw(st.sets(st.sampled_from(sorted(olds)))) if visits < 4 else set()
            attempt.visit(node, lost, most)
    for group in ((1, 2, 3), (5, 6)):
        together = set().union(*(holdings[node] for node in group))
        stories = []
        for node in group:
            obligations, old = attempt.owed[node], olds[node]
            assert obligations.received_flg
            assert obligations.deliver_memb == frozenset(group)
            assert {seq for seq, _ in old.window.after(0)} == together
            effects = list(attempt.before[node])
            settle(attempt.exchanges[node], old, obligations, effects)
            stories.append(story(effects))
            order = [e.batch.seq for e in effects if isinstance(e, Deliver)]
            assert order == sorted(set(order))
            own = [e.batch.seq for e in effects if isinstance(e, Deliver) and e.batch.origin == node]
            assert set(own) == {
                s for s in together if isinstance(p := old.window.get(s), Data) and p.origin == node
            }
            assert {e.batch.configuration for e in effects if isinstance(e, Deliver)} <= {old.id}
        assert all(told == stories[0] for told in stories)
        assert len(delivered(effects)) <= len(together)

"""Which contents gateways withhold, and when a node may count on getting them (001, locality)."""

from __future__ import annotations

import pytest

from ordercast.core.addresses import address, groups_part
from ordercast.core.contract import MOST_ATTENDED, Attend
from ordercast.core.fronted import FEWEST
from ordercast.core.identity import Guarantee
from ordercast.rings.bundles import (
    Bundle,
    audience,
    is_interest,
    is_safe,
    is_withheld,
    read_bundle,
    withhold,
    write_bundles,
)
from ordercast.rings.config import RingsConfig
from ordercast.rings.interests import Interests, covers, interest_of
from ordercast.rings.sending import Sending

NOTHING, ALL, QUEUES = Attend(frozenset()), Attend(None), Attend(None, shared=True)
A, B, AB = Attend(frozenset("a")), Attend(frozenset("b")), Attend(frozenset("ab"))


def to(*groups: str) -> bytes:
    """A message to groups."""
    return address(0, groups) + b"contents"


def bundle_of(raw: bytes) -> Bundle:
    bundle = read_bundle(raw)
    assert bundle is not None
    return bundle


def audience_of(*groups: str) -> bytes:
    return groups_part(to(*groups))


def told(**attends: Attend) -> Interests:
    """What a gateway knows when the nodes 1 and 2 have told what they need."""
    interests = Interests()
    interests.begin((1, 2))
    for node, attend in attends.items():
        interests.hear(int(node.removeprefix("n")), interest_of(attend))
    return interests


BOTH = frozenset({1, 2})

# --- what gateways know -----------------------------------------------------------------------------


def test_contents_go_where_a_group_has_members() -> None:
    interests = told(n1=A, n2=B)
    assert interests.need(frozenset({1}), audience_of("a"))
    assert not interests.need(frozenset({2}), audience_of("a"))
    assert interests.need(BOTH, audience_of("a"))
    assert not interests.need(BOTH, audience_of("c"))
    assert interests.need(frozenset({2}), audience_of("c", "b")), "one of several groups is enough"


def test_nothing_is_withheld_before_all_have_told_what_they_need() -> None:
    interests = told(n1=A)
    assert interests.need(frozenset({1}), audience_of("c"))
    interests.hear(2, interest_of(NOTHING))
    assert not interests.need(frozenset({1}), audience_of("c"))
    interests.begin((1, 2))
    assert interests.need(frozenset({1}), audience_of("c")), "in the next configuration they tell anew"


def test_what_is_for_no_groups_goes_everywhere() -> None:
    assert told(n1=NOTHING, n2=NOTHING).need(BOTH, b"")


def test_who_needs_everything_gets_everything_and_others_do_not() -> None:
    interests = told(n1=ALL, n2=NOTHING)
    assert interests.need(frozenset({1}), audience_of("a"))
    assert not interests.need(frozenset({2}), audience_of("a"))


def test_a_queue_anywhere_means_everything_everywhere() -> None:
    """Any node may have to send again what a member of the queue did not get."""
    interests = told(n1=QUEUES, n2=NOTHING)
    assert interests.need(frozenset({2}), audience_of("a"))
    interests.hear(1, interest_of(NOTHING))
    assert not interests.need(frozenset({2}), audience_of("a"))


def test_what_is_told_later_counts_from_there() -> None:
    interests = told(n1=A, n2=NOTHING)
    assert not interests.need(BOTH, audience_of("b"))
    interests.hear(1, interest_of(B))
    assert interests.need(BOTH, audience_of("b"))
    assert not interests.need(BOTH, audience_of("a"))


def test_who_is_in_very_many_groups_needs_everything() -> None:
    many = Attend(frozenset(str(i) for i in range(MOST_ATTENDED + 1)))
    assert interest_of(many).everything
    assert not interest_of(Attend(frozenset(list(many.groups or ())[1:]))).everything


@pytest.mark.parametrize(
    ("before", "after", "right"),
    [
        (A, A, True),
        (AB, A, True),
        (A, AB, False),
        (A, B, False),
        (ALL, AB, True),
        (A, ALL, False),
        (ALL, QUEUES, False),
        (QUEUES, ALL, True),
    ],
)
def test_whether_what_was_told_covers_what_is_needed(before: Attend, after: Attend, right: bool) -> None:
    assert covers(interest_of(before), interest_of(after)) is right


# --- bundles without contents -----------------------------------------------------------------------


def test_a_bundle_without_contents_has_the_numbers_and_groups_of_its_messages() -> None:
    for count in (2, FEWEST):
        (raw,) = write_bundles([to("a")] * count, 7, Guarantee.SAFE, addressed=True)
        whole = bundle_of(raw)
        assert audience(whole) == audience_of("a")
        assert list(whole.payloads) == [to("a")] * count
        check_withheld(withhold(whole), count)


def check_withheld(bundle: Bundle, count: int) -> None:
    assert is_withheld(bundle.raw)
    assert is_safe(bundle.raw)
    assert audience(bundle) == b"", "it is passed on as it is"
    assert bundle_of(bundle.raw) == bundle
    assert (bundle.number, bundle.guarantee, len(bundle.payloads)) == (7, Guarantee.SAFE, count)
    assert {groups_part(payload) for payload in bundle.payloads} == {audience_of("a")}
    assert all(b"contents" not in payload for payload in bundle.payloads)


# --- a node that needs more -------------------------------------------------------------------------


def sending() -> Sending:
    return Sending(RingsConfig(networks=(1,)))


def fed(made: Sending) -> list[bytes]:
    return list(made.feed(1 << 20))


def test_messages_to_other_groups_are_in_other_bundles() -> None:
    made = sending()
    made.accept([to("a"), to("a"), to("b"), b"no message at all"], Guarantee.AGREED)
    bundles = fed(made)
    assert [audience(each) for each in map(bundle_of, bundles)] == [audience_of("a"), audience_of("b"), b""]
    assert [each.number for each in map(bundle_of, bundles)] == [1, 3, 4]


def test_what_follows_a_new_need_is_sent_once_all_know_of_it() -> None:
    made = sending()
    made.attend(interest_of(A))
    (first,) = fed(made)
    assert is_interest(first), "in each configuration a node tells first what it needs"
    made.originated(bundle_of(first), 10)
    made.acknowledged(10)
    made.attend(interest_of(AB))
    made.accept([to("b")], Guarantee.AGREED)
    (second,) = fed(made)
    assert is_interest(second)
    made.acknowledged(11)
    assert fed(made) == [], "it is not broadcast yet"
    made.originated(bundle_of(second), 15)
    made.acknowledged(14)
    assert fed(made) == []
    made.acknowledged(15)
    assert [audience(bundle_of(raw)) for raw in fed(made)] == [audience_of("b")]


def test_what_was_accepted_before_does_not_wait() -> None:
    made = sending()
    made.attend(interest_of(A))
    (first,) = fed(made)
    made.originated(bundle_of(first), 10)
    made.acknowledged(10)
    made.accept([to("a")], Guarantee.AGREED)
    made.attend(interest_of(AB))
    made.accept([to("b")], Guarantee.AGREED)
    assert [is_interest(raw) for raw in fed(made)] == [False, True]


def test_who_needs_less_says_so_and_waits_for_nobody() -> None:
    made = sending()
    made.attend(interest_of(AB))
    (first,) = fed(made)
    made.originated(bundle_of(first), 10)
    made.acknowledged(10)
    made.attend(interest_of(A))
    made.accept([to("a")], Guarantee.AGREED)
    assert [is_interest(raw) for raw in fed(made)] == [True, False]


def test_in_the_next_configuration_all_is_told_anew_and_nothing_is_lost() -> None:
    made = sending()
    made.attend(interest_of(A))
    (first,) = fed(made)
    made.originated(bundle_of(first), 10)
    made.acknowledged(10)
    made.attend(interest_of(AB))
    made.accept([to("b")], Guarantee.AGREED)
    assert len(fed(made)) == 1
    made.take_back()
    interest, message = fed(made)
    assert bundle_of(interest).interest == interest_of(AB)
    assert audience(bundle_of(message)) == audience_of("b"), (
        "until all have told, nothing is withheld from it"
    )

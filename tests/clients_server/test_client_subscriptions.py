"""Which of a client's subscriptions gets a message."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.clients.subscriptions import Subscription, Subscriptions
from ordercast.core.subjects import matches

PATTERN = st.lists(st.sampled_from("ab*_"), min_size=1, max_size=3).map(".".join)
ONES = st.lists(
    st.tuples(PATTERN | PATTERN.map(lambda text: f"{text}.>") | st.just(">"), st.sampled_from([None, "q"])),
    max_size=10,
)
SUBJECT = st.lists(st.sampled_from("abc_"), min_size=1, max_size=4).map(".".join)


@given(ONES, st.lists(SUBJECT, min_size=1, max_size=4), st.sets(st.integers(0, 9)))
@settings(deadline=None)
def test_those_that_describe_the_subject(
    wanted: list[tuple[str, str | None]], subjects: list[str], ended: set[int]
) -> None:
    subscriptions = Subscriptions()
    ones = [Subscription(b"%d" % sid, *each) for sid, each in enumerate(wanted)]
    first = [subscriptions.add(one) for one in ones]
    assert first == [one.group not in {other.group for other in ones[:at]} for at, one in enumerate(ones)]
    for subject in subjects:
        subscriptions.of(subject)
    for at in sorted(ended & set(range(len(ones)))):
        subscriptions.remove(ones[at])
    left = [one for at, one in enumerate(ones) if at not in ended]
    for subject in subjects:
        plain = [one for one in left if one.queue is None and matches(one.pattern, subject)]
        assert list(subscriptions.of(subject)) == plain
    for one in ones:
        inside = [each for each in left if each.group == one.group and each.queue is not None]
        turns = {subscriptions.of_queue(one.group) for _ in range(len(inside))}
        assert turns == (set(inside) if inside else set())
    assert len(subscriptions) == len(left)


def test_a_name_that_is_taken_is_passed_over() -> None:
    subscriptions = Subscriptions()
    assert subscriptions.add(Subscription(b"1", "a", None))
    assert not subscriptions.add(Subscription(b"1", "b", None))
    assert not subscriptions.of("b")

"""Subjects, patterns, and groups that are subscriptions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.subjects import (
    described,
    is_pattern,
    is_queue,
    is_subject,
    matches,
    read_subscription,
    subscription,
)


@pytest.mark.parametrize("name", ["a", "a.b", "a.*", "ä.$x._y", "a" * 255])
def test_a_subject_is_words_with_dots_between(name: str) -> None:
    assert is_subject(name)


@pytest.mark.parametrize(
    "name", ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\n", "\x1ea", "a\x00", "a" * 256, "\ud800"]
)
def test_what_is_no_subject(name: str) -> None:
    assert not is_subject(name)
    assert not is_pattern(name)


def test_the_rest_stands_last() -> None:
    assert is_pattern("a.>")
    assert is_pattern(">")
    assert not is_pattern(">.a")
    assert not is_pattern("a.>.b")
    assert is_pattern("a>.b")


@pytest.mark.parametrize(
    ("pattern", "subject", "does"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.>", "a", False),
        ("a.>", "a.b.c", True),
        (">", "a", True),
        (">", "a b", False),
        ("a.*.>", "a.b", False),
        ("a.*.>", "a.b.c", True),
    ],
)
def test_a_pattern_describes_subjects(pattern: str, subject: str, does: bool) -> None:
    assert matches(pattern, subject) == does


WORDS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=4).map(".".join)


@given(WORDS, st.booleans(), st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=5).map(".".join))
def test_a_pattern_means_what_a_regular_expression_would(pattern: str, rest: bool, subject: str) -> None:
    pattern += ".>" if rest else ""
    text = re.escape(pattern).replace(r"\*", "[^.]+").replace(">", ".+")
    assert matches(pattern, subject) == (re.fullmatch(text, subject) is not None)


@given(WORDS, st.none() | st.sampled_from(["q", "ä"]))
def test_a_subscription_is_read_as_it_was_made(pattern: str, queue: str | None) -> None:
    group = subscription(pattern, queue)
    if queue is None and "*" not in pattern:
        assert group == pattern
        assert read_subscription(group) is None
    else:
        assert read_subscription(group) == (pattern, queue)
        assert not is_subject(group)


@pytest.mark.parametrize("group", ["\x1e", "\x1ea", "\x1e\x1ea", "\x1e\x1ea..*", "\x1eq q\x1ea", "\x1eq\x1e"])
def test_what_is_no_subscription(group: str) -> None:
    assert read_subscription(group) is None


def test_words_for_groups() -> None:
    assert is_queue("q")
    assert not is_queue("q q")
    assert described("G") == "group G"
    assert described(subscription("a.*")) == "pattern a.*"
    assert described(subscription("a", "q")) == "pattern a of queue q"

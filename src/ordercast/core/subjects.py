"""Subjects and patterns: names of groups that are words with dots between, and what describes many of them.

In a pattern ``*`` stands for one word, and ``>``, as the last word, for one or more. A subscription to a
pattern, or over a queue, is a group of its own, with a name that no other group can have (`subscription`).
"""

from __future__ import annotations

import re

MARK = "\x1e"
"""Begins the name of a group that is a subscription: no other group's name does."""
LONGEST_SUBJECT = 255
"""Bytes of a subject or pattern, in UTF-8."""
LONGEST_QUEUE = 128
"""Bytes of a queue's name, in UTF-8."""
ONE, REST = "*", ">"

_WORDS = re.compile(r"[^\s.\x00-\x20\x7f\ud800-\udfff]+(?:\.[^\s.\x00-\x20\x7f\ud800-\udfff]+)*\Z")
_QUEUE = re.compile(r"[^\s\x00-\x20\x7f\ud800-\udfff]+\Z")


def is_subject(name: str) -> bool:
    """Whether a name consists of words with dots between, none of them empty and none with blanks in it."""
    return _WORDS.match(name) is not None and len(name.encode()) <= LONGEST_SUBJECT


def is_pattern(name: str) -> bool:
    """Whether it may be subscribed to: a subject, in which ``>`` is the last word if there is one."""
    return is_subject(name) and REST not in name.split(".")[:-1]


def is_queue(name: str) -> bool:
    """Whether a queue may be called so."""
    return _QUEUE.match(name) is not None and len(name.encode()) <= LONGEST_QUEUE


def has_wildcards(pattern: str) -> bool:
    """Whether a pattern may describe other subjects than itself."""
    return not {ONE, REST}.isdisjoint(pattern.split("."))


def subscription(pattern: str, queue: str | None = None) -> str:
    """The group of those who subscribe to a pattern, with this queue's name.

    Who subscribes to one subject, without a queue, is in the group of that name.
    """
    if queue is None and not has_wildcards(pattern):
        return pattern
    return f"{MARK}{queue or ''}{MARK}{pattern}"


def read_subscription(group: str) -> tuple[str, str | None] | None:
    """Pattern and queue of a group that `subscription` made; None for any other group."""
    if not group.startswith(MARK):
        return None
    queue, mark, pattern = group[1:].partition(MARK)
    well_formed = mark and is_pattern(pattern) and (is_queue(queue) if queue else has_wildcards(pattern))
    return (pattern, queue or None) if well_formed else None


def described(group: str) -> str:
    """A group in a sentence."""
    found = read_subscription(group)
    if found is None:
        return f"group {group}"
    return f"pattern {found[0]}" + ("" if found[1] is None else f" of queue {found[1]}")


def matches(pattern: str, subject: str) -> bool:
    """Whether a pattern describes a subject."""
    if not is_subject(subject):
        return False
    wanted, words = pattern.split("."), subject.split(".")
    if wanted[-1] == REST:
        wanted.pop()
        if len(words) <= len(wanted):
            return False
        words = words[: len(wanted)]
    return len(wanted) == len(words) and all(a in (ONE, b) for a, b in zip(wanted, words, strict=True))

"""The states of a member of a group, and for which reasons it goes from one to another."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a node stands with its group."""

    CHANGING = "changing"
    """The view is about to change: nothing is ordered."""
    MEMBER = "member"
    """In a view: messages are ordered."""
    JOINING = "joining"
    """In no view: looks for a group, or waits to be let in."""


NEXT: dict[State, dict[str, State]] = {
    State.JOINING: {
        "started": State.JOINING,
        "group founded": State.MEMBER,
        "let in": State.MEMBER,
    },
    State.MEMBER: {
        "member suspected": State.CHANGING,
        "token lost": State.CHANGING,
        "member waited for suspected": State.CHANGING,
        "member gone": State.CHANGING,
        "no activity": State.CHANGING,
        "somebody joins": State.CHANGING,
        "leaving": State.CHANGING,
        "others change": State.CHANGING,
        "external returned": State.CHANGING,
        "external gave up": State.CHANGING,
        "order stalled": State.CHANGING,
    },
    State.CHANGING: {
        "view agreed": State.MEMBER,
        "token list agreed": State.MEMBER,
        "several originators": State.CHANGING,
    },
}
"""By state, where each reason leads; anything else is a mistake."""

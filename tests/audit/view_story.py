"""Tells runs of the sequencer family in a few lines: views, broadcasts without a place, deliveries with one."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from story import Story

from ordercast.audit.history import Message
from ordercast.audit.properties import VIEW_SYNCHRONY, Expectation, Report, audit
from ordercast.core.identity import Guarantee


class ViewStory(Story):
    """A run that is being told. A message has its place from the start; its broadcast does not say so."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[tuple[int, int], int] = {}

    def view(self, seq: int, members: Iterable[int], at: Iterable[int] | None = None) -> None:
        """Members install a view, called by its number and its first member."""
        members = tuple(members)
        self.regular(seq, members[0], members, at)

    def send(self, node: int, guarantee: str = "agreed", seq: int | None = None, slot: int = 0) -> Message:
        """A broadcast: the next place in the view is going to be its own, or the one that is given."""
        here = self.here[node]
        assert here is not None
        if seq is None:
            seq = self.places[here[:2]] = self.places.get(here[:2], 0) + 1
        message = self.originate(node, seq, slot)._replace(guarantee=guarantee)
        self.edit(len(self.rows) - 1, seq=None, slot=None, guarantee=guarantee)
        return message


def judge(story: Story, *lasting: int) -> Report:
    """The audit of a run; where all is done at the end, with those that should be together then."""
    expectation = Expectation((frozenset(lasting),)) if lasting else None
    return audit(story.rows, expectation, VIEW_SYNCHRONY)


def broken(story: Story, *lasting: int) -> set[str]:
    """The properties that it breaks."""
    return {code for code, count in judge(story, *lasting).properties.items() if count}


def group(size: int = 3, messages: int = 6, guarantee: str = "agreed") -> tuple[ViewStory, list[Message]]:
    """Nodes in view 1.1, with messages that nobody has delivered yet."""
    story = ViewStory()
    story.view(1, range(1, size + 1))
    return story, [story.send(1 + place % size, guarantee) for place in range(messages)]


def delivered(size: int = 3, guarantee: str = "agreed") -> tuple[ViewStory, list[Message]]:
    """The same, and everyone has delivered all."""
    story, messages = group(size, guarantee=guarantee)
    story.deliver(range(1, size + 1), *messages)
    return story, messages

"""Tells runs of the sequencer family: by hand in a few lines, or at random but right."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from story import Story

from ordercast.audit.history import Message
from ordercast.audit.properties import VIEW_SYNCHRONY, Expectation, Report, audit
from ordercast.core.identity import Guarantee


class ViewStory(Story):
    """A run that is being told. `send` answers with the message and its place, which its own row lacks."""

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


# --- at random ---------------------------------------------------------------------------------

LEVELS = (("agreed", "agreed", "safe", "k=1", "k=2", "k=3"), ("agreed", "safe"), ("k=1", "k=1", "k=2"))


class _View:
    """A view and what its members have and did, as a random run needs to know."""

    def __init__(self, seq: int, members: list[int], installed: list[int]) -> None:
        self.id = (seq, members[0])
        self.members = members
        self.order: list[Message] = []
        self.seq = 0
        self.has = dict.fromkeys(installed, 0)
        """How much of the order each has got."""
        self.done = dict.fromkeys(installed, 0)
        """How much each has delivered."""

    def stop(self, node: int) -> int:
        """How far a member may deliver: each message is to be with as many members as its level says."""
        size = len(self.members)
        for place in range(self.done[node], self.has[node]):
            needed = Guarantee(self.order[place].guarantee).needed(size)
            if sum(has > place for has in self.has.values()) < needed:
                return place
        return self.has[node]


class RandomRun:
    """A run that 004 §4.3.2 allows, made from the definition and not by a protocol."""

    def __init__(self, chance: Random, nodes: int, changes: int) -> None:
        self.chance = chance
        self.levels = chance.choice(LEVELS)
        self.story = ViewStory()
        self.everyone = list(range(1, nodes + 1))
        self.seq = 1
        self.unaware: set[int] = set()
        """Those that are excluded and have not heard of it yet."""
        first = self.everyone
        if nodes > 2 and chance.random() < 0.3:  # two groups, which merge later
            cut = chance.randint(1, nodes - 1)
            first = self.everyone[:cut]
        self.views = [self._begin(first)]
        if first != self.everyone:
            self.views.append(self._begin(self.everyone[len(first) :]))
        for _ in range(changes):
            self._traffic()
            self._change()
        self._traffic()

    def _begin(self, members: list[int]) -> _View:
        self.story.view(self.seq, members)
        return _View(self.seq, members, members)

    def _traffic(self) -> None:
        for _ in range(self.chance.randrange(40)):
            view = self.chance.choice(self.views)
            if not view.has:
                continue
            node = self.chance.choice(sorted(view.has))
            if self.chance.random() < 0.4:
                self._send(view, node)
            elif self.chance.random() < 0.6:
                view.has[node] = min(view.has[node] + self.chance.randint(0, 3), len(view.order))
            else:
                self._deliver(view, node, self.chance.randint(view.done[node], view.stop(node)))

    def _deliver(self, view: _View, node: int, stop: int) -> None:
        self.story.deliver(node, *view.order[view.done[node] : stop])
        view.done[node] = stop

    def _send(self, view: _View, node: int) -> None:
        view.seq += self.chance.choice([1, 1, 2, 5])  # others carried fragments
        guarantee = self.chance.choice(self.levels)
        for slot in range(self.chance.choice([1, 1, 3])):
            self.story.submit(node)
            view.order.append(self.story.send(node, guarantee, view.seq, slot))
        if self.chance.random() < 0.4:  # it has the token
            view.has[node] = len(view.order)
            self._deliver(view, node, view.stop(node))

    def _change(self) -> None:
        """All views that a majority is left of become one; nodes crash, are excluded, and come back."""
        self.seq += 1
        self._halt_those_who_hear_of_it()
        living = {node for view in self.views for node in view.has} | self.unaware
        back = [node for node in self.everyone if node not in living and self.chance.random() < 0.6]
        gone = {node for node in sorted(living - self.unaware) if self.chance.random() < 0.2}
        going: dict[int, _View] = {}
        for view in self.views:
            left = [node for node in view.has if node not in gone]
            if 2 * len(left) <= len(view.members):
                return  # nobody goes anywhere, and who was to fail lives a little longer
            going |= dict.fromkeys(left, view)
        for node in back:
            self.story.restart(node)
        members = sorted([*going, *back])
        arrived = list(back)
        for view in self.views:
            arrived += self._settle(view, [node for node in view.has if node in going])
        for node in sorted(gone):
            if self.chance.random() < 0.5:
                self.story.crash(node)
            else:
                self.unaware.add(node)
        lost = {node for node in arrived if self.chance.random() < 0.03}
        self.story.crash(*sorted(lost))
        arrived = sorted(set(arrived) - lost)
        self.story.view(self.seq, members, at=arrived)
        self.views = [_View(self.seq, members, arrived)]

    def _settle(self, view: _View, left: list[int]) -> list[int]:
        """What those who go on had in order; then what they have of each sender that got no place."""
        known = max(view.has[node] for node in left)
        place = view.order[known - 1].seq or 0 if known else 0
        rest = []
        for sender in view.members:
            its = [message for message in view.order[known:] if message.origin == sender]
            rest += its if sender in left else its[: self.chance.randint(0, len(its))]
        settled = [*view.order[:known]]
        for behind, message in enumerate(rest, start=1):
            settled.append(message._replace(seq=place + behind, slot=0))
        arrived = []
        for node in left:
            if self.chance.random() < 0.05:
                stop = self.chance.randint(view.done[node], len(settled))
                self.story.deliver(node, *settled[view.done[node] : stop])
                self.story.crash(node)
            else:
                self.story.deliver(node, *settled[view.done[node] :])
                arrived.append(node)
        return arrived

    def _halt_those_who_hear_of_it(self) -> None:
        for node in sorted(self.unaware):
            if self.chance.random() < 0.7:
                self.story.halt(node)
                self.unaware.remove(node)

    def finish(self) -> None:
        """All is done: everyone has everything, and delivers it; and who is excluded knows that."""
        self.story.halt(*sorted(self.unaware))
        for view in self.views:
            for node in view.has:
                view.has[node] = len(view.order)
                self._deliver(view, node, len(view.order))

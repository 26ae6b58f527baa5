"""What is remembered of what was settled and forgotten: enough to see that a row contradicts it."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from ordercast.audit.explain import Violation, violation, with_position
from ordercast.audit.follow.settled import Place, Settled
from ordercast.audit.followers import FollowedViews
from ordercast.audit.history import History, Identity, Message
from ordercast.audit.properties import Promises
from ordercast.audit.views import Views
from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.trace.columns import (
    EVENT,
    MEMBERS,
    NODE,
    SEQ,
    Two,
    configuration_of,
    facts_of,
    message_of,
    origin_configuration_of,
    place_of,
)
from ordercast.trace.schema import Row

_Key = TypeVar("_Key")

MOST_MESSAGES = 50_000
MOST_CONFIGURATIONS = 20_000


class _Codes(NamedTuple):
    """Which properties are broken by rows that come when all was settled."""

    delivered_again: str
    place_taken: str
    configuration_over: str
    originated_again: str
    installed_again: str


_RINGS = _Codes("deliver-once", "seq-unique", "deliver-place", "deliver-originated", "config-unique")
_VIEWS = _Codes("uniform-integrity", "uniform-order", "sending-view", "uniform-integrity", "view-agreement")


class Forgotten:
    """What was settled: of messages the last ones by name, and how far they go in each configuration."""

    def __init__(self) -> None:
        self.cuts: dict[ConfigurationId, Place] = {}
        """By configuration that goes on, the place below which all is settled."""
        self.over: dict[ConfigurationId, frozenset[NodeId]] = {}
        """The last configurations that are over, in the order in which that was noticed; who was in each."""
        self.messages: dict[Identity, None] = {}
        """The last messages, in the order in which they were settled."""
        self.numbers: dict[tuple[NodeId, int], int] = {}
        """The number of the last message settled, by the life that originated it."""
        self.nodes: set[NodeId] = set()
        """Nodes that had rows."""
        self.followers: set[NodeId] = set()
        """Nodes that follow the order of views, where each of their lives may begin anywhere."""

    def comes_late(self, row: Row) -> bool:
        """Whether a member comes to a configuration that was given up without it."""
        if row[EVENT] != "install" or row[NODE] not in (row[MEMBERS] or ()):
            return False
        return row[NODE] not in self.over.get(_id(configuration_of(row)), (row[NODE],))

    def take(self, history: History, ready: Settled) -> None:
        """Remember what is going to be forgotten."""
        self.nodes.update(history.lives)
        if isinstance(history, FollowedViews):
            self.followers.update(history.following)
        for identity in ready.messages:
            self.messages[identity] = None
            life = identity[:2]
            if not isinstance(history, Views):
                self.numbers[life] = max(self.numbers.get(life, -1), identity[2])
        for configuration, place in ready.cuts.items():
            self.cuts[configuration] = place
        for configuration in ready.closed:
            self.cuts.pop(configuration, None)
            for stay in history.installs[configuration]:
                stays, _ = stay.until_next_regular()
                for each in stays:
                    self.over[each.id] = self.over.get(each.id, frozenset()) | {each.node}
        _shorten(self.messages, MOST_MESSAGES)
        _shorten(self.over, MOST_CONFIGURATIONS)
        _shorten(self.numbers, MOST_CONFIGURATIONS)

    def concerns(self, row: Row) -> bool:
        """Whether a row speaks of something that was settled."""
        event = row[EVENT]
        if event == "install":
            return _id(configuration_of(row)) in self.over
        if event not in ("deliver", "originate", "group_deliver"):
            return False
        if message_of(row) in self.messages:
            return True
        configuration = _id(origin_configuration_of(row))
        if configuration in self.over:
            return True
        cut = self.cuts.get(configuration)
        if cut is not None and row[SEQ] is not None and place_of(row) < cut:
            return True
        number = self.numbers.get((row[9] or 0, row[10] or 0)) if event == "originate" else None
        return number is not None and (row[11] or 0) <= number

    def contradiction(self, row: Row, promises: Promises) -> Violation | None:
        """What is wrong with a row that speaks of something settled; None: nothing."""
        event, node = row[EVENT], row[NODE]
        codes = _VIEWS if issubclass(promises.history, Views) else _RINGS
        if event == "group_deliver" or node in self.followers:
            return None  # processes, and nodes that follow, may get late what all members have
        if event == "install":
            here = ConfigurationId(row[5] or 0, row[6] or 0)
            sentence = (
                f"node {node} installed configuration {here} of {row[8]} a second time, when all had left it."
            )
            return violation(codes.installed_again, sentence, [node], (), here)
        message = Message._make(facts_of(row))
        source = ConfigurationId(message.config_seq, message.config_rep)
        told = f"node {node} {'delivered' if event == 'deliver' else 'originated'} {with_position(message)}"
        known = message_of(row) in self.messages
        if event == "originate":
            code, sentence = codes.originated_again, f"{told} of configuration {source} a second time."
        elif known or source not in self.over:
            code = codes.delivered_again if known else codes.place_taken
            how = "again" if known else "where all members had delivered others"
            sentence = f"{told} of configuration {source} {how}, in configuration {row[5]}.{row[6]}."
        else:
            code = codes.configuration_over
            sentence = (
                f"{told} of configuration {source}, which all its members had left, in {row[5]}.{row[6]}."
            )
        return violation(code, sentence, [node], [message], source)


def _id(of: Two) -> ConfigurationId:
    return ConfigurationId(of[0] or 0, of[1] or 0)


def _shorten(kept: dict[_Key, Any], most: int) -> None:
    """Drop the oldest entries."""
    for key in list(kept)[: max(0, len(kept) - most)]:
        del kept[key]

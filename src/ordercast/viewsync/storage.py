"""What a node of the family keeps on stable storage: its view, how it was decided, its vote on the next one.

How it was decided is kept for others. Members that missed the end of a change hold what was settled, or can
fetch it from each other, and lack only the decision; if all who knew it crash, their later lives must tell.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ordercast.core.identity import ConfigurationId, NodeId
from ordercast.core.wire import Malformed
from ordercast.viewsync.consensus import Voter
from ordercast.viewsync.contract import View
from ordercast.viewsync.packets import (
    NO_GROUP,
    NO_ROUND,
    Decision,
    Group,
    Member,
    Round,
    decode_decision,
    encode_decision,
)

_STORED = struct.Struct("<2sBqqiIqiI?HHqiqi")
_MAGIC = (b"OC", 5)
_OUTCOME = struct.Struct("<qiII")
KEPT_OUTCOMES = 8
"""Most outcomes that are stored: the one that led to the view, and those of its last token lists."""


class Outcome(NamedTuple):
    """How a change of view ended: what a later life needs to tell who is still in that change."""

    view: ConfigurationId
    """The view, and the turn of its token list, that the change was about; `NO_VIEW` for a first view."""
    turn: int
    value: bytes
    """What was decided on (`Decision`): it names what is settled."""


class Stored(NamedTuple):
    """The state that is durable, decoded."""

    last: int = 0
    """The highest number of a view that was installed here."""
    group: Group = NO_GROUP
    view: View | None = None
    """The view whose members' votes decide on the next one, if this node is one of them."""
    voter: Voter = Voter()
    free: bool = True
    """Whether the node may found a group: it never was in one, or that one is over."""
    ended: Group = NO_GROUP
    """The last group that is known to be over."""
    outcomes: tuple[Outcome, ...] = ()
    """How this node came to `view`: the change that led to it, then those of its token list, latest last.
    Without a view: how it came to be in none, for those who are in the view that was decided on then."""


def store(stored: Stored) -> bytes:
    """The stored state, for the disk."""
    last, group, view, voter, free, ended, outcomes = stored
    known = b"" if view is None else encode_decision(decision_of(group, view))
    counts = (len(known), len(outcomes))
    return b"".join(
        (
            _STORED.pack(*_MAGIC, last, *group, *ended, free, *counts, *voter.promised, *voter.accepted),
            known,
            *(_OUTCOME.pack(*view, turn, len(value)) + value for view, turn, value in outcomes),
            voter.value,
        )
    )


def recall(me: NodeId, data: bytes | None) -> Stored:
    """What the node's earlier lives stored; nothing on a fresh disk."""
    if data is None:
        return Stored(voter=Voter())
    try:
        magic, version, last, *groups, free, size, count, _, _, _, _ = fields = _STORED.unpack_from(data)
        if (magic, version) != _MAGIC:
            raise Malformed("not this protocol's")
        known = data[_STORED.size : _STORED.size + size]
        at = _STORED.size + size
        outcomes = []
        for _ in range(count):
            *about, turn, size = _OUTCOME.unpack_from(data, at)
            at += _OUTCOME.size + size
            outcomes.append(Outcome(ConfigurationId(*about), turn, data[at - size : at]))
            decode_decision(outcomes[-1].value)
        voter = Voter(Round(*fields[-4:-2]), Round(*fields[-2:]), data[at:])
        if voter.accepted != NO_ROUND:
            decode_decision(voter.value)
        view = view_of(decode_decision(known)) if known else None
    except (struct.error, Malformed) as error:
        raise ValueError(
            f"node {me}: the stored state is not one that this protocol wrote ({error}); restore the file, "
            "or remove it to start as a new node"
        ) from error
    return Stored(last, Group(*groups[:3]), view, voter, free, Group(*groups[3:]), tuple(outcomes))


def view_of(decision: Decision) -> View:
    """The view that was decided on. The token list begins with who holds the token first."""
    nodes = tuple(member.node for member in decision.members)
    core = [member.node for member in decision.members if member.core]
    at = core.index(decision.site) if decision.site in core else 0
    return View(
        decision.view,
        nodes,
        tuple(member.incarnation for member in decision.members),
        (*core[at:], *core[:at]),
        decision.turn,
    )


def decision_of(group: Group, view: View) -> Decision:
    """A view as a decision with nothing to settle."""
    members = tuple(
        Member(node, incarnation, node in view.core)
        for node, incarnation in zip(view.members, view.incarnations, strict=True)
    )
    return Decision(True, group, view.id, view.turn, members, view.core[0] if view.core else 0, 0, ())

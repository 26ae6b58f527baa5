"""Locality (001): the contents of messages go only where somebody needs them.

A node tells in the order what it needs (`Interest`), and gateways take note of it when they receive it. What
nobody behind a gateway needs is forwarded without its contents: with its place, so that all nodes have the
same order and know that nothing is missing. Until all nodes of a configuration have told, nothing is
withheld.

A node that is to need more tells so first, and sends the message that makes it a member of another group once
all nodes are known to have heard it (`Sending`). By then its clock is beyond the timestamp of whatever was
withheld from it before: the gateway that withheld it heard of the node's need later, broadcast that on the
ring that the withheld message had come from, with a later timestamp, and the acknowledgement of that ring
came to the node behind it. So what was withheld is before the node became a member. See
docs/decisions/rings.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

from ordercast.core.addresses import MESSAGE, NO_STAMP, read_address
from ordercast.core.contract import MOST_ATTENDED, Attend
from ordercast.core.identity import NodeId
from ordercast.rings.bundles import HASH_SIZE, Interest

REMEMBERED = 4096
"""Answers that are remembered, at most."""


@lru_cache(maxsize=REMEMBERED)
def hash_of(group: str) -> bytes:
    """What stands for a group's name. Where two names have one, more is forwarded than needed, not less."""
    return blake2b(group.encode(), digest_size=HASH_SIZE).digest()


def interest_of(attend: Attend) -> Interest:
    """What a node tells the others that needs these groups."""
    if attend.groups is None or attend.shared or len(attend.groups) > MOST_ATTENDED:
        return Interest(True, attend.shared)
    return Interest(False, False, b"".join(sorted(map(hash_of, attend.groups))))


def covers(told: Interest, needed: Interest) -> bool:
    """Whether who was told the one forwards all that the other asks for."""
    if needed.shared and not told.shared:
        return False
    return told.everything or (not needed.everything and _hashes(needed) <= _hashes(told))


def _hashes(interest: Interest) -> frozenset[bytes]:
    found = interest.hashes
    return frozenset(found[at : at + HASH_SIZE] for at in range(0, len(found), HASH_SIZE))


class Interests:
    """What a gateway knows of the nodes of its configuration."""

    def __init__(self) -> None:
        self._untold: set[NodeId] = set()
        self._shared: set[NodeId] = set()
        """Nodes because of which all nodes need everything."""
        self._everything: set[NodeId] = set()
        self._hashes: dict[NodeId, frozenset[bytes]] = {}
        self._answers: dict[tuple[frozenset[NodeId], bytes], bool] = {}

    def begin(self, members: Iterable[NodeId]) -> None:
        """A configuration begins: none of its members has told what it needs."""
        self._untold = set(members)
        self._shared.clear()
        self._everything.clear()
        self._hashes.clear()
        self._answers.clear()

    def hear(self, node: NodeId, interest: Interest) -> None:
        """A member tells what it needs, from here on."""
        self._untold.discard(node)
        for nodes, said in ((self._shared, interest.shared), (self._everything, interest.everything)):
            (nodes.add if said else nodes.discard)(node)
        self._hashes[node] = _hashes(interest)
        self._answers.clear()

    def need(self, nodes: frozenset[NodeId], audience: bytes) -> bool:
        """Whether any of these nodes may need messages that are for these groups (`messages.audience`)."""
        if not audience or self._untold or self._shared:
            return True
        answer = self._answers.get((nodes, audience))
        if answer is None:
            if len(self._answers) >= REMEMBERED:
                self._answers.clear()
            answer = self._answers[nodes, audience] = self._look_up(nodes, audience)
        return answer

    def _look_up(self, nodes: frozenset[NodeId], audience: bytes) -> bool:
        if not self._everything.isdisjoint(nodes):
            return True
        where = read_address(bytes((MESSAGE, 0, 0, 0, 0)) + audience + NO_STAMP)
        assert where is not None, "it was cut out of an address"
        hashes = frozenset(map(hash_of, where.groups))
        return any(not hashes.isdisjoint(self._hashes.get(node, ())) for node in nodes)

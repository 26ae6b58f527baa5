"""A log that was away gets what it missed from the logs of other nodes, before it is written on.

What a node has written and the configuration in which it is with the others again are both in their logs,
with what it missed in between. A replica that was away itself, or went another way, says so when it is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ordercast.errors import LogError, NotYet, OrdercastError
from ordercast.keys import Keyring
from ordercast.log.position import Position
from ordercast.log.repair import blocks_of
from ordercast.log.replica import Replica
from ordercast.log.store import Store

PATIENCE_S = 5.0
"""How long the others may take until they have written the configuration in which this node is with them."""
AGAIN_S = 0.1


class Stopped(OrdercastError):
    """What is missing is too much to wait for."""


def catch_up(
    store: Store,
    first: Position,
    others: Callable[[], Sequence[tuple[str, Keyring | None]]],
    stop: Callable[[], bool],
) -> list[str]:
    """Append what there is between the last entry of a log and `first`, which comes next; no sentence if that
    is all of it, else one of each replica that was asked on why not.

    `others`: where the logs of other nodes are read, and with which key. `stop`: whether to give up.
    """
    until = time.monotonic() + PATIENCE_S
    reasons, refused = dict[str, str](), set[str]()
    while True:
        known = others()
        for where, key in known:
            if where in refused:
                continue
            try:
                _from(store, first, where, key, stop)
                return []
            except OrdercastError as error:
                reasons[where] = str(error)
                if not isinstance(error, NotYet):
                    refused.add(where)
        nobody = bool(known) and all(where in refused for where, _ in known)
        if nobody or stop() or time.monotonic() > until:
            break
        time.sleep(AGAIN_S)
    return [f"{where}: {reason}" for where, reason in reasons.items()] or ["no other replica is known"]


def _from(store: Store, first: Position, where: str, key: Keyring | None, stop: Callable[[], bool]) -> None:
    with Replica(where, key) as replica:
        if replica.bounds().node == store.node:
            raise LogError("this is the node's own log")
        for batch in replica.read(store.head, first, heads=True):
            rows = batch.to_pylist()
            last = rows[-1]
            if Position(*(last[name] for name in ("config_seq", "config_rep", "seq", "slot"))) == first:
                del rows[-1]
            if rows:
                store.catch_up(blocks_of(rows))
            if stop():
                raise Stopped("more comes than can wait for what was missed")

"""Which lives of other nodes were heard of, so that a node learns of it if it has lived on since its disk.

Lives of a node are numbered, and a later one has a higher number: traces, audits and membership rely on it.
A node counts them on its disk. Where that is lost, the number comes from the clock, which may have been set
back; where an old copy was put back, the count goes on from there. A node alone can notice neither. So every
node remembers the latest life of each node that greeted it, over restarts if it has a data directory, and
tells a node that comes with one which is not later (`Greeting.outlived`). That node takes a higher one before
its machine says anything; or, if it had found nobody to tell it so, ends the life that it began.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections import OrderedDict
from pathlib import Path

import msgspec

from ordercast.core.identity import MAX_NODE_ID, NodeId
from ordercast.core.wire import UNREADABLE
from ordercast.plain_file import NotPlain, read_plain

LOG = logging.getLogger("ordercast")

FILE = "lives"
"""The file of a data directory that they are kept in; with the number of the network, if there are several:
a node has another session on each."""
MOST_NODES = 1024
"""Nodes that are remembered; those that were not heard of for longest are forgotten."""
_LONGEST_FILE = 1 << 20

FREELY = 2**30
"""Lives up to this number are believed in: of seconds since 2020, they are used up in 2054."""
REACH = 2**10
"""Beyond that, a life is believed in that is at most so far above the one that is known: who can greet under
a node's name could otherwise use up all numbers at once, and needs a million greetings and lives now."""


def within_reach(life: int, known: int) -> bool:
    """Whether a node that is known to have had one life can have come as far as another."""
    return life <= FREELY or life <= known + REACH


class _File(msgspec.Struct, array_like=True):
    """What the file holds."""

    lives: list[tuple[int, int, bytes]]
    """Node, life, session."""
    checksum: int

    @property
    def sum(self) -> int:
        """What the checksum has to be."""
        return zlib.crc32(msgspec.msgpack.encode(self.lives))


class KnownLives:
    """The latest life of each node that was heard of, and the session it has."""

    def __init__(self, network: int = 0) -> None:
        """`network` is the number of the network that they are heard of on."""
        self._file = f"{FILE}-{network}" if network else FILE
        self.changed = False
        """Whether there is something to be saved."""
        self._known: OrderedDict[NodeId, tuple[int, bytes]] = OrderedDict()

    def note(self, node: NodeId, life: int, session: bytes) -> None:
        """A node has greeted in that life, with that session."""
        known, _ = self._known.get(node, (-1, b""))
        if life <= known or not within_reach(life, known):
            return
        self._known[node] = (life, session)
        self._known.move_to_end(node)
        self.changed = True
        if len(self._known) > MOST_NODES:
            self._known.popitem(last=False)

    def outliving(self, node: NodeId, life: int, session: bytes) -> int:
        """The latest life of a node, where that is another one, and not earlier; else -1."""
        known, its_session = self._known.get(node, (-1, b""))
        return known if known >= life and its_session != session else -1

    def load(self, directory: Path) -> None:
        """What was saved there. A file that cannot be read is told of, and does without."""
        path = directory / self._file
        try:
            found = msgspec.msgpack.decode(read_plain(path, _LONGEST_FILE), type=_File)
            if found.checksum != found.sum:
                raise NotPlain("its checksum does not fit")
        except FileNotFoundError:
            return
        except (OSError, NotPlain, *UNREADABLE) as error:
            LOG.warning("%s is not used (%s): the lives of other nodes are learnt anew", path, error)
            return
        for node, life, session in found.lives[-MOST_NODES:]:
            if 0 < node <= MAX_NODE_ID:
                self._known[node] = (life, session)

    def save(self, directory: Path) -> None:
        """Replace what is saved there. It is a help and no promise: a disk that is full is told of."""
        self.changed = False
        told = _File([(node, life, session) for node, (life, session) in self._known.items()], 0)
        told.checksum = told.sum
        path, new = directory / self._file, directory / f"{self._file}.new"
        try:
            with open(new, "wb", opener=_private) as file:
                file.write(msgspec.msgpack.encode(told))
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
        except OSError as error:
            LOG.warning("%s cannot be written (%s): make room", path, error.strerror or error)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

"""The group key that a node uses, and the file it is in, which is looked after for changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from ordercast.errors import KeyProblem
from ordercast.extras import need
from ordercast.keys import MOST_KEYS, Keyring
from ordercast.runtime.config import NodeConfig

LOG = logging.getLogger("ordercast")


class NetworkKey(NamedTuple):
    """The group key that a node has on one network."""

    keyring: Keyring | None
    file: Path | None
    """Where it is, if it is in a file: that is looked after for changes."""

    @staticmethod
    def of(config: NodeConfig, given: Keyring | None) -> NetworkKey:
        """The key that is given, or that in the file which the configuration names."""
        if given is None and config.key is None:
            return NetworkKey(None, None)
        need("seal", "a group with a key")
        if given is not None or config.key is None:
            return NetworkKey(given, None)
        return NetworkKey(Keyring.load(config.key), config.key)


class GroupKey:
    """The key in use; None where a group has none."""

    def __init__(self, key: NetworkKey, rekey: Callable[[Keyring], None]) -> None:
        """`rekey` is called with every later key."""
        self.keyring = key.keyring
        self._path = key.file
        self._rekey = rekey
        self._stamp = _stamp(key.file)

    def look(self) -> None:
        """Use what is in the file, if that has changed."""
        stamp = _stamp(self._path)
        if stamp == self._stamp or self._path is None:
            return
        self._stamp = stamp
        try:
            self.keyring = Keyring.load(self._path)
            self._rekey(self.keyring)
            LOG.info("the group key was changed: %s", self._path)
        except KeyProblem as error:
            LOG.error("the changed key file is not used: %s", error)


def every_key(keyrings: Iterable[Keyring | None]) -> Keyring | None:
    """The keys of all networks of a node in one ring, those that seal first; None if there are none."""
    rings = [each.keys for each in keyrings if each is not None]
    keys = dict.fromkeys((*(each[0] for each in rings), *(key for each in rings for key in each)))
    return Keyring(tuple(keys)[:MOST_KEYS]) if keys else None


def _stamp(path: Path | None) -> tuple[int, int] | None:
    """Changes when the key file does."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size

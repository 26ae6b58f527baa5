"""The group key that a node uses, and the file it is in, which is looked after for changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from ordercast.errors import KeyProblem
from ordercast.keys import Keyring

LOG = logging.getLogger("ordercast")


class GroupKey:
    """The key in use; None where a group has none."""

    def __init__(self, keyring: Keyring | None, path: Path | None, rekey: Callable[[Keyring], None]) -> None:
        """`path`: where the key is, if it is in a file. `rekey` is called with every later key."""
        self.keyring = keyring
        self._path = path
        self._rekey = rekey
        self._stamp = _stamp(path)

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


def _stamp(path: Path | None) -> tuple[int, int] | None:
    """Changes when the key file does."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size

"""The trace of a real node: safe from kill -9 at once, Parquet later, bounded.

A node that is killed must not take with it the rows of what others have already seen, or the audit would find
messages that nobody originated. So the driver hands the rows of each turn to `Journal.append` before it
sends that turn's packets, and they are the kernel's when it returns (`ordercast.trace.blocks`). A full
journal file is finished and another begun; what is finished becomes Parquet in another process, one at a
time, so that neither the event loop nor its interpreter lock waits for it. If that falls behind, or where no
interpreter can be started (a frozen program), journals wait on disk: the reader takes them too.

**Trimmed traces.** Beyond `keep_files` the oldest parts of the node are deleted, and what is left does not
begin at the beginning. The auditor takes every trace for a whole one, and of one whose beginning is missing
it raises false alarms: what a node did before the first install that is left is outside any configuration
(``deliver-place``, ``deliver-originated``), messages whose origination was deleted were never originated
(``deliver-originated``), members whose install was deleted never installed (``safe``), and a node left in the
middle of a change begins with a transitional configuration (``config-chain``). So an audit of a trimmed trace
needs a bound from which on every node has all its rows: `ordercast.trace.trimmed.common_part` finds the
earliest, and leaves the rest out.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from ordercast.core.identity import NodeId
from ordercast.trace.blocks import BlockEncoder
from ordercast.trace.files import JOURNAL, part_stem, parts_of
from ordercast.trace.schema import About, Row, TraceError

LOG = logging.getLogger("ordercast")

ROWS_PER_FILE = 500_000
"""A journal of that many rows takes about 40 MB, and as Parquet about a tenth."""

KEEP_FILES = 64

_POLITE = 10
"""The niceness of a conversion beside a node that has work to do."""


class Journal:
    """Writes one life of a node into ``<run>-<node>-<incarnation>-<part>.journal``, then ``.parquet``.

    What earlier lives of the node left as journals is converted too. Other nodes may write
    into the same directory; each cares for its own files only.
    """

    def __init__(
        self,
        directory: Path,
        run: str,
        node: NodeId,
        incarnation: int,
        about: About = MappingProxyType({}),
        *,
        rows_per_file: int = ROWS_PER_FILE,
        keep_files: int | None = KEEP_FILES,
    ) -> None:
        """Begin the first file. `keep_files` None keeps all; otherwise it counts every part of this node.

        Raises `TraceError` if the directory cannot be written.
        """
        if not run:
            raise ValueError("a run needs a name: it is how a trace tells its runs apart")
        if rows_per_file < 1:
            raise ValueError(f"a file of the trace holds at least one row, not {rows_per_file}")
        if keep_files is not None and keep_files < 2:
            raise ValueError(
                f"keep_files counts the file being written and at least one more, not {keep_files}"
            )
        self.problem: str | None = None
        """Why the trace breaks off, if it does: a sentence. The node itself can go on without."""
        self._directory = directory
        self._run = run
        self._node = node
        self._incarnation = incarnation
        self._about = about
        self._rows_per_file = rows_per_file
        self._keep_files = keep_files
        self._encoder = BlockEncoder()
        self._part = 0
        self._rows = 0
        self._fd: int | None = None
        self._path = directory
        self._current: Path | None = None
        """From this one on nothing is converted: the one being written, or the last of a closed trace."""
        self._spoilt: set[Path] = set()
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            left = any(path.suffix == JOURNAL for path in self._files())
            self._begin_file()
        except OSError as error:
            raise TraceError(
                f"{directory}: {error.strerror}: give a directory for the trace that the node can write to, "
                "or run it without a trace."
            ) from error
        if left:
            self._wake_worker()

    def append(self, rows: Sequence[Row]) -> None:
        """Take the rows of a turn, in the node's order. They survive this process when it returns.

        An error of the disk breaks the trace off, with a line in the log; it does not raise, because
        the node can do without. `problem` says it from then on.
        """
        if not rows or self._fd is None:
            return
        try:
            _write(self._fd, self._encoder.block(rows))
            self._rows += len(rows)
            if self._rows >= self._rows_per_file:
                self._finish_file()
                self._begin_file()
                self._wake_worker()
        except OSError as error:
            self.problem = (
                f"{self._path}: {error.strerror}: the trace of node {self._node} ends here, and cannot be "
                "audited beyond. Make room and start the node again to trace it."
            )
            LOG.error("%s", self.problem)
            self._finish_file()

    def close(self, *, convert: bool = True) -> None:
        """Finish the last file, and wait until all is Parquet; without `convert` journals stay as they are.

        It can take a second or more: call it from a thread if others wait for this one. Closing again does
        nothing.
        """
        if self._fd is not None:
            self._finish_file()
        if convert:
            self._current = None
        if convert and any(path.suffix == JOURNAL for path in self._files()):
            self._wake_worker()
        if self._worker is not None:
            self._wake.put(False)
            if convert:
                self._worker.join()
            self._worker = None

    # --- the file being written -----------------------------------------------------------------

    def _begin_file(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        taken = self._parts()
        while True:
            stem = part_stem(self._run, self._node, self._incarnation, self._part)
            self._path = self._directory / f"{stem}{JOURNAL}"
            if stem not in taken:
                with contextlib.suppress(FileExistsError):
                    self._fd = os.open(self._path, flags, 0o600)
                    break
            self._part += 1
        self._current = self._path
        self._rows = 0
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody converts it meanwhile
        _write(self._fd, self._encoder.opening(self._run, self._about))

    def _finish_file(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _parts(self) -> dict[str, list[Path]]:
        return parts_of(self._directory, self._run, self._node)

    def _files(self) -> list[Path]:
        return [path for files in self._parts().values() for path in files]

    # --- what is finished -----------------------------------------------------------------------

    def _wake_worker(self) -> None:
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="ordercast-trace", daemon=True)
            self._worker.start()
        self._wake.put(True)

    def _work(self) -> None:
        while self._wake.get():
            try:
                self._tidy()
            except OSError as error:
                LOG.warning("%s: %s: the journals of the trace wait there.", self._directory, error.strerror)

    def _tidy(self) -> None:
        """Convert all that is finished and delete what is too old."""
        self._trim()
        current = self._current
        waiting = [
            path
            for path in self._files()
            if path.suffix == JOURNAL and (current is None or path < current) and path not in self._spoilt
        ]
        if not waiting or not _can_start_python():
            return
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ordercast.trace.convert", *map(str, waiting)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # what is typed to stop the node does not stop this
        )
        if current is not None:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, _POLITE)
        _, said = process.communicate()
        if process.returncode:
            self._spoilt.update(path for path in waiting if path.exists())
            LOG.warning("the trace keeps journals that could not be made Parquet: %s", said.strip())
        self._trim()

    def _trim(self) -> None:
        if self._keep_files is None:
            return
        for files in list(self._parts().values())[: -self._keep_files]:
            for path in files:
                path.unlink(missing_ok=True)


def _write(fd: int, data: bytes | bytearray) -> None:
    written = os.write(fd, data)
    if written < len(data):  # a disk that is nearly full
        with memoryview(data) as rest:
            while written < len(data):
                written += os.write(fd, rest[written:])


def _can_start_python() -> bool:
    """Whether what runs us is an interpreter, and not a program that has one inside."""
    return not getattr(sys, "frozen", False) and "python" in Path(sys.executable or "").name.lower()

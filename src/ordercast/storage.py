"""Files and directories by path or by URI: on this machine, or in a store (`s3:`, `gs:`, `abfss:`, `hdfs:`).

Stores are reached through Arrow, which every process has that handles tables: no jar is needed, on no
worker. Nothing here relies on what stores lack: there is no renaming of what others may see, no file that is
only touched, no lock, and an object appears whole or not at all. Credentials and endpoints are those of the
environment (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL`` …), or of the URI as Arrow understands it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from ordercast.errors import OrdercastError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Where: TypeAlias = "str | Path | Location"
"""What names a file or directory: a path, a URI, or what was made of one."""

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
_ARROW = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}
"""What others call the schemes that Arrow knows."""
_WITH_DIRECTORIES = ("hdfs:", "viewfs:")
"""Stores in which a directory is more than the beginning of a name."""
STORES = ("s3", "gs", "hdfs", "viewfs", "abfss")


class StorageError(OrdercastError):
    """A URI that cannot be used. The message says what to do."""


class Entry(NamedTuple):
    """What a directory holds."""

    location: Location
    is_directory: bool
    size: int
    """Bytes; of a directory 0."""


@dataclass(frozen=True, order=True)
class Location:
    """A file or a directory, whether there is one or not."""

    store: str
    """Where it is, as a URI without a path; "" is this machine."""
    path: str

    @classmethod
    def of(cls, where: Where) -> Location:
        """From a path or a URI. Raises `StorageError` if nobody knows its scheme."""
        if isinstance(where, Location):
            return where
        if isinstance(where, Path):
            return cls("", str(where))
        if where.startswith("file:"):
            return cls("", unquote(urlsplit(where).path) or ".")
        found = _SCHEME.match(where)
        if found is None:
            return cls("", where)
        scheme = found[1].lower()
        scheme = _ARROW.get(scheme, scheme)
        if scheme not in STORES:
            raise StorageError(
                f"{where}: nothing is known of {found[1]}: give a path, or a URI that begins with "
                f"{', '.join(f'{each}:' for each in ('file', 's3', 's3a', *STORES[1:]))}"
            )
        rest, _, query = where[found.end() :].partition("?")
        authority, _, path = rest.partition("/")
        return cls(f"{scheme}://{authority}{'?' if query else ''}{query}", path.rstrip("/"))

    def __str__(self) -> str:
        """As it is told to people: without a secret that the URI holds."""
        if not self.store:
            return self.path
        scheme, _, rest = self.store.partition("://")
        authority = rest.partition("?")[0].rpartition("@")[2]
        return f"{scheme}://{authority}/{self.path}"

    @property
    def uri(self) -> str:
        """What leads back to it, from any machine that has the environment of this one."""
        if not self.store:
            return str(Path(self.path).resolve())
        base, _, query = self.store.partition("?")
        return f"{base}/{self.path}{'?' if query else ''}{query}"

    def __truediv__(self, name: str) -> Location:
        """What is called so in this directory; `name` may lead through several."""
        if not self.store:
            return Location("", str(Path(self.path) / name))
        return Location(self.store, f"{self.path}/{name}" if self.path else name)

    @property
    def local(self) -> Path | None:
        """Where it is on this machine, if it is there."""
        return None if self.store else Path(self.path)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def stem(self) -> str:
        """The last part of the path, without its suffix."""
        return PurePosixPath(self.path).stem

    @property
    def suffix(self) -> str:
        """What follows the last dot of the name, and the dot."""
        return PurePosixPath(self.path).suffix

    @property
    def parent(self) -> Location:
        """The directory that it is in."""
        above = str(PurePosixPath(self.path).parent)
        return Location(self.store, "" if self.store and above == "." else above)

    # --- what is there --------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether there is such a file or directory."""
        return self.is_file() or self.is_directory()

    def is_file(self) -> bool:
        """Whether there is such a file."""
        if not self.store:
            return Path(self.path).is_file()
        system, path = self._arrow()
        return bool(system.get_file_info(path).is_file)

    def is_directory(self) -> bool:
        """Whether there is such a directory: in a store, anything below that name."""
        if not self.store:
            return Path(self.path).is_dir()
        return any(True for _ in self.entries())

    def entries(self) -> Iterator[Entry]:
        """What the directory holds, by name; nothing if there is no such directory."""
        if not self.store:
            try:
                with os.scandir(self.path) as found:
                    there = sorted(found, key=lambda entry: entry.name)
            except FileNotFoundError:
                return
            for each in there:
                is_directory = each.is_dir()
                size = 0 if is_directory or not each.is_file() else each.stat().st_size
                yield Entry(Location("", each.path), is_directory, size)
            return
        from pyarrow.fs import FileSelector, FileType

        system, path = self._arrow()
        found = system.get_file_info(FileSelector(path, allow_not_found=True))
        for info in sorted(found, key=lambda info: info.base_name):
            if info.type is not FileType.NotFound and info.base_name:
                is_directory = info.type is FileType.Directory
                yield Entry(self / info.base_name, is_directory, 0 if is_directory else info.size)

    def names(self) -> set[str]:
        """What the directory holds, without a look at each; nothing if there is no such directory."""
        if not self.store:
            try:
                return set(os.listdir(self.path))
            except FileNotFoundError:
                return set()
        return {entry.location.name for entry in self.entries()}

    # --- reading and writing --------------------------------------------------------------------

    def open(self) -> Any:
        """The file, to be read at any place. Raises `OSError`."""
        if not self.store:
            import pyarrow as pa

            return pa.OSFile(self.path)
        system, path = self._arrow()
        return system.open_input_file(path)

    def read(self) -> bytes:
        """All of the file. Raises `OSError`, of which `FileNotFoundError` is one."""
        if not self.store:
            return Path(self.path).read_bytes()
        with self.open() as file:
            data: bytes = file.read()
        return data

    def make(self) -> None:
        """Make the directory, if there is none; in most stores there is nothing to make. Raises `OSError`."""
        if not self.store:
            Path(self.path).mkdir(parents=True, exist_ok=True)
        elif self.store.startswith(_WITH_DIRECTORIES):
            system, path = self._arrow()
            system.create_dir(path, recursive=True)

    def put(self, data: bytes | memoryview) -> None:
        """Write a file: it is there whole, or as it was before. Directories are made. Raises `OSError`."""
        if not self.store:
            _put_here(Path(self.path), data)
            return
        with self.create() as file:
            file.write(data)  # all at once: nothing that could fail lies between it and the end

    def create(self) -> Any:
        """A file in a store, to be written from its beginning on; it is there once it is closed."""
        self.parent.make()
        system, path = self._arrow()
        return system.open_output_stream(path)

    def remove(self) -> None:
        """Delete the file, if there is one."""
        if not self.store:
            Path(self.path).unlink(missing_ok=True)
            return
        system, path = self._arrow()
        try:
            system.delete_file(path)
        except FileNotFoundError:
            return

    def _arrow(self) -> tuple[FileSystem, str]:
        system, base = _system(self.store)
        return system, f"{base}/{self.path}".strip("/") if base else self.path


@lru_cache(maxsize=32)
def _system(store: str) -> tuple[FileSystem, str]:
    """The file system of a store, and what stands before all its paths."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        system, base = FileSystem.from_uri(store)
    except (pa.ArrowException, OSError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise StorageError(f"{Location(store, '')} cannot be used: {said}") from error
    return system, base


def _put_here(path: Path, data: bytes | memoryview) -> None:
    """By another name first, and then by its own: readers on this machine see no half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise

"""Group keys: what they are, the file that holds them, and how they are changed while the group runs.

A group key is 32 random bytes that every node of the group has. A *keyring* holds one or more: the
first seals, all of them open. So a key is changed in three steps, each of which reaches every node
before the next begins, and at no moment does a node seal with a key that another does not know:

1. `add`: a new key is put last. Every node accepts it, none uses it.
2. `promote`: the last key is put first. Nodes go over to it one by one; the old one is still accepted.
3. `prune`: all keys but the first are forgotten.

A key file is text: a key a line, ``#`` begins a comment. Only its owner may read it. No message, and
no `repr`, ever shows a key; they are called by their `key_id`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from ordercast.errors import KeyProblem
from ordercast.extras import need
from ordercast.plain_file import NotPlain, read_open

KEY_SIZE = 32
PREFIX = "ordercast-key-1:"
"""What a key begins with where it is written as text."""
MOST_KEYS = 16
"""A rollover needs two."""

_LONGEST_FILE = 65_536
_LINE = re.compile(re.escape(PREFIX) + r"([A-Za-z0-9_-]{43})=?")
_PREAMBLE = """\
# The key of an ordercast group: the same file at every node, readable by its owner alone.
# The first key seals, all of them open. To change it while the group runs: ordercast keygen --add
"""


def generate() -> bytes:
    """A new random key."""
    return secrets.token_bytes(KEY_SIZE)


def key_id(key: bytes) -> int:
    """32 bits by which packets and people call a key; they tell nothing about it."""
    return int.from_bytes(hashlib.sha256(b"ordercast 1 key id" + key).digest()[:4], "big")


def derived(key: bytes, salt: bytes, purpose: str, size: int = KEY_SIZE) -> bytes:
    """`size` bytes that follow from a key, a salt and a purpose, and do not tell the key (HKDF-SHA256)."""
    need("seal", "a group key")
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), size, salt, f"ordercast 1 {purpose}".encode()).derive(key)


def written(key: bytes) -> str:
    """A key as text, in one line."""
    return PREFIX + base64.urlsafe_b64encode(key).decode().rstrip("=")


class Keyring:
    """The keys of a group: the first seals, all of them open. Never changed: a new one is made."""

    __slots__ = ("ids", "keys")

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        if not keys:
            raise KeyProblem("A keyring needs at least one key: make one with `ordercast keygen`.")
        if len(keys) > MOST_KEYS:
            raise KeyProblem(
                f"A keyring holds at most {MOST_KEYS} keys, not {len(keys)}: "
                "forget all but the first with `ordercast keygen --prune`."
            )
        for key in keys:
            if len(key) != KEY_SIZE:
                raise KeyProblem(
                    f"A key is {KEY_SIZE} bytes, not {len(key)}: make one with `ordercast keygen`; "
                    "a password will not do."
                )
        self.keys = tuple(map(bytes, keys))
        self.ids = tuple(map(key_id, keys))
        """What the keys are called, in the same order."""
        if len(set(self.ids)) < len(keys):
            raise KeyProblem("The same key is there twice: take one of the two out.")

    @classmethod
    def of(cls, given: str | bytes | Path | Keyring) -> Keyring:
        """The keyring that is meant: a key as text or as bytes, or the path of a key file."""
        match given:
            case Keyring():
                return given
            case bytes():
                return cls((given,))
            case "":
                raise KeyProblem(
                    "The key is an empty text: name a key file, or leave the key out for a group without one."
                )
            case str() if given.lstrip().startswith(PREFIX):
                return cls.parse(given)
            case str() | Path():
                return cls.load(given)
        raise KeyProblem(
            f"A key is a path, a text that begins with {PREFIX} or {KEY_SIZE} bytes, "
            f"not of type {type(given).__name__}: pass the path of a file made with `ordercast keygen`."
        )

    @classmethod
    def parse(cls, text: str, source: str = "the text") -> Keyring:
        """The keys in the text of a key file; `source` names it where something is wrong."""
        lines = text.splitlines()
        places = _key_lines(lines, source)
        if not places:
            raise KeyProblem(
                f"There is no key in {source}: make a new file with `ordercast keygen`, "
                "or copy that of another node."
            )
        try:
            return cls(tuple(_key_in(lines[place]) for place in places))
        except KeyProblem as problem:
            raise KeyProblem(f"In {source}: {problem}") from None

    @classmethod
    def load(cls, path: str | Path) -> Keyring:
        """The keys in a file that nobody but its owner can read."""
        return cls.parse(_read(Path(path))[0], str(path))

    def __len__(self) -> int:
        return len(self.keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyring) and self.keys == other.keys

    def __hash__(self) -> int:
        return hash(self.keys)

    def __repr__(self) -> str:
        return f"<Keyring {' '.join(map('{:08x}'.format, self.ids))}>"


# --- key files ---------------------------------------------------------------------------------


def create(path: str | Path) -> Keyring:
    """A new file with a new key. A file that is there stays as it is."""
    path = Path(path)
    key = generate()
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # the name is ours now
    except FileExistsError:
        raise KeyProblem(
            f"{path} is there already and was left as it is: name another file, or give this one "
            f"a further key with `ordercast keygen --add {path}`."
        ) from None
    except OSError as error:
        raise _not_written(path, error) from error
    try:
        _replace(path, f"{_PREAMBLE}{written(key)}\n", os.stat(path))
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    return Keyring((key,))


def add(path: str | Path) -> Keyring:
    """First step of a rollover: a new key, accepted but not used."""

    def added(lines: list[str], places: list[int]) -> list[str]:
        if len(places) == MOST_KEYS:
            raise KeyProblem(
                f"{path} holds {MOST_KEYS} keys already, which is the most: "
                f"forget all but the first with `ordercast keygen --prune {path}`."
            )
        return [*lines, written(generate())]

    return _change(Path(path), added)


def promote(path: str | Path) -> Keyring:
    """Second step: the last key seals, the others are still accepted."""

    def promoted(lines: list[str], places: list[int]) -> list[str]:
        if len(places) == 1:
            raise KeyProblem(
                f"{path} holds a single key, so there is none to promote: "
                f"begin with `ordercast keygen --add {path}`."
            )
        first, last = places[0], places[-1]
        return [*lines[:first], lines[last], *lines[first:last], *lines[last + 1 :]]

    return _change(Path(path), promoted)


def prune(path: str | Path) -> Keyring:
    """Last step: all keys but the first are forgotten."""

    def pruned(lines: list[str], places: list[int]) -> list[str]:
        if len(places) == 1:
            raise KeyProblem(f"{path} holds a single key, so there is none to forget: nothing was changed.")
        return [line for place, line in enumerate(lines) if place not in places[1:]]

    return _change(Path(path), pruned)


def _change(path: Path, how: Callable[[list[str], list[int]], list[str]]) -> Keyring:
    """Write a file anew, comments and all; every node has it as it was or as it is to be."""
    text, status = _read(path)
    Keyring.parse(text, str(path))
    lines = text.splitlines()
    changed = "".join(f"{line}\n" for line in how(lines, _key_lines(lines, str(path))))
    keyring = Keyring.parse(changed, str(path))
    _replace(path, changed, status)
    return keyring


def _key_lines(lines: list[str], source: str) -> list[int]:
    """Where the keys are. A line is a key, a comment or empty."""
    places = []
    for place, line in enumerate(lines):
        statement = _statement(line)
        if not statement:
            continue
        if not _LINE.fullmatch(statement):
            raise KeyProblem(
                f"Line {place + 1} of {source} is no key: it should be {PREFIX} and 43 letters behind it, "
                "as `ordercast keygen -` prints. Copy it again from a node that works."
            )
        places.append(place)
    return places


def _statement(line: str) -> str:
    return line.partition("#")[0].strip()


def _key_in(line: str) -> bytes:
    match = _LINE.fullmatch(_statement(line))
    assert match
    return base64.urlsafe_b64decode(match[1] + "=")


def _read(path: Path) -> tuple[str, os.stat_result]:
    """The text of a key file and what it is, if it is a file that only its owner can read."""
    try:
        with open(path, "rb", buffering=0, opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
                raise KeyProblem(f"{path} is no file: name a key file, as `ordercast keygen` makes them.")
            if os.name == "posix" and status.st_mode & 0o077:
                raise KeyProblem(
                    f"Others than its owner may use the key file {path} (its mode is "
                    f"{stat.S_IMODE(status.st_mode):04o}): close it with `chmod 600 {path}`, and change the "
                    "key if somebody may have read it."
                )
            data = read_open(file.fileno(), _LONGEST_FILE)
    except FileNotFoundError:
        raise KeyProblem(
            f"There is no key file {path}: make one with `ordercast keygen {path}`, "
            "or copy that of another node."
        ) from None
    except IsADirectoryError:
        raise KeyProblem(
            f"{path} is a directory: name the key file in it, as `ordercast keygen` makes them."
        ) from None
    except PermissionError:
        raise KeyProblem(
            f"The key file {path} may not be read by this user: run as its owner, or give it to this user "
            "with `chown`."
        ) from None
    except NotPlain as error:
        raise KeyProblem(
            f"{path} cannot be the key file ({error}): name one made with `ordercast keygen`."
        ) from error
    except (OSError, ValueError) as error:  # ValueError: no name of a file at all
        raise KeyProblem(f"The key file {path} cannot be read ({error}): see to that first.") from error
    try:
        return data.decode("utf-8"), status
    except UnicodeDecodeError:
        raise KeyProblem(f"{path} is not text: name a key file made with `ordercast keygen`.") from None


def _without_waiting(path: str, flags: int) -> int:
    """Open a pipe that nobody writes into yet, too."""
    return os.open(path, flags | os.O_NONBLOCK)


def _replace(path: Path, text: str, status: os.stat_result) -> None:
    """Put a new text in the place of a file, all of it or nothing; owner and mode stay as they are."""
    path = Path(os.path.realpath(path))  # a link goes on pointing at it
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # its mode is 0600
        try:
            with open(descriptor, "wb") as file:
                if os.name == "posix":
                    mine = os.fstat(descriptor)
                    if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
                        os.fchown(descriptor, status.st_uid, status.st_gid)
                    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
                file.write(text.encode("utf-8"))
                file.flush()
                os.fsync(descriptor)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        if os.name == "posix":
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
    except OSError as error:
        raise _not_written(path, error) from error


def _not_written(path: Path, error: OSError) -> KeyProblem:
    return KeyProblem(
        f"The key file {path} cannot be written ({error.strerror}): "
        "choose a directory that is there and that you may write to."
    )

"""Random damage to a file: cut, flipped bits, zeroed bytes, an older version, another file, junk, or gone."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

KINDS = ("cut", "flip", "zero", "older", "swap", "junk", "delete", "garbage")


def files_in(directory: Path) -> list[Path]:
    """The files that can be damaged, in a fixed order."""
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def damage(chance: random.Random, directory: Path, older: Path | None, only: tuple[str, ...] = KINDS) -> str:
    """Do one damage to one file below `directory`; `older` is a copy of the directory as it once was.

    Returns what was done, for the report. Files are changed in place, as by a failing disk.
    """
    files = files_in(directory)
    kinds = [
        kind for kind in only if (older is not None or kind != "older") and (len(files) > 1 or kind != "swap")
    ]
    path = chance.choice(files)
    kind = chance.choice(kinds)
    if not path.stat().st_size and kind in ("cut", "flip", "zero"):
        kind = "junk"
    name = path.relative_to(directory)
    size = path.stat().st_size
    match kind:
        case "cut":
            length = chance.choice((0, size // 2, max(0, size - 1), chance.randrange(size)))
            os.truncate(path, length)
            return f"cut {name} from {size} to {length} bytes"
        case "flip":
            data = bytearray(path.read_bytes())
            places = sorted({chance.randrange(size) for _ in range(chance.choice((1, 1, 3, 20)))})
            for place in places:
                data[place] ^= 1 << chance.randrange(8)
            _overwrite(path, bytes(data))
            return f"flip bits of {name} at {places}"
        case "zero":
            begin = chance.randrange(size)
            length = min(size - begin, chance.choice((1, 16, 512, 4096, size)))
            data = bytearray(path.read_bytes())
            data[begin : begin + length] = bytes(length)
            _overwrite(path, bytes(data))
            return f"zero {length} bytes of {name} at {begin}"
        case "older":
            assert older is not None
            old = [one for one in files_in(older) if one.relative_to(older) == name] or files_in(older)
            source = chance.choice(old)
            target = directory / source.relative_to(older)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            return f"put back an older {source.relative_to(older)}"
        case "swap":
            other = chance.choice([one for one in files if one != path])
            mine, theirs = path.read_bytes(), other.read_bytes()
            _overwrite(path, theirs)
            _overwrite(other, mine)
            return f"swap {name} and {other.relative_to(directory)}"
        case "junk":
            with path.open("ab") as file:
                file.write(chance.randbytes(chance.choice((1, 100, 5000))))
            return f"append junk to {name}"
        case "delete":
            path.unlink()
            return f"delete {name}"
        case _:
            _overwrite(path, chance.randbytes(size))
            return f"overwrite {name} with garbage"


def _overwrite(path: Path, data: bytes) -> None:
    """The same file, with other bytes."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()

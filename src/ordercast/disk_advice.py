"""What a user can do about a disk that refuses something."""

from __future__ import annotations

import errno


def advice(error: OSError, room: str, otherwise: str) -> str:
    """A sentence for this error. `room`: how room is made; `otherwise`: what else to look at."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return f"{room}, and start it again."
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return "Make the directory writable for the user that runs the node, or give it another one."
        case errno.EMFILE | errno.ENFILE:
            return "Allow the process more open files (`ulimit -n`), and start it again."
    return otherwise

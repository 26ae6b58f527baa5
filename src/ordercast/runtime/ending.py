"""What becomes of a node when something is raised on its event loop: it ends, and says why."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ordercast.errors import OrdercastError, StorageProblem

LOG = logging.getLogger("ordercast")


class EndingOnError:
    """An error that a user can do something about ends the node with it; any other is a defect of ours."""

    __slots__ = ("_end",)

    def __init__(self, end: Callable[[BaseException], None]) -> None:
        self._end = end

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            return False
        if isinstance(error, StorageProblem):
            LOG.error("%s", error)
        elif not isinstance(error, OrdercastError):
            LOG.critical("the node stops: a defect in ordercast", exc_info=error)
        self._end(error)
        return isinstance(error, Exception)

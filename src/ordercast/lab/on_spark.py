"""Work that Spark does while somebody looks how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from ordercast.lab.grid import LabError
from ordercast.storage import Location

ATTEMPTS = 4
"""Attempts that Spark makes at a task, on a cluster as on this machine."""
POLL_S = 0.5
POLL_STORE_S = 5.0
"""How often a directory in a store is listed: each time a request or more."""
T = TypeVar("T")


@contextmanager
def spark_gave_up(directory: Location) -> Iterator[None]:
    """What Spark raises inside is told as a `LabError`."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise LabError(
            f"Spark gave up: {lines[0] if lines else error}. What was done is kept in {directory}: "
            "the same command goes on from there"
        ) from error


def meanwhile(work: Callable[[], T], look: Callable[[], None], directory: Location) -> T:
    """Do the work in a thread, and look now and then what of it there is in the directory.

    An interrupt comes to this thread, which is not the one that talks to Spark: it can be heard at once.
    """
    looked = 0.0
    with ThreadPoolExecutor(1, "ordercast-lab") as pool:
        job = pool.submit(work)
        while not wait([job], POLL_S).done:
            now = time.monotonic()
            if directory.local is not None or now - looked >= POLL_STORE_S:
                looked = now
                look()
        return job.result()

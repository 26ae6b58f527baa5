"""A replicated object in Spark: it carries out what its replicas tell, in the order of the history.

Its state is in Spark's own store of states, and so goes on after a restart where it was.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ordercast.errors import ConfigProblem, MissingExtra
from ordercast.replicated.follower import Follower
from ordercast.replicated.replicated import Replicated, Subject

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues

T = TypeVar("T", bound=Replicated)
SCHEMA = "group string, position long, time timestamp, fingerprint string, state string"
_NEEDED = ("group", "payload", "position")
_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def follow(log: DataFrame, make: Callable[[], Replicated]) -> DataFrame:
    """See `ordercast.streaming.replica`."""
    try:
        import_module("google.protobuf")
    except ImportError:
        raise MissingExtra(
            "a replica in Spark needs protobuf, not installed here: pip install 'ordercast[spark]' brings it"
        ) from None
    missing = [name for name in _NEEDED if name not in log.columns]
    if missing or not log.isStreaming:
        raise ConfigProblem(
            f"a replica follows a stream of the ordered log with the columns {', '.join(_NEEDED)}: "
            + (
                f"this lacks {', '.join(missing)}"
                if missing
                else "take spark.readStream in place of spark.read"
            )
        )
    made = Subject(make())  # what is wrong with it is said here, and not by a task
    try:
        cloudpickle.dumps(make)  # type: ignore[no-untyped-call]
    except (TypeError, pickle.PicklingError) as error:
        raise ConfigProblem(
            f"{type(made.target).__name__} cannot go to tasks as it is ({error}): put it, and the classes "
            "that its fields have, into a module of their own, beside the program"
        ) from error
    log.sparkSession.conf.set(_STORE, _ROCKS)
    told = log.where("payload is not null").select(*_NEEDED)
    return told.groupBy("group").transformWithState(_Following(make), SCHEMA, "Append", "None")


class _Following(StatefulProcessor, Generic[T]):
    """Carries out what is told in the groups of a partition."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._kept: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """A task begins."""
        self._kept = handle.getValueState("follower", "saved binary")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterable[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        """What came in one group, in any order."""
        kept = self._kept.get()
        follower = Follower(self._make(), None if kept is None else bytes(kept[0]))
        before = follower.head
        for row in sorted(rows, key=lambda row: tuple(row["position"])):
            for taken in follower.deliver(bytes(row["payload"])):
                yield _row(key, follower, fingerprint=taken)
        self._kept.update((follower.saved(),))
        if follower.head != before:
            yield _row(key, follower, state=_json(follower.target))

    def close(self) -> None:
        """A task ends."""


def _row(key: Any, follower: Follower[Any], fingerprint: str | None = None, state: str | None = None) -> Row:
    position = follower.target.position if fingerprint is None else int(fingerprint.partition("/")[0])
    time = datetime.fromtimestamp(follower.target.now_us / 1_000_000, UTC)
    return Row(group=key[0], position=position, time=time, fingerprint=fingerprint, state=state)


def _json(target: Replicated) -> str:
    fields = {each.name: getattr(target, each.name) for each in target._fields}
    try:
        return msgspec.json.encode(fields).decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigProblem(f"the state of a {type(target).__name__} cannot be JSON: {error}") from error

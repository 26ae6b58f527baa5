"""``df.writeStream.format("ordercast")`` and ``df.write.format("ordercast")``: rows into a group, each once.

A task is a producer: its rows are numbered, and a task that is tried again, or a batch that is replayed, goes
on behind what the group has delivered. That needs the same rows in the same order from the same task, which a
deterministic plan gives; where a replay differs in what was delivered before, the task fails and says so.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from ordercast.errors import ConfigProblem, OrdercastError
from ordercast.keys import Keyring
from ordercast.log.client import Connection
from ordercast.streaming.options import Writing
from ordercast.streaming.producer import Producer, Task, commit

COLUMN = "payload"
CONNECT_S = 5.0
"""How long a node may take to be connected to."""


@dataclass
class Written(WriterCommitMessage):
    """What a task did."""

    rows: int
    sent: int
    """Rows that had not been delivered before."""
    job: bytes
    """What the group knows the query by."""


def checked_schema(schema: StructType, overwrite: bool) -> StructType:
    """The schema, if it is one that can be written."""
    if overwrite:
        raise ConfigProblem("what a group delivered cannot be overwritten: write with mode('append')")
    names = schema.fieldNames()
    kinds = {field.name: field.dataType for field in schema.fields}
    if names != [COLUMN] or not isinstance(kinds[COLUMN], BinaryType | StringType):
        told = ", ".join(f"{name} {kinds[name].simpleString()}" for name in names)
        raise ConfigProblem(
            f"a row is a message, so there is one column, {COLUMN}, binary or string; this has {told}: "
            f"select one, as in df.select(to_json(struct('*')).alias('{COLUMN}'))"
        )
    return schema


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, told: Writing, schema: StructType) -> None:
        self._told = told

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one task of a batch."""
        context = _context()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query is not None, "a streaming task knows its query"
        assert batch is not None, "and its batch"
        return _write(self._told, query, int(batch), context, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """All tasks of the batch are done: the group need not remember them any more."""
        for message in messages:  # Spark runs one at least
            if isinstance(message, Written):
                _commit(self._told, message.job, batchId, done=False)
                return


class BatchWriter(DataSourceArrowWriter):
    """Writes a table, once."""

    def __init__(self, told: Writing, schema: StructType) -> None:
        self._told = told
        self._job = uuid.uuid4().hex
        """Made where the job is planned, and the same at all its tasks."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one task."""
        return _write(self._told, self._job, 0, _context(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done: the group need not remember them any more."""
        _commit(self._told, _job(self._job, self._told.group), 0, done=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The write has failed, and nobody tries these tasks again: another write is another job."""
        with suppress(OrdercastError):  # Spark says why it failed; what is left is forgotten after a week
            _commit(self._told, _job(self._job, self._told.group), 0, done=True)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    return context


def _write(
    told: Writing, query: str, batch: int, context: TaskContext, iterator: Iterator[pa.RecordBatch]
) -> Written:
    run = context.getLocalProperty("spark.jobGroup.id")  # of a streaming query, what tells its runs apart
    partition = context.partitionId()
    job = _job(query, told.group)
    task = Task(
        told.group,
        job + partition.to_bytes(4, "big"),
        batch,
        _digest(run or uuid.uuid4().hex)[:8],
        context.taskAttemptId(),
        told.accept_unknown,
    )
    with Producer(_connect(told), told.access, task, first=partition) as producer:
        for some in iterator:
            producer.write(_payloads(some))
        return Written(*producer.finish(), job)


def _connect(told: Writing) -> Callable[[str], Connection]:
    keyring = None if told.access.key is None else Keyring.of(told.access.key)
    return lambda where: Connection(where, keyring, CONNECT_S)


def _commit(told: Writing, job: bytes, batch: int, *, done: bool) -> None:
    commit(_connect(told), told.access, told.group, job, batch, done=done)


def _job(query: str, group: str) -> bytes:
    """What a group knows a query by."""
    return _digest(f"{query}/{group}")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


def _payloads(batch: pa.RecordBatch) -> list[bytes]:
    column = batch.column(0)
    if column.null_count:
        raise ConfigProblem(
            f"{column.null_count} rows have no {COLUMN}: leave them out, as in "
            f"df.where('{COLUMN} is not null')"
        )
    payloads: list[bytes] = column.cast(pa.binary()).to_pylist()
    return payloads

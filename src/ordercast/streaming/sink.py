"""``df.writeStream.format("ordercast")`` and ``df.write.format("ordercast")``: rows into groups, each once.

A task is a producer, and where a column says the group one for each group: its rows are numbered, and a task
that is tried again, or a batch that is replayed, goes on behind what the group has delivered. That needs the
same rows in the same order from the same task, which a deterministic plan gives; where a replay differs in
what was delivered before, the task fails and says so.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ordercast.errors import ConfigProblem, OrdercastError
from ordercast.keys import Keyring
from ordercast.log.client import Connection
from ordercast.streaming.messages import Form, rows_by_group
from ordercast.streaming.options import Writing
from ordercast.streaming.producer import Producer, Task, check_reachable, commit

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


def checked_schema(schema: StructType, told: Writing, overwrite: bool) -> Form:
    """What is in which column, if that can be written, and a node is there to take it."""
    if overwrite:
        raise ConfigProblem("what a group delivered cannot be overwritten: write with mode('append')")
    form = Form.of(schema)
    if form.group is None and told.group is None:
        raise ConfigProblem(
            'the option group is missing: name the group to write to, as in "orders"; or let a column group '
            "say it of each row"
        )
    if form.group is not None and told.group is not None:
        raise ConfigProblem(
            f"the option group ({told.group}) and a column {form.group} both say where rows go: leave one out"
        )
    check_reachable(_connect(told), told.access, told.connect_s)
    return form


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, told: Writing, form: Form) -> None:
        self._told, self._form = told, form

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one task of a batch."""
        context = _context()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query is not None, "a streaming task knows its query"
        assert batch is not None, "and its batch"
        return _write(self._told, self._form, query, int(batch), context, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """All tasks of the batch are done: the group need not remember them any more."""
        for message in messages:  # Spark runs one at least
            if isinstance(message, Written):
                _commit(self._told, message.job, batchId, done=False)
                return


class BatchWriter(DataSourceArrowWriter):
    """Writes a table, once."""

    def __init__(self, told: Writing, form: Form) -> None:
        self._told, self._form = told, form
        self._job = uuid.uuid4().hex
        """Made where the job is planned, and the same at all its tasks."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        return _write(self._told, self._form, self._job, 0, _context(), iterator)

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
    told: Writing,
    form: Form,
    query: str,
    batch: int,
    context: TaskContext,
    iterator: Iterator[pa.RecordBatch],
) -> Written:
    run = context.getLocalProperty("spark.jobGroup.id")  # of a streaming query, what tells its runs apart
    partition = context.partitionId()
    job = _job(query, told.group)
    run_name = _digest(run or uuid.uuid4().hex)[:8]
    attempt = context.taskAttemptId()
    producers: dict[str, Producer] = {}
    with ExitStack() as stack:
        for some in iterator:
            if told.ordered and partition and some.num_rows:
                raise ConfigProblem(
                    "ordered is true, and the rows come in several partitions, which are written side by "
                    "side: put them into one, as in df.repartition(1).sortWithinPartitions(…)"
                )
            for group, rows in rows_by_group(some, form, told.group):
                if group not in producers:
                    name = job + partition.to_bytes(4, "big") + (b"" if told.group else _digest(group)[:8])
                    unknown = told.accept_unknown
                    task = Task(group, name, batch, run_name, attempt, unknown, form.headed)
                    producer = Producer(
                        _connect(told), told.access, task, first=partition, connect_s=told.connect_s
                    )
                    producers[group] = stack.enter_context(producer)
                producers[group].write(rows)
        finished = [producer.finish() for producer in producers.values()]
    return Written(sum(rows for rows, _ in finished), sum(sent for _, sent in finished), job)


def _connect(told: Writing) -> Callable[[str], Connection]:
    keyring = None if told.access.key is None else Keyring.of(told.access.key)
    return lambda where: Connection(where, keyring, CONNECT_S)


def _commit(told: Writing, job: bytes, batch: int, *, done: bool) -> None:
    commit(_connect(told), told.access, told.group or "*", job, batch, done=done)


def _job(query: str, group: str | None) -> bytes:
    """What nodes know a query by: one that writes to several groups is one job."""
    return _digest(f"{query}/{group}" if group else query)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]

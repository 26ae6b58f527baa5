"""Traces that somebody has damaged, each in one way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def flip(file: Path, at: int, count: int = 8) -> None:
    data = bytearray(file.read_bytes())
    for place in range(at, at + count):
        data[place] ^= 0xFF
    file.write_bytes(bytes(data))


def in_a_page(file: Path) -> None:
    """In the data of a column that every reader needs."""
    metadata = pq.read_metadata(file)
    names = [metadata.row_group(0).column(at).path_in_schema for at in range(metadata.num_columns)]
    column = metadata.row_group(0).column(names.index("event"))
    flip(file, column.data_page_offset + column.total_compressed_size // 2)


def in_the_footer(file: Path) -> None:
    flip(file, file.stat().st_size - 400, 60)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def without_a_column(file: Path) -> None:
    pq.write_table(pq.read_table(file).drop_columns(["event"]), file)


def with_another_type(file: Path) -> None:
    table = pq.read_table(file)
    place = table.schema.get_field_index("node")
    pq.write_table(table.set_column(place, "node", pa.array(["x"] * len(table))), file)


def no_parquet(file: Path) -> None:
    file.write_text("event,node\nsend,1\n")


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def a_link_to_nothing(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.parent / "nothing")


def nothing_at_all(file: Path) -> None:
    file.unlink()


DAMAGES: tuple[Callable[[Path], None], ...] = (
    in_a_page,
    in_the_footer,
    cut,
    empty,
    without_a_column,
    with_another_type,
    no_parquet,
    a_directory,
    a_link_to_nothing,
    nothing_at_all,
)

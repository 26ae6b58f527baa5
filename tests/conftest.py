"""What tests of several packages share: one Spark session for all that run on Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What tests do in a JVM is over before its second compiler pays off, a third of the processor time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session that tries a task again when it fails, as a cluster does."""
    from ordercast.spark.session import spark_session

    settings = {"spark.sql.shuffle.partitions": 2, "spark.driver.memory": "2g"}
    with spark_session("tests", "local[2,4]", settings) as session:
        yield session


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on Spark are run by one process: a session is a JVM, and they share it."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))

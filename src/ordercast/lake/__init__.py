"""A lake of traces: runs, verdicts and results of many, kept as tables and asked in SQL."""

from ordercast.lake.delta import LakeError
from ordercast.lake.lake import Addition, Lake
from ordercast.lake.landing import Landed, Landing

__all__ = ["Addition", "Lake", "LakeError", "Landed", "Landing"]

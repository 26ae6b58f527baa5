"""Where Spark looks for a format called ordercast: a module of this name, and in it a class of that one."""

from ordercast.streaming.source import OrdercastSource


class DefaultSource(OrdercastSource):
    """``spark.read.format("ordercast")``."""

"""ordercast: the same messages, in the same order, at every member of a group."""

__version__ = "0.1.0"

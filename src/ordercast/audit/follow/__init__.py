"""The audit of traces that are still being written: what is decided is forgotten, the rest is held."""

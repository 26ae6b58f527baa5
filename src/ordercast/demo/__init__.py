"""A group of real processes through a crash and a stop, shown and proved: `ordercast demo`."""

"""The record of a run: its schema, how it is made, written and read."""

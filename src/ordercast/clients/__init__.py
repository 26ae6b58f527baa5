"""Processes that are no members: a node serves them over the NATS client protocol."""

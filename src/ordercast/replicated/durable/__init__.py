"""What of a replicated object is on this node's disk: a log of what was applied, and a snapshot of the
state."""

"""Objects that are the same at every node that replicates them: commands in the one order, and a state.

A class with `@command` methods (`command.py`, `replicated.py`); how its state becomes bytes (`state.py`),
and what is remembered of who asked for what (`sessions.py`). `machine.py` is the pure machine of one
replica. It agrees with the others on the history that counts (`agreement.py`, `quorum.py`). `replica.py` is
the replica at a node, `replicas.py` has all of a node's, `transfer.py` carries states, and `durable` keeps
them on disk.
"""

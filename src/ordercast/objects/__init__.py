"""Ready-made replicated objects: what most applications would write for themselves.

`map.py`, `set.py`, `counter.py`, `queue.py` and `barrier.py` have a class each, whose objects are replicated
as any other (`Node.replicate`). `leases.py` is the state of all locks and elections of a network, `lock.py`
and `election.py` are what a node makes of it. `values.py` says how values travel.
"""

"""Process groups: who is in which group of processes, told in the order of the messages.

001, "The Totem Process Group Interface". A pure machine between an ordering machine, of any protocol, and the
application's processes at its node. Why it is as it is: ``docs/decisions/process-groups.md``.
"""

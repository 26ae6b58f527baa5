"""Fuzzing of replicated objects: for each seed other nodes, disks, objects, clients and faults.

`judge` runs one seed over a protocol and says what was wrong. It is for the laboratory, where defects are
planted that it has to notice; tests of applications use `ordercast.testing`, of which it is made.
"""

from __future__ import annotations

from ordercast.objects_fuzz.judge import OBJECTS as OBJECTS
from ordercast.objects_fuzz.judge import failure_of_objects as failure_of_objects
from ordercast.objects_fuzz.judge import judge as judge

__all__ = ["OBJECTS", "failure_of_objects", "judge"]

"""The options of pytest for tests in simulation: they choose a seed, and faults of it.

pytest loads this module whenever it runs, so it loads nothing else.
"""

from __future__ import annotations

import os
from typing import Any

_OPTIONS = (
    (
        "--ordercast-seed",
        "ORDERCAST_SEED",
        "run simulated tests with this seed, or with those of a range: 0:5000",
    ),
    (
        "--ordercast-faults",
        "ORDERCAST_FAULTS",
        "of the faults of that seed, those that happen: 2,5:0.25, or none",
    ),
)


def pytest_addoption(parser: Any) -> None:
    """Called by pytest."""
    group = parser.getgroup("ordercast", "tests in simulation (ordercast.testing.simulated)")
    for option, variable, help in _OPTIONS:
        group.addoption(option, metavar=variable.rpartition("_")[2], default=None, help=help)


def pytest_configure(config: Any) -> None:
    """Called by pytest. Tests find the options where scripts have them: in the environment."""
    for option, variable, _ in _OPTIONS:
        told = config.getoption(option)
        if told is not None:
            os.environ[variable] = told

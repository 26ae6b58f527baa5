"""What a running node loads stays light: Arrow costs more to load than all the rest together."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "ordercast.catalogue",
        "ordercast.audit.properties",
        "ordercast.runtime.storage",
        "ordercast.trace.journal",
        "ordercast.trace.recorder",
        "ordercast.trace.schema",
    ],
)
def test_a_node_does_not_load_arrow(module: str) -> None:
    script = f"import sys, {module}; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_schema_is_there_for_who_asks() -> None:
    from ordercast.trace import schema

    assert schema.SCHEMA is schema.SCHEMA
    assert schema.SCHEMA.names == list(schema.COLUMNS)
    with pytest.raises(AttributeError, match="SCHEMAS"):
        schema.SCHEMAS  # noqa: B018

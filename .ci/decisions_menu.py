"""For mkdocs: whatever decisions there are in docs/decisions, below the contributors' pages in the menu."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Called by mkdocs when it has read mkdocs.yml."""
    pages = sorted((Path(config.docs_dir) / "decisions").glob("*.md"))
    for part in config.nav:
        if isinstance(part, dict) and "Contributors" in part:
            part["Contributors"].append({"Decisions": [f"decisions/{page.name}" for page in pages]})
    return config

"""The frame of an SVG file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape


def sheet(width: float, height: float, title: str, style: str, body: Iterable[str]) -> Iterator[str]:
    """The lines of an SVG file of that size, in pixels, with a white ground behind the lines of its body."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-labelledby="title">'
    )
    yield f'<title id="title">{escape(title)}</title>'
    yield f"<style>{style}</style>"
    yield f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
    yield from body
    yield "</svg>"

"""What comes with an extra only: who needs it and has it not is told which `pip install` brings it."""

from __future__ import annotations

from importlib.util import find_spec

from ordercast.errors import MissingExtra

EXTRAS = {
    "log": ("pyarrow",),
    "lake": ("pyarrow", "deltalake"),
    "lab": ("pyarrow", "numpy", "pandas", "matplotlib"),
    "seal": ("cryptography",),
    "spark": ("pyarrow", "pandas", "pyspark"),
}
"""By extra, the modules by which its absence is noticed."""


def has(extra: str) -> bool:
    """Whether all that the extra brings is installed."""
    return not _missing(extra)


def need(extra: str, what: str) -> None:
    """Raise `MissingExtra` unless the extra is installed; `what` needs it, in words that begin a sentence."""
    missing = _missing(extra)
    if missing:
        raise MissingExtra(_sentence(what, " and ".join(missing), extra))


def missing_of(error: ImportError, what: str, extra: str) -> MissingExtra | None:
    """What to tell of a module that could not be imported; None if no extra brings it.

    `extra` is named if it brings the module, else the one that does.
    """
    module = (error.name or "").partition(".")[0]
    for name in (extra, *EXTRAS):
        if module in EXTRAS[name]:
            return MissingExtra(_sentence(what, module, name))
    return None


def _missing(extra: str) -> list[str]:
    return [module for module in EXTRAS[extra] if find_spec(module) is None]


def _sentence(what: str, modules: str, extra: str) -> str:
    return f"{what} needs {modules}, not installed here: pip install 'ordercast[{extra}]' brings all of it"

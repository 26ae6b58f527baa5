"""Modules that are compiled mean what they say: what mypyc would silently make something else of is seen."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
UNLIKE = ("NamedTuple", "Protocol", "Enum", "StrEnum", "IntEnum")
"""Classes of these are no native ones: what stands in their bodies are attributes of the class."""


def compiled_modules() -> list[Path]:
    """The modules that the build hook compiles, as `pyproject.toml` lists them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hook = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]
    left_out = set(hook["exclude"])
    found = {path for pattern in hook["include"] for path in ROOT.glob(pattern)}
    return sorted(path for path in found if not {path.name, path.relative_to(ROOT).as_posix()} & left_out)


def misunderstood(tree: ast.Module) -> Iterator[str]:
    """What means something else in a compiled module."""
    classes = {node.name: node.lineno for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        if node.keywords:
            yield f"line {node.lineno}: {node.name} would not get its {node.keywords[0].arg}"
        if any("runtime_checkable" in ast.unparse(decorator) for decorator in node.decorator_list):
            yield f"line {node.lineno}: nothing would be an instance of {node.name} but what derives from it"
        fields = [ast.walk(line.annotation) for line in node.body if isinstance(line, ast.AnnAssign)]
        names = {part.id for part in chain.from_iterable(fields) if isinstance(part, ast.Name)}
        for name in names if "NamedTuple" in map(ast.unparse, node.bases) else ():
            if classes.get(name, 0) > node.lineno:
                yield f"line {node.lineno}: {node.name} needs {name} above it, or the interpreter crashes"
        if any(ast.unparse(base).rpartition(".")[2].partition("[")[0] in UNLIKE for base in node.bases):
            continue
        for line in node.body:
            if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]).isupper():
                yield f"line {line.lineno}: {node.name} itself would not have {ast.unparse(line)}: ClassVar"


@pytest.mark.parametrize("path", compiled_modules(), ids=lambda path: path.stem)
def test_a_compiled_module_means_what_it_says(path: Path) -> None:
    assert not list(misunderstood(ast.parse(path.read_text("utf-8"))))


@pytest.mark.parametrize(
    "text",
    [
        "class A(msgspec.Struct, frozen=True):\n    x: int",
        "@runtime_checkable\nclass A(Protocol):\n    x: int",
        "class A:\n    NAME = 'a'",
        "class A(NamedTuple):\n    b: list[B]\n\n\nclass B:\n    pass",
    ],
)
def test_what_would_be_misunderstood_is_seen(text: str) -> None:
    assert list(misunderstood(ast.parse(text)))


def test_what_is_not_compiled_derives_from_nothing_that_is() -> None:
    """Where a class that is compiled is the base of one that is not, this one's module cannot be loaded.

    Planted defects are for the pure build alone.
    """
    native = {
        (".".join(path.relative_to(ROOT / "src").with_suffix("").parts), node.name)
        for path in compiled_modules()
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
        and not any(word in base for base in map(ast.unparse, node.bases) for word in (*UNLIKE, "Error"))
    }
    assert len(native) > 100
    package = ROOT / "src" / "ordercast"
    for path in set(package.rglob("*.py")) - set(compiled_modules()) - set(package.glob("mutants/*.py")):
        wrong = [base for base in bases_from_elsewhere(path) if base in native]
        assert not wrong, (
            f"{path} has a class that derives from {wrong[0]}, which is compiled: compile it, too"
        )


def bases_from_elsewhere(path: Path) -> Iterator[tuple[str | None, str]]:
    """What classes of a module derive from and other modules define: which module, and the name there."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    imported = {
        name.asname or name.name: (node.module, name.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    for node in nodes:
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            found = imported.get(ast.unparse(base).partition("[")[0])
            if found is not None:
                yield found


def test_every_name_that_is_left_out_is_there() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hook = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]
    assert all(list((ROOT / "src").rglob(Path(name).name)) for name in hook["exclude"])
    assert len(compiled_modules()) > 50

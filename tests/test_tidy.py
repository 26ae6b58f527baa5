"""The shape of the code, enforced: who imports whom, what a machine may touch, how long a module is.

Every rule is a function from a parsed module to sentences about what is wrong with it; each is run over
the whole of ``src`` and, so that it is known to be able to fail, over a few lines that break it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src"
MACHINES = ("totem", "rings", "viewsync", "sequencers", "levels", "process_groups")
"""Packages of protocol machines: pure, and known to nobody below the command line."""

MAY_IMPORT: dict[str, frozenset[str]] = {
    "core": frozenset(),
    **{machine: frozenset({"core"}) for machine in MACHINES},
    "sequencers": frozenset({"core", "viewsync"}),  # an orderer runs inside a view
    "rings": frozenset({"core", "totem"}),  # has a Totem machine for each ring
    "levels": frozenset({"core", "viewsync", "sequencers"}),  # a ring of the family, and what follows it
    "trace": frozenset({"core", "storage"}),
    "spark": frozenset({"errors", "extras"}),  # brings Spark up, for whoever has work for it
    "draw": frozenset({"core", "trace", *MACHINES}),  # says what is in their packets
    "audit": frozenset({"core", "trace", "spark", "storage", "draw"}),  # its page shows drawings
    "sim": frozenset(
        {"core", "trace", "audit", "process_groups"}
    ),  # the fuzzer judges its runs with the auditor
    "protocols": frozenset({"core", *MACHINES}),  # the list of them, for a node
    "catalogue": frozenset({"core", "audit", "sim", "protocols", *MACHINES}),  # and for the laboratory
    # of the machines, and of replicated objects; hunted by the fuzzers
    "timed_token": frozenset({"core", "totem"}),
    "mutants": frozenset({"core", "sim", "catalogue", "objects_fuzz", "replicated", "objects", *MACHINES}),
    # fuzzes replicated objects in the worlds of the test kit
    "objects_fuzz": frozenset(
        {"core", "errors", "sim", "testing", "transport", "groups", "process_groups", "replicated", "objects"}
    ),
    "errors": frozenset(),
    "extras": frozenset({"errors"}),
    "plain_file": frozenset(),
    "storage": frozenset({"errors"}),
    "file_lock": frozenset(),
    "disk_advice": frozenset(),
    "directory": frozenset({"errors", "file_lock", "disk_advice"}),
    "memory_directory": frozenset({"errors"}),
    "keys": frozenset({"errors", "extras", "plain_file"}),
    "transport": frozenset({"core", "errors", "keys", "plain_file"}),  # knows no machine, driver or protocol
    # drives any machine over any transport: it is handed both
    "runtime": frozenset(
        {
            *("core", "trace", "errors", "keys", "plain_file", "file_lock", "disk_advice", "directory"),
            "transport",
        }
    ),
    "log": frozenset(
        {
            *("core", "trace", "errors", "file_lock", "disk_advice", "keys", "transport", "runtime"),
            "process_groups",
        }
    ),  # reads to which groups a message is addressed
    # serves processes that are no members; is handed the groups and the log of its node
    "clients": frozenset({"core", "process_groups", "errors", "replicated", "runtime", "transport"}),
    "groups": frozenset(
        {
            *("core", "trace", "errors", "extras", "keys", "transport", "runtime", "protocols", "log"),
            *("process_groups", "clients", "replicated", "objects"),
        }
    ),
    # objects that are the same at all nodes that have them, and what of them is on disk; is handed its node
    "replicated": frozenset({"core", "errors", "directory", "process_groups", "transport"}),
    "objects": frozenset(
        {"errors", "process_groups", "replicated"}
    ),  # ready-made ones: built as users build theirs
    "client": frozenset({"errors", "transport"}),  # knows nodes by what they say to clients alone
    "threads": frozenset(
        {"core", "errors", "runtime", "groups", "process_groups", "client", "replicated", "objects"}
    ),
    # nodes in memory, and what their applications do: a test draws what it saw
    "testing": frozenset(
        {
            *("client", "core", "trace", "transport", "runtime", "groups", "replicated", "errors", "draw"),
            *("directory", "memory_directory"),
        }
    ),
    "pytest_plugin": frozenset(),  # is loaded whenever pytest runs
    "measure": frozenset({"core", "trace", "audit", "errors", "keys", "runtime", "groups"}),
    "demo": frozenset({"core", "trace", "audit", "errors", "keys", "runtime", "groups", "measure"}),
    # simulates packets as large as those of real nodes, whose size the transport says
    "lab": frozenset(
        {
            *("core", "trace", "audit", "sim", "protocols", "catalogue", "timed_token", "spark", "storage"),
            *("errors", "transport"),
        }
    ),
    "streaming": frozenset(
        {"core", "errors", "keys", "runtime", "log", "spark", "process_groups", "replicated"}
    ),
    # asks the auditor, and takes what the laboratory writes
    "lake": frozenset({"trace", "audit", "lab", "log", "storage", "errors"}),
    "cli": frozenset(
        {
            *("spark", "log", "lab", "lake", "storage", "streaming"),
            *("core", "trace", "audit", "draw", "sim", "protocols", "mutants", "errors", "runtime"),
            *("objects_fuzz", "catalogue", "extras", "keys", "transport"),
            *("client", "groups", "threads", "measure", "demo", *MACHINES),
        }
    ),
}
"""Package by package, the others of ours that it may import; a new package is added here on purpose."""

LABORATORY = frozenset(
    {
        *("audit", "catalogue", "demo", "draw", "lab", "lake", "measure", "mutants", "sim", "testing"),
        *("memory_directory", "objects_fuzz", "timed_token"),
    }
)
"""Packages that a node never loads, nor do those that it loads: they are for who studies the protocols."""
PRODUCT = (
    *("", "core", *MACHINES, "protocols", "transport", "runtime", "groups", "clients", "log"),
    *("client", "threads", "errors", "replicated", "objects"),
)
"""Packages of which a node, or a program that uses the library, is made; the empty one is `ordercast`."""

IMPURE = frozenset({"time", "socket", "asyncio", "random", "os", "threading"})
"""What `core` and the machines never import: the driver holds clock, sockets, threads and chance."""

LONGEST = 500
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")


@dataclass(frozen=True)
class Module:
    """A module of ours: its dotted name and its text."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def package(self) -> str:
        """The package below ``ordercast`` that it belongs to; empty for ``ordercast`` itself."""
        inner = self.name.split(".")[1]
        return "" if inner == "__init__" else inner

    @cached_property
    def imports(self) -> list[tuple[str, bool]]:
        """Every module named by an import, in full, and whether it is for the type checker alone."""
        type_only = {
            id(inner)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.If) and _is_type_checking(node.test)
            for statement in node.body
            for inner in ast.walk(statement)
        }
        found: list[tuple[str, bool]] = []
        for node in ast.walk(self.tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
            found += ((name, id(node) in type_only) for name in names)
        return found

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")[: -node.level]
        return ".".join([*parts, node.module] if node.module else parts)


def _is_type_checking(test: ast.expr) -> bool:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
    return False


# --- the rules ---------------------------------------------------------------------------------


def imports_point_one_way(module: Module) -> Iterator[str]:
    """`core` imports nothing of ours, machines import `core`, only `cli` imports everything."""
    if module.package and module.package not in MAY_IMPORT:
        yield f"the package {module.package} has no place in MAY_IMPORT yet"
        return
    allowed = MAY_IMPORT.get(module.package, frozenset(MAY_IMPORT) - {"cli"})
    for name, _ in module.imports:
        parts = name.split(".")
        if parts[0] != "ordercast" or len(parts) < 2 or parts[1] not in MAY_IMPORT:
            continue
        if parts[1] not in allowed | {module.package}:
            yield f"imports {name}, which {module.package or 'the package itself'} must not know"


def the_product_reaches_no_laboratory(everything: list[Module]) -> Iterator[str]:
    """However many modules are between: what a node loads at any time never loads what studies it."""
    known = {module.name.removesuffix(".__init__"): module for module in everything}
    reached = {name: name for name, module in known.items() if module.package in PRODUCT}
    waiting = list(reached)
    while waiting:
        name = waiting.pop()
        for found, type_only in known[name].imports:
            if found in known and found not in reached and not type_only:
                reached[found] = f"{reached[name]} -> {found}"
                waiting.append(found)
    for name, way in reached.items():
        if known[name].package in LABORATORY:
            yield way


def the_engine_knows_no_experiment(module: Module) -> Iterator[str]:
    """Experiments use the laboratory's engine, and each other only where one repeats another's runs."""
    if module.package != "lab" or module.name.startswith("ordercast.lab.experiments."):
        return
    for name, _ in module.imports:
        if name.startswith("ordercast.lab.experiments."):
            yield f"imports {name}: an experiment is found by its name"


def machines_are_pure(module: Module) -> Iterator[str]:
    """No clock, socket, thread, chance or `await`; `random.Random` as a type of what is handed in."""
    if module.package != "core" and module.package not in MACHINES:
        return
    for name, type_only in module.imports:
        top = name.split(".")[0]
        if top in IMPURE and not (top == "random" and type_only):
            yield f"imports {name}: that is the driver's business"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"line {node.lineno}: waits; a machine answers at once"


def modules_are_short(module: Module) -> Iterator[str]:
    """A module that outgrows this has two subjects."""
    length = len(module.text.splitlines())
    if length > LONGEST:
        yield f"{length} lines, more than {LONGEST}"


def modules_say_what_they_are(module: Module) -> Iterator[str]:
    """Every module begins with a docstring."""
    if not ast.get_docstring(module.tree):
        yield "has no docstring"


def nothing_is_left_unfinished(module: Module) -> Iterator[str]:
    """No marker of unfinished work in a comment or in a string."""
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) and UNFINISHED.search(token.string):
            yield f"line {token.start[0]}: {token.string.strip()[:60]}"


def mutants_stay_outside(module: Module) -> Iterator[str]:
    """Planted defects are switched on from outside: the product neither asks for them nor loads them.

    The command that runs them is part of `cli`, which may.
    """
    if module.package in ("cli", "mutants"):
        return
    for name, _ in module.imports:
        if any(part in ("mutant", "mutants") for part in name.split(".")):
            yield f"imports {name}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Match):
            question = node.subject if isinstance(node, ast.Match) else node.test
            for inner in ast.walk(question):
                asked = getattr(inner, "id", None) or getattr(inner, "attr", None)
                if isinstance(asked, str) and "mutant" in asked.lower():
                    yield f"line {node.lineno}: asks for {asked}"


Rule = Callable[[Module], Iterator[str]]
RULES: tuple[Rule, ...] = (
    imports_point_one_way,
    the_engine_knows_no_experiment,
    machines_are_pure,
    modules_are_short,
    modules_say_what_they_are,
    nothing_is_left_unfinished,
    mutants_stay_outside,
)


@cache
def modules() -> list[Module]:
    found = []
    for path in sorted((SRC / "ordercast").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        # A package keeps its __init__, so that relative imports count levels as in any other module.
        found.append(Module(".".join(parts), path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_code_keeps_the_rule(rule: Rule) -> None:
    everything = modules()
    assert len(everything) > 5, "the source was not found"
    problems = [f"{module.name}: {problem}" for module in everything for problem in rule(module)]
    assert not problems, "\n".join([rule.__doc__ or "", *problems])


def test_the_product_reaches_no_laboratory() -> None:
    assert not list(the_product_reaches_no_laboratory(modules()))


def test_a_way_from_the_product_to_the_laboratory_is_seen() -> None:
    chain = {
        "groups.member": "from ordercast.trace.recorder import Recorder",
        "trace.recorder": "def f():\n    from ordercast.spark import sessions",
        "spark.sessions": "from ordercast.sim import world",
        "sim.world": "",
    }
    found = list(the_product_reaches_no_laboratory([Module(f"ordercast.{a}", b) for a, b in chain.items()]))
    assert found == [" -> ".join(f"ordercast.{name}" for name in chain)]


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (imports_point_one_way, "core.wire", "from ordercast.trace.schema import Row"),
        (imports_point_one_way, "core.wire", "from ordercast import totem"),
        (imports_point_one_way, "core.wire", "from ..trace import schema"),
        (imports_point_one_way, "totem.machine", "import ordercast.sim.world"),
        (imports_point_one_way, "totem.machine", "def f():\n    from ordercast.viewsync import detector"),
        (imports_point_one_way, "sim.world", "from ordercast.totem.machine import Totem"),
        (imports_point_one_way, "audit.properties", "from ordercast.sim.world import World"),
        (imports_point_one_way, "draw.svg", "from ordercast.audit import properties"),
        (imports_point_one_way, "__init__", "from ordercast.cli import main"),
        (imports_point_one_way, "novelty.thing", "import ordercast.core"),
        (the_engine_knows_no_experiment, "lab.runner", "from ordercast.lab.experiments import dtp"),
        (machines_are_pure, "core.wire", "import time"),
        (machines_are_pure, "totem.machine", "from random import Random"),
        (machines_are_pure, "totem.machine", "from os.path import join"),
        (machines_are_pure, "viewsync.detector", "if not TYPE_CHECKING:\n    import random"),
        (machines_are_pure, "totem.machine", "if TYPE_CHECKING:\n    import socket"),
        (machines_are_pure, "sequencers.dtp", "async def handle(): ..."),
        (modules_are_short, "core.wire", "pass\n" * (LONGEST + 1)),
        (modules_say_what_they_are, "core.wire", "x = 1"),
        (nothing_is_left_unfinished, "core.wire", "x = 1  # TODO: the rest"),
        (nothing_is_left_unfinished, "core.wire", '"""Reads a packet. FIXME."""'),
        (mutants_stay_outside, "totem.machine", "from ordercast import mutants"),
        (mutants_stay_outside, "totem.machine", "import tests.mutants.totem"),
        (mutants_stay_outside, "totem.machine", "if self.mutant:\n    pass"),
        (mutants_stay_outside, "totem.machine", "x = 1 if mutants.is_on('skip') else 2"),
    ],
)
def test_a_breach_of_the_rule_is_seen(rule: Rule, name: str, text: str) -> None:
    assert list(rule(Module(f"ordercast.{name}", text)))


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (imports_point_one_way, "totem.machine", "from ordercast.core import wire\nimport struct"),
        (imports_point_one_way, "totem.machine", "from ordercast.totem import packets"),
        (imports_point_one_way, "totem.machine", "from . import packets"),
        (imports_point_one_way, "cli.sim", "from ordercast.totem.machine import Totem"),
        (machines_are_pure, "totem.machine", "if TYPE_CHECKING:\n    from random import Random"),
        (machines_are_pure, "sim.world", "import random"),
        (nothing_is_left_unfinished, "core.wire", "TODOS = 1  # what is to be done is in TODOS"),
        (mutants_stay_outside, "totem.machine", "if mutated:\n    pass"),
        (mutants_stay_outside, "cli.sim", "from ordercast import mutants"),
    ],
)
def test_what_the_rule_allows_passes(rule: Rule, name: str, text: str) -> None:
    assert not list(rule(Module(f"ordercast.{name}", text)))

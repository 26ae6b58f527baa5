"""What an experiment is, and which there are.

An experiment is one record: a grid of runs, and three functions that make tables, figures and verdicts of
what came of them. To add one, write a module of `ordercast.lab.experiments` that has it as `EXPERIMENT`,
named like the module with ``-`` for ``_``. ``ordercast lab list`` loads the module, so that it must not
import Spark, pandas or matplotlib at its top.

    def grid(quick: bool) -> list[Run]:
        return runs_of({"protocol": ["cm", "dtp"], "nodes": [5] if quick else [5, 10, 20]}, messages=1000)

    def claims(frames: Frames) -> list[Claim]:
        mean = frames.mean(["protocol", "nodes"], ["stability_us"])      # a pandas.DataFrame, made by Spark
        ...
        return [Claim(says="…", where="002 §5", measured="…", holds=True)]

    EXPERIMENT = Experiment(name="mine", title="…", grid=grid, figures=figures, claims=claims)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from ordercast.lab import experiments as experiments_package
from ordercast.lab.grid import GridError, Run
from ordercast.lab.profile import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from ordercast.lab.frames import Frames

OURS = "ours"
"""What stands in place of a paper's number where a claim is no paper's."""


def counted(claims: Iterable[Claim]) -> dict[str, int]:
    """How many of the claims hold, do not hold, and cannot be decided."""
    verdicts = [claim.holds for claim in claims]
    return {name: sum(each is verdict for each in verdicts) for name, verdict in VERDICTS.items()}


VERDICTS: Mapping[str, bool | None] = {"hold": True, "do not hold": False, "cannot be decided": None}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One thing that a paper says, beside what was measured."""

    says: str
    """What the paper says, in our words."""
    where: str
    """Where it says so: ``002 §5, Fig. 2``."""
    measured: str
    """What was measured, with numbers."""
    holds: bool | None
    """None: this grid (a quick one) does not reach far enough to say."""
    note: str = ""
    """Why not, if it does not hold; or how it is to be read."""

    @property
    def paper(self) -> str:
        """The paper that says it, by its number; `OURS` if we do."""
        number = re.match(r"\d{3}\b", self.where)
        return OURS if number is None else number[0]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of the report; `ordercast.lab.figures` has what draws the usual ones."""

    name: str
    """The name of the figure's file, without the ending."""
    title: str
    caption: str
    drawing: Drawing


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the report. Values are shown as they are: round them before."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What a user should do, where an experiment is asked for that."""

    says: Sequence[str]
    """Sentences, the most important one first."""
    configuration: str
    """Lines for a node's configuration file."""
    ranking: Table
    """What was compared, the best first."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a user may ask of any experiment; None is as it is."""

    protocols: tuple[str, ...] | None = None
    seeds: range | None = None
    nodes: tuple[int, int] | None = None
    """The fewest and the most."""
    profile: Profile | None = None
    """A load, and the conditions under which it has to be carried: of experiments that take one."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is run, and what is made of it."""

    name: str
    title: str
    grid: Callable[[bool], list[Run]]
    """The runs; the argument asks for a quick look: a small grid, of seconds."""
    about: Sequence[str] = ()
    """Paragraphs for the report: the setting, what was assumed where the paper is silent, how to read it."""
    source: str = ""
    """What is repeated here: ``002 Figs 2–5``."""
    claims: Callable[[Frames], list[Claim]] = field(default=lambda frames: [])
    figures: Callable[[Frames], list[Figure]] = field(default=lambda frames: [])
    tables: Callable[[Frames], list[Table]] = field(default=lambda frames: [])
    answer: Callable[[Frames], dict[str, Any]] = field(default=lambda frames: {})
    """What ``--json`` says beside the claims."""
    advice: Callable[[Frames], Advice | None] = field(default=lambda frames: None)
    """What follows for the user who asked."""
    takes_profile: bool = False
    """Whether a user says which load and which failures it is about; then `resize` heeds `Sizes.profile`."""
    resize: Callable[[Sizes], Experiment] | None = None
    """The same experiment for other seeds, protocols or group sizes, where choosing among its runs is not
    what that means."""


FUZZ = "fuzz"
"""What `ordercast.lab.campaign` is run by, where experiments are run by their names."""


def names() -> list[str]:
    """The names of all experiments, in alphabetical order: a module of `ordercast.lab.experiments` each."""
    return sorted(module.name.replace("_", "-") for module in iter_modules(experiments_package.__path__))


def experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in names():
        known = ", ".join(sorted([*names(), FUZZ]))
        raise GridError(f"no experiment {name!r}; there are {known}, or write one as a .toml file")
    found = import_module(f"{experiments_package.__name__}.{name.replace('-', '_')}").EXPERIMENT
    assert isinstance(found, Experiment)
    assert found.name == name, f"the module of {name} has an experiment that is called {found.name}"
    return found


def experiments() -> list[Experiment]:
    """All experiments, in alphabetical order."""
    return [experiment(name) for name in names()]

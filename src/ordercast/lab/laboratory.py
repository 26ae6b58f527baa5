"""Running an experiment and writing its report: what the command line does, for programs.

with spark_session("lab") as spark:
    lab = Laboratory(experiment("dtp"), Path("lab/dtp"), quick=True)
    lab.run(spark)
    print(lab.report(spark).page)
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.lab.experiment import Advice, Claim, Experiment, Sizes, experiment
from ordercast.lab.grid import GridError, LabError, Outcome, Run, checked, method_of
from ordercast.lab.profile import profile_of
from ordercast.lab.runner import Carried, Watch, carry_out, missing
from ordercast.lab.store import Manifest, Store, code_version, files_with
from ordercast.storage import Location, Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOME = Path("lab")
"""Where directories of experiments are made unless something else is asked for."""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """A report that was written."""

    page: Location
    claims: Sequence[Claim]
    answer: dict[str, Any]
    advice: Advice | None = None


def find(name: str) -> tuple[Experiment, str | None]:
    """The experiment of that name, or of that .toml file; of a file, its text too."""
    if not name.endswith(".toml"):
        return experiment(name), None
    from ordercast.lab.declared import declared

    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise GridError(f"{name}: {error.strerror}") from error
    return declared(path.stem, text), text


def sized(chosen: Experiment, quick: bool, sizes: Sizes) -> tuple[Experiment, list[Run]]:
    """An experiment for the seeds, protocols and group sizes that are asked for, and its runs, checked."""
    if sizes.profile is not None and not chosen.takes_profile:
        raise GridError(f"{chosen.name} declares its loads itself: --rate and the like are for choose")
    if chosen.resize is not None:
        chosen = chosen.resize(sizes)
        return chosen, checked(chosen.grid(quick))
    runs = chosen.grid(quick)
    if sizes.protocols is not None:
        runs = [run for run in runs if run.protocol in sizes.protocols]
    if sizes.nodes is not None:
        runs = [run for run in runs if sizes.nodes[0] <= run.nodes <= sizes.nodes[1]]
    if not runs:
        raise GridError(f"{chosen.name} has no run with these protocols and so many nodes")
    if sizes.seeds is not None:
        runs = [msgspec.structs.replace(run, seed=seed) for run in runs for seed in sizes.seeds]
    return chosen, checked(runs)


class Laboratory:
    """One experiment and its directory."""

    def __init__(
        self,
        chosen: Experiment,
        directory: Where | None = None,
        *,
        quick: bool = False,
        sizes: Sizes | None = None,
        declared: str | None = None,
        source: str | None = None,
    ) -> None:
        """An experiment, to be kept in `directory`, here or in a store; by default below `HOME`.

        `declared` is the text of the file it came from, `source` what a user calls it (a name, or that file).
        """
        self.sizes = sizes or Sizes()
        self.experiment, self.runs = sized(chosen, quick, self.sizes)
        self.store = Store(directory if directory is not None else HOME / self.experiment.name)
        self.quick = quick
        self._declared = declared
        self._source = source or chosen.name

    @classmethod
    def reopen(cls, directory: Where) -> Laboratory:
        """The experiment whose results a directory holds."""
        manifest = Store(directory).read_manifest()
        if manifest is None:
            raise LabError(
                f"{Location.of(directory)} holds no results: run the experiment first (ordercast lab run)"
            )
        options = msgspec.convert(manifest.options, dict[str, Any])
        sizes = _sizes_of(options)
        if manifest.declared is not None:
            from ordercast.lab.declared import declared

            chosen = declared(manifest.experiment, manifest.declared)
        else:
            chosen = experiment(str(options.get("source", manifest.experiment)))
        source = str(options.get("source", manifest.experiment))
        return cls(
            chosen, directory, quick=manifest.quick, sizes=sizes, declared=manifest.declared, source=source
        )

    # --- running --------------------------------------------------------------------------------

    def surprises(self) -> list[str]:
        """What a user should know before going on in a directory that has results already."""
        manifest = self.store.read_manifest()
        if manifest is None:
            return []
        if manifest.experiment != self.experiment.name:
            raise LabError(
                f"{self.store.directory} holds results of {manifest.experiment}, not of "
                f"{self.experiment.name}: choose another --output"
            )
        done = self.store.done()
        wanted = {run.id for run in self.runs}
        told = []
        other = sum(run in wanted and done[run].code != code_version() for run in done)
        if other:
            told.append(
                f"{other:,} runs were carried out by another version of the program; they are kept, and "
                "--fresh carries all out again"
            )
        beside = sum(run not in wanted for run in done)
        if beside:
            told.append(
                f"{beside:,} results in {self.store.directory} are of runs that are not in this grid (of "
                "a quick look, or of a grid that has changed); they are kept, and not part of the report"
            )
        return told

    def pending(self) -> list[Run]:
        """Runs that are to be carried out."""
        return missing(self.store, self.runs)

    def cost(self, runs: Sequence[Run]) -> float:
        """Seconds of one processor that runs are expected to take."""
        return sum(method_of(run).cost(run) for run in runs)

    def run(
        self,
        spark: SparkSession,
        *,
        traces: bool = False,
        fresh: bool = False,
        watch: Watch = lambda runs, cost: None,
    ) -> Carried:
        """Carry out what is missing."""
        if traces and not all(method_of(run).traces for run in self.runs):
            raise GridError(
                f"{self.experiment.name} keeps no traces: what failed is replayed by its command, which "
                "can keep one"
            )
        self.store.prepare()
        if fresh:
            self.store.clear()
        manifest = Manifest(
            experiment=self.experiment.name,
            quick=self.quick,
            declared=self._declared,
            options={"source": self._source, **_options_of(self.sizes)},
            code=code_version(),
            runs=self.runs,
        )
        self.store.write_manifest(manifest)
        carried = carry_out(spark, self.store, self.runs, traces=traces, watch=watch)
        manifest.files = [path.name for path in files_with(self.store.done(), self.runs)]
        self.store.write_manifest(manifest)
        return carried

    def run_one(self, prefix: str) -> tuple[Run, Outcome]:
        """Carry out one run by itself, here: what failed can be looked at alone."""
        found = [run for run in self.runs if run.id.startswith(prefix)]
        if len(found) != 1:
            raise GridError(f"{prefix!r} stands for {len(found)} runs of {self.experiment.name}, not for one")
        return found[0], method_of(found[0]).conduct(found[0], None)

    def command(self, run: str) -> str:
        """The command that repeats one run alone."""
        return shlex.join([*self._command, "--only", run])

    @property
    def _command(self) -> list[str]:
        words = ["ordercast", "lab", "run", self._source, *_words_of(self.sizes)]
        return words + (["--quick"] if self.quick else [])

    def _smaller(self, there: Sequence[Run]) -> str:
        """In what the results are less than the experiment has."""
        told = []
        if self.quick:
            told.append(
                f"This is a quick look: {len(self.runs)} small runs, where the whole experiment has "
                f"{len(self.experiment.grid(False))}. `ordercast lab run {self._source}` carries those out."
            )
        if chosen := _words_of(self.sizes):
            told.append(f"Of its runs those were chosen that {' '.join(chosen)} names.")
        if len(there) < len(self.runs):
            told.append(f"{len(self.runs) - len(there)} runs have no result.")
        return " ".join(told)

    # --- the report -----------------------------------------------------------------------------

    def report(self, spark: SparkSession) -> Reported:
        """Write the page, from the results that are there."""
        from ordercast.lab.frames import Frames
        from ordercast.lab.report import write_report

        done = self.store.done()
        there = [run for run in self.runs if run.id in done and done[run.id].error is None]
        if not there:
            raise LabError(
                f"{self.store.directory} has no results of {self.experiment.name} yet: run it first"
            )
        frames = Frames(spark, {run.id: done[run.id].file for run in there}, there, self.quick)
        chosen = self.experiment
        claims = chosen.claims(frames)
        advice = chosen.advice(frames)
        page = write_report(
            self.store.directory,
            title=chosen.title,
            source=chosen.source,
            about=chosen.about,
            claims=claims,
            advice=advice,
            figures=chosen.figures(frames),
            tables=chosen.tables(frames),
            warning=self._smaller(there),
            facts=self._facts(len(there), sum(done[run.id].took_s for run in there)),
            failed=[
                (self.command(run.id), done[run.id].error or "")
                for run in self.runs
                if run.id in done and done[run.id].error is not None
            ],
        )
        return Reported(page=page, claims=claims, answer=chosen.answer(frames), advice=advice)

    def _facts(self, there: int, took_s: float) -> list[tuple[str, str]]:
        done = self.store.done()
        versions = sorted({done[run.id].code for run in self.runs if run.id in done})
        notes = sorted({note for run in self.runs if run.id in done for note in done[run.id].notes})
        facts = [
            ("command", " ".join(self._command)),
            ("runs", f"{there:,} of {len(self.runs):,}" + (" (a quick look)" if self.quick else "")),
            ("processor time", f"{took_s:,.0f} s"),
            ("program", ", ".join(versions) + ("" if len(versions) == 1 else " (several versions)")),
            ("written", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())),
        ]
        return facts + [("note", note) for note in notes[:20]]


def _options_of(sizes: Sizes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if sizes.protocols is not None:
        found["protocols"] = list(sizes.protocols)
    if sizes.seeds is not None:
        found["seeds"] = [sizes.seeds.start, sizes.seeds.stop]
    if sizes.nodes is not None:
        found["nodes"] = list(sizes.nodes)
    if sizes.profile is not None:
        found["profile"] = msgspec.to_builtins(sizes.profile)
    return found


def _sizes_of(options: dict[str, Any]) -> Sizes:
    protocols, seeds, nodes = (options.get(name) for name in ("protocols", "seeds", "nodes"))
    return Sizes(
        protocols=tuple(protocols) if protocols is not None else None,
        seeds=range(*seeds) if seeds is not None else None,
        nodes=(nodes[0], nodes[1]) if nodes is not None else None,
        profile=profile_of(options["profile"]) if "profile" in options else None,
    )


def _words_of(sizes: Sizes) -> list[str]:
    words: list[str] = []
    for protocol in sizes.protocols or ():
        words += ["--protocol", protocol]
    if sizes.seeds is not None:
        words += ["--seeds", f"{sizes.seeds.start}:{sizes.seeds.stop}"]
    if sizes.profile is not None:
        words += sizes.profile.words
    elif sizes.nodes is not None:
        words += ["--nodes", f"{sizes.nodes[0]}:{sizes.nodes[1]}"]
    return words

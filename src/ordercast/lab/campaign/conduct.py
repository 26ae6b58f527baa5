"""A campaign from its first seed to its page: what ``ordercast lab run fuzz`` does, for programs.

with spark_session("lab") as spark:
    campaign = FuzzCampaign(["totem"], range(100_000))
    campaign.run(spark)
    print(campaign.report().page)

It goes on where an earlier attempt ended: seeds that have results are not fuzzed again. After the seeds that
were asked for come rounds that look near what was rare (`summary.look_next`); at last, some of the seeds
that failed are made smaller.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ordercast.catalogue import LAB_PROTOCOLS, OVER_NETWORKS, fuzzed_protocol
from ordercast.core.protocol import GROUPS
from ordercast.lab.campaign import page
from ordercast.lab.campaign.blocks import Stage, Work, size_of, work_left
from ordercast.lab.campaign.summary import Summary, look_next
from ordercast.lab.campaign.table import CampaignStore, Manifest, Round
from ordercast.lab.campaign.work import DIED, RAISED, Failed, Watch, fuzz, make_smaller
from ordercast.lab.experiment import FUZZ
from ordercast.lab.grid import GridError, LabError
from ordercast.lab.laboratory import HOME, Reported
from ordercast.lab.store import code_version
from ordercast.storage import Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = range(1_000)
QUICK = range(40)
ROUNDS = 2
"""Rounds that look near what was rare, unless something else is asked for."""
SHARE = 20
"""Such a round has one seed for so many of those that were asked for."""
MADE_SMALLER = 3
"""Failures of each property and protocol that are made smaller: others are most likely more of the same."""


class Fuzzed(NamedTuple):
    """What became of the seeds."""

    asked: int
    earlier: int
    """Seeds that had been fuzzed before."""
    near: int
    """Seeds that looked near what was rare, beside those."""
    took_s: float


class FuzzCampaign:
    """Seeds of some protocols, and the directory of their results."""

    def __init__(
        self,
        protocols: Sequence[str],
        seeds: range = SEEDS,
        nodes: tuple[int, int] | None = None,
        directory: Where | None = None,
        rounds: int = ROUNDS,
    ) -> None:
        """By default groups are of each protocol's usual sizes, and kept below `HOME`."""
        known = [*LAB_PROTOCOLS, *OVER_NETWORKS]
        for name in protocols:
            if name.removesuffix(GROUPS) not in known:
                raise GridError(
                    f"no protocol {name!r}; there are {', '.join(known)}, each also with {GROUPS} behind it"
                )
        self.protocols = tuple(dict.fromkeys(protocols))
        self.seeds, self.nodes, self.rounds = seeds, nodes, rounds
        usual = f"{FUZZ}-{self.protocols[0]}" if len(self.protocols) == 1 else FUZZ
        self.store = CampaignStore(directory if directory is not None else HOME / usual)

    @classmethod
    def reopen(cls, directory: Where) -> FuzzCampaign | None:
        """The campaign whose results a directory holds; None if it is none."""
        manifest = CampaignStore(directory).manifest()
        if manifest is None:
            return None
        return cls(manifest.protocols, range(*manifest.seeds), manifest.nodes, directory, manifest.rounds)

    # --- running ----------------------------------------------------------------------------------

    def surprises(self) -> list[str]:
        """What a user should know before going on in a directory that has results already."""
        manifest = self.store.manifest()
        if manifest is None:
            return []
        if manifest.nodes != self.nodes:
            raise LabError(
                f"{self.store.directory} holds results of groups of {_sizes(manifest.nodes)}, not of "
                f"{_sizes(self.nodes)}, which a seed's run depends on: choose another --output"
            )
        if set(manifest.programs) - {code_version()}:
            return [
                "some seeds were fuzzed by another version of the program; their results are kept, and "
                "--fresh fuzzes all of them again"
            ]
        return []

    @property
    def asked(self) -> list[Stage]:
        """The seeds that are asked for."""
        return [self._stage(protocol, 0, self.seeds) for protocol in self.protocols]

    def pending(self) -> Work:
        """What is left of them."""
        return work_left(self.asked, self.store.done(), size_of(len(self.seeds)))

    def run(self, spark: SparkSession, *, fresh: bool = False, watch: Watch = lambda seeds: None) -> Fuzzed:
        """Fuzz what has no results yet, look near what was rare, and make smaller what failed."""
        began = time.perf_counter()
        self.surprises()
        self.store.prepare()
        if fresh:
            self.store.clear()
        for entry in self.store.begun.entries():  # of whoever was killed
            entry.location.remove()
        self._write_manifest()
        pending = self.pending()
        self._fuzz(spark, self.asked, watch)
        near = 0
        for number in range(1, self.rounds + 1):
            stages = self._stages_of(number)
            self._fuzz(spark, stages, watch)
            near += sum(len(stage.seeds) for stage in stages)
        self._make_smaller(spark)
        asked = len(self.protocols) * len(self.seeds)
        return Fuzzed(asked, asked - pending.seeds, near, time.perf_counter() - began)

    def _write_manifest(self) -> None:
        before = self.store.manifest()
        earlier = before.programs if before is not None else []
        self.store.keep(
            Manifest(
                protocols=list(self.protocols),
                seeds=(self.seeds.start, self.seeds.stop),
                nodes=self.nodes,
                rounds=self.rounds,
                programs=list(dict.fromkeys([*earlier, code_version()])),
            )
        )

    def _fuzz(self, spark: SparkSession, stages: Sequence[Stage], watch: Watch) -> None:
        size = size_of(max((len(stage.seeds) for stage in stages), default=0))
        fuzz(spark, self.store, work_left(stages, self.store.done(), size), watch)
        lacking = work_left(stages, self.store.done(), size)
        if lacking.seeds:
            raise LabError(
                f"{lacking.seeds:,} seeds were fuzzed and their results are not in {self.store.results}: the "
                "executors write on other machines; give --output a directory that all of them share, or "
                "the URI of a store"
            )

    def _stages_of(self, number: int) -> list[Stage]:
        """Where a round looks: as it was written down when it was begun, or by what was rare until now."""
        asked = (self.seeds.start, self.seeds.stop)
        found = self.store.round(number)
        if found is None or found.asked != asked:
            tallies = Summary(self._rows_before(number)).protocols
            count = len(self.seeds) // SHARE
            first = self.seeds.stop + (number - 1) * count
            looks = [
                look
                for protocol in self.protocols
                if count and protocol in tallies
                if (look := look_next(tallies[protocol], protocol, range(first, first + count))) is not None
            ]
            found = Round(asked, looks)
            self.store.keep(found, number)
        return [self._stage(look.protocol, number, range(*look.seeds), look.near) for look in found.looks]

    def _rows_before(self, number: int) -> Iterator[list[dict[str, object]]]:
        for rows in self.store.rows():
            if rows and rows[0]["round"] < number:
                yield rows

    def _make_smaller(self, spark: SparkSession) -> None:
        done = {(each.protocol, each.round, each.seed) for each in self.store.made_smaller()}
        chosen: dict[tuple[str, str], list[Failed]] = {}
        for row in Summary(self.store.rows()).failures:
            its = chosen.setdefault((row["protocol"], row["property"]), [])
            if len(its) < MADE_SMALLER and row["property"] not in (DIED, RAISED):
                nodes = self._stage(row["protocol"], 0, self.seeds).nodes
                its.append(
                    Failed(row["protocol"], nodes, row["round"], row["seed"], row["near"], row["property"])
                )
        wanted = [each for its in chosen.values() for each in its]
        left = [each for each in wanted if (each.protocol, each.round, each.seed) not in done]
        make_smaller(spark, self.store, left)

    def _stage(self, protocol: str, number: int, seeds: range, near: tuple[int, ...] = ()) -> Stage:
        return Stage(protocol, self.nodes or fuzzed_protocol(protocol).nodes, number, seeds, near)

    # --- the report -------------------------------------------------------------------------------

    def report(self) -> Reported:
        """Write the page, from the results that are there."""
        summary = Summary(self.store.rows())
        if not summary.protocols:
            raise LabError(f"{self.store.directory} has no results yet: run the campaign first")
        rounds = [found for at in range(1, self.rounds + 1) if (found := self.store.round(at)) is not None]
        return page.write(self, summary, rounds, self.store.made_smaller())


def _sizes(nodes: tuple[int, int] | None) -> str:
    return "the usual sizes" if nodes is None else f"{nodes[0]} to {nodes[1]} nodes"

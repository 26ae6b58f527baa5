from __future__ import annotations

from pathlib import Path

import pytest
from toy_protocol import toy

from ordercast.audit.explain import Violation
from ordercast.audit.history import History
from ordercast.sim import experiment
from ordercast.sim.experiment import WARM_UP_US, Experiment, Figures, conduct
from ordercast.sim.faults import At, Crash
from ordercast.sim.network import Lan, NetworkConfig, preset
from ordercast.sim.workload import Workload
from ordercast.trace.reader import read_runs
from ordercast.trace.writer import TraceWriter


def objection(history: History) -> list[Violation]:
    return [Violation("objection", (1,), (), (), f"{history.events} events are too many.")]


TOY = toy()


def toy_run(network: NetworkConfig | None = None, audited: bool = True, **load: object) -> Experiment:
    return Experiment(
        nodes=3,
        seconds=2.0,
        network=network or Lan(),
        workload=Workload(**{"arrivals": "deterministic", "rate": 100.0, "size": 50, **load}),  # type: ignore[arg-type]
        audited=audited,
    )


def test_figures_are_of_the_time_under_load() -> None:
    figures = conduct(TOY, toy_run())
    assert figures.metrics.submitted == 200
    assert figures.metrics.ordered in (199, 200)
    document = figures.as_dict()
    assert document["ordered_per_s"] == pytest.approx(100, abs=1)
    assert document["bytes_per_s"] == pytest.approx(5_000, abs=50)
    assert document["latency_us"]["agreed"]["count"] == figures.metrics.delivered
    assert document["audit"]["clean"] is True


def test_nothing_is_sent_before_the_load_begins(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "toy") as writer:
        conduct(TOY, toy_run(), trace=writer)
    ((_, rows),) = read_runs(tmp_path)
    submitted = [row[3] for row in rows if row[4] == "submit"]
    assert min(submitted) >= WARM_UP_US
    assert max(submitted) < WARM_UP_US + 2_000_000
    assert {row[4] for row in rows if row[3] < WARM_UP_US} == {"install"}


def test_progress_is_told_up_to_the_end() -> None:
    told: list[int] = []
    conduct(TOY, toy_run(), step=told.append)
    assert told == sorted(told)
    assert told[-1] == toy_run().end_us
    assert len(told) >= experiment.SLICES


def test_the_same_seed_gives_the_same_figures_traced_or_not(tmp_path: Path) -> None:
    def told(figures: Figures) -> dict[str, object]:
        document = figures.as_dict()
        return {name: value for name, value in document.items() if name not in ("took_s", "receptions_per_s")}

    with TraceWriter(tmp_path, "toy") as writer:
        traced = conduct(TOY, toy_run(), trace=writer)
    assert told(traced) == told(conduct(TOY, toy_run()))


def test_a_shared_medium_has_a_utilization_and_others_have_none() -> None:
    assert conduct(TOY, toy_run()).utilization is None
    used = conduct(TOY, toy_run(preset("ethernet10"), rate=400.0, size=1000)).utilization
    assert used is not None
    assert 0.3 < used < 1


def test_a_protocol_without_a_token_has_no_rotation() -> None:
    figures = conduct(TOY, toy_run())
    assert figures.rotation_us is None
    assert figures.stats["delivered"] > 0


def test_rotations_are_averaged_over_the_time_under_load() -> None:
    from ordercast.catalogue import LAB_TOTEM

    figures = conduct(LAB_TOTEM, toy_run())
    rotation = figures.rotation_us
    assert rotation is not None
    assert 0 < rotation["mean"] <= rotation["max"]
    assert figures.clean


def test_violations_make_it_unclean() -> None:
    figures = conduct(TOY._replace(checks={"objection": objection}), toy_run())
    assert figures.clean is False
    assert figures.as_dict()["audit"]["properties"]["objection"] == 1


def test_nobody_judges_what_was_not_to_be_audited() -> None:
    figures = conduct(TOY, toy_run(audited=False))
    assert figures.clean is None
    assert figures.as_dict()["audit"] is None


def test_a_run_too_long_to_keep_is_measured_and_not_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "MOST_AUDITED", 100)
    figures = conduct(TOY, toy_run())
    assert figures.report is None
    assert figures.metrics.submitted == 200


def test_the_dead_take_their_statistics_along() -> None:
    whole = conduct(TOY, toy_run())
    some = Experiment(
        nodes=3,
        seconds=2.0,
        network=Lan(),
        workload=Workload(arrivals="deterministic", rate=100.0, size=50),
        faults=(At(2_000_000, Crash(3)),),
    )
    assert conduct(TOY, some).stats["delivered"] < whole.stats["delivered"]


@pytest.mark.parametrize(("nodes", "seconds"), [(0, 1.0), (3, 0.0), (3, -1.0)])
def test_nothing_to_run_is_refused(nodes: int, seconds: float) -> None:
    with pytest.raises(ValueError, match=r"at least one node|more than"):
        Experiment(nodes=nodes, seconds=seconds, network=Lan(), workload=Workload())

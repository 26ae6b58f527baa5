"""``ordercast audit --follow``: of traces that are whole, and of a live group."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli_nodes import started, until
from cli_parts import ordercast

from ordercast.audit.follow import alerts
from ordercast.audit.follow.alerts import Metrics
from ordercast.audit.follow.follower import Follower
from ordercast.catalogue import LAB_TOTEM
from ordercast.sim.fuzz import plan, run
from ordercast.storage import Location
from ordercast.trace.blocks import BlockEncoder, open_journal
from ordercast.trace.schema import Row
from ordercast.trace.writer import TraceWriter


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return run(LAB_TOTEM, plan(LAB_TOTEM, 3, (2, 3)))[1].rows


def written(directory: Path, rows: list[Row]) -> Path:
    with TraceWriter(directory, "spoiled", LAB_TOTEM.heading) as writer:
        writer.write(rows)
    return directory


def spoiled(rows: list[Row]) -> list[Row]:
    """One message is delivered twice."""
    delivery = next(row for row in rows if row[4] == "deliver")
    return [*rows, (*delivery[:2], 10**6, *delivery[3:])]


def followed(*words: object) -> tuple[int, list[Any], str]:
    said = ordercast("audit", *words, "--follow", "--until-quiet", "0", "--json")
    return said.code, [json.loads(line) for line in said.out.splitlines()], said.sentence


def test_a_clean_trace(tmp_path: Path, rows: list[Row]) -> None:
    code, [report], _ = followed(written(tmp_path, rows))
    assert code == 0
    assert (report["engine"], report["events"], report["violations"]) == ("follow", len(rows), [])
    told = ordercast("audit", tmp_path, "--follow", "--until-quiet", "0")
    assert told.code == 0
    assert f"✓ clean: {len(rows):,} events" in told.out


def test_a_violated_one_and_what_a_second_audit_says_of_it(tmp_path: Path, rows: list[Row]) -> None:
    trace, checkpoint = written(tmp_path / "trace", spoiled(rows)), tmp_path / "checkpoint"
    code, [*told, report], _ = followed(trace, "--checkpoint", checkpoint)
    assert code == 1
    assert "deliver-once" in {each["violation"]["property"] for each in told}
    assert [each["violation"] for each in told] == report["violations"]
    assert {each["violation"]["run"] for each in told} == {"spoiled"}
    assert report["properties"]["deliver-once"] == 1
    code, [again], _ = followed(trace, "--checkpoint", checkpoint)
    assert code == 1
    assert again == report, "it is known, and not told again"


def test_what_is_asked_wrongly(tmp_path: Path, rows: list[Row]) -> None:
    trace = written(tmp_path / "trace", rows)
    code, _, sentence = followed(trace, "--master", "local[1]")
    assert code == 2
    assert "--follow takes neither" in sentence
    assert followed(trace, "--metrics", "here")[0] == 2
    assert followed(trace, "--webhook", "here")[0] == 2
    said = ordercast("audit", trace, "--until-quiet", "0")
    assert said.code == 2
    assert "are for --follow" in said.sentence
    (tmp_path / "none").write_bytes(b"none")
    code, _, sentence = followed(trace, "--checkpoint", tmp_path / "none")
    assert code == 2
    assert "is no checkpoint" in sentence


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Any]]]:
    """A web hook, and what it was sent."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_web_hook_is_told_and_one_that_is_not_there_is_said_to_be(
    tmp_path: Path, rows: list[Row], hook: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "ATTEMPTS", 1)
    url, got = hook
    trace = written(tmp_path, spoiled(rows))
    code, [*told, _], _ = followed(trace, "--webhook", url)
    assert code == 1
    assert got == told != []
    code, _, sentence = followed(trace, "--webhook", "http://127.0.0.1:9/")
    assert code == 1
    assert "a violation of deliver-once was not sent there" in sentence


def test_metrics_say_how_far_it_is_and_what_is_broken(tmp_path: Path, rows: list[Row]) -> None:
    follower = Follower(written(tmp_path, spoiled(rows)), 3.0)
    metrics = Metrics("127.0.0.1", 0)
    try:
        for _ in range(2):
            follower.read()
            follower.judge(0.0, ended=True)
            metrics.tell(follower)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as answer:
            told = answer.read().decode()
    finally:
        metrics.close()
    assert f"ordercast_audit_events_total {len(rows) + 1:.1f}\n" in told
    assert 'ordercast_audit_violations_total{property="deliver-once"} 1.0\n' in told
    assert 'ordercast_audit_violations_total{property="total-order"} 0.0\n' in told


def test_what_is_planted_in_the_trace_of_a_live_group_is_told(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    load = ("bench", "--nodes", 3, "--rate", 100, "--seconds", 60, "--trace", trace)
    audit = ("audit", trace, "--follow", "--patience", 1, "--until-violation", "--json")
    with started(*load), started(*audit) as follower:
        planted = until(lambda: _delivered_again(trace), "a delivery")
        out, err = follower.communicate(timeout=60)
        violation, report = map(json.loads, out.splitlines())
    assert follower.returncode == 1, err
    assert violation["violation"]["property"] == "deliver-once"
    assert violation["violation"]["messages"] == [planted]
    assert {code for code, count in report["properties"].items() if count} == {"deliver-once"}


def _delivered_again(trace: Path) -> dict[str, int] | None:
    """Let a node say that it delivered a message again; which one, or None if it has not delivered any."""
    for file in sorted(trace.glob("*.journal")):
        with open_journal(Location.of(file)) as journal:
            delivered = [row for block in journal.blocks for row in block if row[4] == "deliver"]
        if len(delivered) > 100:
            with file.open("ab", buffering=0) as end:
                end.write(BlockEncoder().block([delivered[50]]))
            origin, incarnation, number = delivered[50][9:12]
            return {"origin": origin or 0, "incarnation": incarnation or 0, "number": number or 0}
    return None

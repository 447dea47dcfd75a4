"""Tables of repeats and sweeps: medians and spreads of runs that are ok; the others are listed."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from bench import jobs
from dlobd.compare import figures
from dlobd.record.run import Metrics, Run
from dlobd.report import repeats
from dlobd.schema import Event
from tests.chosen_runs import made
from tests.records import run as run_of


def runs() -> list[Run]:
    made = [run_of(f"20260102T03040{i}Z-0a1b", wall_ns=wall * 10**9) for i, wall in enumerate((1, 2, 4))]
    failed = run_of("20260102T030409Z-0a1b", wall_ns=100 * 10**9, status="failed", reason="a rank died")
    return [*made, failed]


def test_the_table_has_medians_spreads_layers_and_failed_runs() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    repeats.table({"main": runs()}, console)
    text = console.export_text()
    (row,) = (line.split() for line in text.splitlines() if line.startswith("main "))
    assert row == ["main", "3/4", "2.000", "1.000", "4.000", "1.500"]
    assert "Spark" in text
    assert "channel" not in text
    assert "Left out: 1 of 4 runs are not ok: 1 failed" in text
    assert "main: run 20260102T030409Z-0a1b is failed: a rank died" in text


def test_unreached_events_are_not_zero() -> None:
    run = run_of()
    assert jobs.first_step_s(run) is None
    assert jobs.launcher_s(run) is None
    assert jobs.teardown_s(run) is None
    assert figures.layer_s(run, "channel") is None
    assert figures.layer_s(run, "hdfs") == 0
    firsts = [Event("first step done", 5_000 + at_ns, "own mark") for at_ns in (3 * 10**9, 2 * 10**9)]
    firsts.append(Event("executor registered", 5_000 + 10**9, "driver log"))
    last = Event("last step done", 5_000 + 6 * 10**8, "own mark")
    run = replace(run, startup=(*run.startup, *firsts), teardown=(*run.teardown, last))
    assert jobs.first_step_s(run) == 3.0
    assert jobs.launcher_s(run) == 2.0
    assert jobs.teardown_s(run) == 0.4
    assert figures.metric("training_ns", 1e9)(replace(run, metrics=Metrics(training_ns=5 * 10**8))) == 0.5


def test_the_tables_have_means_with_their_spread() -> None:
    four = made({"spark": 1, "tensorflow": 3}, rate=9000)
    five = made({"spark": 2, "tensorflow": 3}, rate=9500)
    bad = run_of("20260102T030405Z-0003", wall_ns=90 * 10**9, status="invalid", reason="the loss is NaN")
    text = io.StringIO()
    repeats.sweep_table({"workers=1": [four, five, bad], "workers=2": [four]}, Console(file=text, width=repeats.WIDTH))
    lines = [line.split() for line in text.getvalue().splitlines()]
    assert ["workers=1", "2/3", "4.500", "±", "0.707", "9250", "±", "354", "0.900", "±", "0.000"] in lines
    assert ["workers=2", "1/1", "4.000", "9000", "0.900"] in lines
    assert ["workers=1", "1.500", "±", "0.707", "3.000", "±", "0.000"] in lines
    assert "Left out: 1 of 4 runs are not ok: 1 invalid" in text.getvalue()
    assert "workers=1: run 20260102T030405Z-0003 is invalid: the loss is NaN" in text.getvalue()

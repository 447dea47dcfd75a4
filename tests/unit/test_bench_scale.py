"""Grown bundles: they are valid, they have the wanted parts, and their figures become a page."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.scale import __main__ as scale
from bench.scale.form import Clock, Names
from bench.scale.grow import CROSSING, OPEN_GETS, TEMPLATE, Size, grow
from bench.scale.measure import WIDE, WORK, Measured, twin
from bench.scale.span_file import Steady
from dlobd.attribution.attribute import attribute
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import trainers
from dlobd.experiment.files import from_dict
from dlobd.recompute.computed import computed
from dlobd.recompute.verification import verify
from dlobd.timeline.assemble import assemble

RUN = "20260101T000000Z-0001"


def grown(top: Path, size: Size) -> Bundle:
    """Return a bundle of a size with its own record."""
    bundle = grow(size, top / RUN)
    run = bundle.read()
    found = computed(bundle, from_dict(asdict(run.configuration), "the bundle"))
    bundle.write(run.with_computed(found))
    bundle.seal()
    return bundle


@pytest.mark.parametrize("size", [Size(2, 1, 30), Size(9, 1, 12), Size(3, 4, 2)], ids=str)
def test_a_grown_run_is_ok_and_verified(tmp_path: Path, size: Size) -> None:
    bundle = grown(tmp_path, size)
    run = bundle.read()
    assert (run.status, run.reason) == ("ok", None)
    found = verify(bundle)
    assert not found.failed
    stored = {check.code for check in Bundle(TEMPLATE).read().checks}
    judged = {check.code for check in found.checks if check.verdict == "pass"}
    assert stored - judged <= {"loss-falls", "page-cache"}, "every check of the stored run passes for the grown one"


def test_a_grown_run_has_all_executors_tasks_and_steps(tmp_path: Path) -> None:
    size = Size(5, 3, 4)
    evidence = Evidence(grow(size, tmp_path / RUN).path)
    assert len(evidence.executors) == size.executors
    assert [len(log.finished) for log in evidence.executors.values()] == [size.tasks + 2] * size.executors
    assert len({task.id for task in evidence.driver.log.tasks}) == size.executors * (size.tasks + 2)
    ranks = trainers(evidence.processes)
    assert sorted(process.rank or 0 for process in ranks) == list(range(size.executors))
    assert {len(process.steps()) for process in ranks} == {size.tasks * size.steps}
    fed = [len(process.named("put")) for process in evidence.processes if process.named("feed task")]
    assert fed == [size.tasks * size.steps] * size.executors


def test_collectives_of_a_grown_run_have_all_ranks_and_different_entries(tmp_path: Path) -> None:
    evidence = Evidence(grow(Size(4, 1, 20), tmp_path / RUN).path)
    steps = [process.steps() for process in trainers(evidence.processes)]
    starts = np.stack([own.start_ns[np.argsort(own.call)] for own in steps])
    ends = np.stack([own.end_ns[np.argsort(own.call)] for own in steps])
    assert (starts.max(axis=0) < ends.min(axis=0)).all()
    assert len(set(starts.argmax(axis=0).tolist())) > 1, "not always the same rank is the last"


def test_some_ranks_leave_a_get_open_and_some_executors_cross(tmp_path: Path) -> None:
    trace = assemble(Evidence(grow(Size(CROSSING, 1, 2), tmp_path / RUN).path))
    clips = attribute(trace).clips
    cut = {clip.span.partition("/")[0] for clip in clips if clip.kind == "truncated"}
    assert len(cut) == CROSSING // OPEN_GETS
    assert {clip.span.partition("/")[0] for clip in clips if clip.kind == "crossing"} == {f"executor-{CROSSING - 1}"}
    assert not any(clip.kind == "inconsistent" for clip in clips)


def test_steps_last_as_long_as_stored_ones() -> None:
    steady = Steady.of(TEMPLATE / "spans")
    base_ns = np.arange(100) * steady.period_ns
    rows = np.array(list(steady.trained(1, np.arange(100), base_ns, 3, 0)))
    get_end, decode_end, step_end = (rows[:, at] + rows[:, at + 1] for at in (1, 4, 7))
    assert (step_end - base_ns < steady.period_ns).all()
    assert (decode_end < rows[:, 7]).all()
    assert (get_end - base_ns < steady.period_ns).all()
    assert steady.steps.min() <= np.median(rows[:, 8]) <= steady.period_ns


def test_a_pause_moves_later_timestamps_of_all_formats() -> None:
    clock = Clock(10**13, 10**13 + 10**10, 1_700_000_000 * 10**9 - 10**13)
    text = "10000000000500 2023-11-14T22:13:20.000 a 1700000001000 b 1700000002000000007 c 17000 executor 1, x 100%"
    form = Names({"executor": "(?<=executor )1"}).form(text, clock)
    moved = form.filled({"executor": 12}, 1000, 2 * 10**6, 10**13 + 10**9 - 1)
    assert (
        moved
        == "10000000001500 2023-11-14T22:13:20.000 a 1700000001002 b 1700000002002001007 c 17000 executor 12, x 100%"
    )
    assert form.filled({"executor": 1}) == text


def measured(executors: int, spans: int, cpu_s: float, **aborted: str) -> Measured:
    """Return figures in which `aborted` has the reasons of commands that did not finish."""
    commands: dict[str, Any] = {
        work.title: {"cpu_s": cpu_s, "peak_bytes": 10**8}
        | ({"aborted": aborted[work.title]} if work.title in aborted else {})
        for work in WORK
    }
    return {"size": Size(executors, 1, 9)._asdict(), "spans": spans, "bytes": 170 * spans, "commands": commands}


def test_figures_become_tables_and_a_plot(tmp_path: Path) -> None:
    long = {"10^4": measured(8, 10**4, 1.0), "10^5": measured(16, 10**5, 8.0, record="more than 8 GiB")}
    wide = {name: measured(9, spans, cpu_s) for name, spans, cpu_s in zip(WIDE, (10**4, 10**6), (1, 150), strict=True)}
    page, picture, stored = scale.write(["a machine"], long, wide, tmp_path)
    text = page.read_text()
    assert "| kernel | 1 | 8 | 0.903 |" in text
    assert "| record | 1 | aborted: more than 8 GiB | - |" in text
    assert "| kernel | 1 | 150 | 1.5 |" in text
    assert picture.read_text().startswith("<?xml")
    assert json.loads(stored.read_text())["long"]["10^4"]["spans"] == 10**4


def test_a_twin_is_another_run(tmp_path: Path) -> None:
    (tmp_path / RUN).mkdir()
    (tmp_path / RUN / "run.json").write_text((TEMPLATE / "run.json").read_text())
    twin(tmp_path / RUN)
    (other,) = (path for path in tmp_path.iterdir() if path.name != RUN)
    assert Bundle(other).read().run_id == other.name


def test_spans_of_the_loop_are_in_the_proportions_of_the_stored_run(tmp_path: Path) -> None:
    def shares(path: Path) -> dict[str, float]:
        wanted = ("get", "decode", "step", "read block", "put")
        processes = Evidence(path).processes
        counts = {name: sum(len(process.named(name)) for process in processes) for name in wanted}
        return {name: count / sum(counts.values()) for name, count in counts.items()}

    stored, own = shares(TEMPLATE), shares(grow(Size(4, 1, 300), tmp_path / RUN).path)
    assert all(abs(stored[name] - own[name]) < 0.02 for name in stored), (stored, own)

"""Throughput with tf_cnn_benchmarks' definitions, from real runs' marks, against its formulas in numpy."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dlobd.evidence.evidence import Evidence
from dlobd.measures.statistics import fewest, quantile
from dlobd.measures.throughput import throughput

DATA = Path(__file__).parents[1] / "data"


def lines(run: Path) -> list[dict[str, object]]:
    for path in run.rglob("spans-*.jsonl"):
        if '"role":"chief"' in (text := path.read_text()):
            return [json.loads(line) for line in text.splitlines()]
    raise AssertionError("no chief")


@pytest.mark.parametrize("run", ["quick-run", "native-run"])
def test_a_real_run_against_the_published_formulas(run: str) -> None:
    """Of the steps after ten: mean, standard error and jitter of `get_perf_timing`; a step's time is from the step
    before, or from the checkpoint in between."""
    begins = {line["i"]: line for line in lines(DATA / run) if line["k"] == "b"}
    ends = {line["i"]: line["t"] for line in lines(DATA / run) if line["k"] == "e"}
    steps = [(b["t"], ends[i]) for i, b in begins.items() if b["n"] in ("step", "first step")]
    checkpoints = [(b["t"], ends[i]) for i, b in begins.items() if b["n"] == "checkpoint"]
    assert len(steps) == 30
    assert len(checkpoints) == 2
    times = []
    for (_, before), (start, end) in list(itertools.pairwise(steps))[9:]:
        since = max([before, *(to for begun, to in checkpoints if before <= begun and to <= start)])
        times.append((end - since) / 1e9)
    speeds = 200 / np.array(times)

    found = throughput(Evidence(DATA / run))
    assert (found.warmup_steps, found.steps, found.samples_per_step) == (10, 20, 200)
    assert found.mean == pytest.approx(200 / np.mean(times))
    assert found.uncertainty == pytest.approx(np.std(speeds) / np.sqrt(20))
    assert found.jitter == pytest.approx(1.4826 * np.median(np.abs(speeds - np.median(speeds))))
    assert found.step_with_input.max_ns == pytest.approx(max(times) * 1e9)


def test_a_checkpoint_is_no_part_of_a_step(tmp_path: Path) -> None:
    """It takes longer than all steps of this run; without its mark it would lie in the step that follows. Evaluations
    and what ranks agree on between steps are left out in the same way."""
    found = throughput(Evidence(DATA / "quick-run"))
    for name in ("evaluate", "agree", "something"):
        copy = Path(shutil.copytree(DATA / "quick-run", tmp_path / name))
        for path in copy.rglob("spans-*.jsonl"):
            path.write_text(path.read_text().replace('"n":"checkpoint"', f'"n":"{name}"'))
        otherwise = throughput(Evidence(copy))
        assert (found == otherwise) == (name != "something")
        assert found.step == otherwise.step
    assert found.step_with_input.max_ns * 2 < otherwise.step_with_input.max_ns


def test_nothing_without_enough_steps(tmp_path: Path) -> None:
    assert throughput(Evidence(DATA / "own-run")) is None
    copy = Path(shutil.copytree(DATA / "quick-run", tmp_path / "run"))
    for kept, steps in ((11, None), (12, 2)):
        for path in (DATA / "quick-run").rglob("spans-*.jsonl"):
            text = [line for line in path.read_text().splitlines() if not _step_from(line, kept)]
            (copy / path.relative_to(DATA / "quick-run")).write_text("\n".join(text) + "\n")
        found = throughput(Evidence(copy))
        assert (found.steps if found else None) == steps
    shutil.rmtree(copy / "spans")
    assert throughput(Evidence(copy)) is None


def _step_from(line: str, number: int) -> bool:
    wait = json.loads(line).get("w", {})
    return wait.get("rendezvous") == "step" and wait["call"] >= number


def test_a_quantile_needs_enough_values() -> None:
    assert [fewest(q) for q in (0.5, 0.9, 0.95, 0.99)] == [5, 29, 59, 299]
    assert quantile(range(298), 0.99) is None
    assert quantile(range(299), 0.99) == 296
    assert quantile(range(5), 0.5) == 2

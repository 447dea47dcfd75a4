"""Epochs, the time to an accuracy and throughput, from marks of real runs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dlobd
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.experiment import own_job
from dlobd.measures import frames
from dlobd.measures.epochs import epochs, first_touch, time_to_accuracy
from dlobd.measures.statistics import fewest, quantile
from dlobd.measures.throughput import throughput
from dlobd.recompute.verification import verify
from dlobd.schema import Experiment
from tests.captured import recomputed
from tests.epoch_marks import DATA, RIGHT, marked


def with_target(bundle: Bundle, target: float) -> dict[str, Any]:
    experiment = own_job.from_dict(bundle.read_json()["configuration"])
    assert isinstance(experiment, Experiment)
    return recomputed(bundle, dataclasses.replace(experiment, target_accuracy=target, evaluate_every_epochs=1))


@pytest.mark.parametrize("run", ["quick-run", "native-run"])
def test_epochs_and_evaluations_make_up_the_loop(run: str, tmp_path: Path) -> None:
    bundle = marked(run, tmp_path)
    found = epochs(Evidence(bundle.path))
    assert [(e.epoch, e.loss, e.test_samples, e.test_accuracy) for e in found] == [
        (n, 2.0 / n, 2000, RIGHT[n - 1] / 2000) for n in (1, 2, 3)
    ]
    assert [e.evaluation_ns for e in found] == [5_000] * 3
    chief = Evidence(bundle.path).chief
    first = chief.instant("first batch")
    assert first.at_ns + sum(e.ns + (e.evaluation_ns or 0) for e in found) == found[-1].known_ns
    assert found[-1].end_ns == chief.steps()[-1].end_ns + 1_000


def test_epochs_without_evaluation_are_null(tmp_path: Path) -> None:
    bundle = marked("quick-run", tmp_path, evaluated=(2,))
    first, second, last = epochs(Evidence(bundle.path))
    assert (first.test_accuracy, first.test_samples, first.evaluation_ns, first.known_ns) == (None,) * 4
    assert second.test_accuracy == 0.75
    assert (last.test_accuracy, last.test_samples) == (0.83, 2000)
    assert last.known_ns == bundle.read().event_ns("evaluated")
    done = sum(line.get("n") == "epoch done" for line in lines(DATA / "killed-trainer"))
    assert [epoch.test_accuracy for epoch in epochs(Evidence(DATA / "killed-trainer"))] == [None] * done
    assert epochs(Evidence(DATA / "own-run")) == ()


def test_the_stored_model_is_the_evaluation_of_the_only_epoch() -> None:
    (epoch,) = epochs(Evidence(DATA / "quick-run"))
    chief = json.loads(json.loads((DATA / "quick-run" / "evidence" / "markers.json").read_text())["rank-0.json"])
    assert epoch.epoch == 1
    assert {"samples": epoch.test_samples, "accuracy": epoch.test_accuracy} == chief["test"]
    assert epoch.loss == pytest.approx(np.mean(chief["losses"]), rel=1e-6)


def test_the_stored_model_is_no_epochs_where_training_went_on(tmp_path: Path) -> None:
    bundle = marked("quick-run", tmp_path, evaluated=(1,))
    for path in bundle.spans.rglob("*.jsonl"):
        kept = [line for line in path.read_text().splitlines() if '"epoch": 3' not in line]
        path.write_text("\n".join(kept) + "\n")
    assert [e.test_accuracy for e in epochs(Evidence(bundle.path))] == [0.5, None]


def test_first_touch_is_the_first_open_of_a_training_file(tmp_path: Path) -> None:
    """Without its audit log it is the first line of an executor about its split; native ranks mark it themselves."""

    def lines(run: Path, name: str, wanted: str) -> list[int]:
        texts = [path.read_text().splitlines() for path in run.rglob(name)]
        times = [int(line.split()[0]) for text in texts for line in text if wanted in line and "/train/part" in line]
        return [at_ns for at_ns in times if at_ns >= begin_ns]  # without the preparation before the window

    run = marked("quick-run", tmp_path).path
    begin_ns = json.loads((run / "evidence" / "window.json").read_text())["exec_ns"]
    opened, turned = lines(run, "namenode-audit.log", "cmd=open"), lines(run, "stderr", "input split: ")
    found = first_touch(Evidence(run))
    assert (found.at_ns, found.source, found.resolution_ns) == (min(opened), "NN audit log", 1_000)
    (run / "logs/daemons/namenode-audit.log").unlink()
    found = first_touch(Evidence(run))
    assert (found.at_ns, found.source, found.resolution_ns) == (min(turned), "executor log", 1_000)
    assert min(turned) < min(opened)

    read = Evidence(DATA / "native-run")
    found = first_touch(read)
    marks = [s.start_ns for p in read.processes for s in p.named("read input")]
    assert (found.at_ns, found.source, found.resolution_ns) == (min(marks), "own mark", 1)
    assert first_touch(Evidence(DATA / "own-run")) is None


def test_time_to_accuracy_on_both_clocks(tmp_path: Path) -> None:
    bundle = marked("quick-run", tmp_path)
    found = with_target(bundle, 0.7)
    reached = found["time_to_accuracy"]
    known_ns = found["epochs"][1]["end_ns"] + 5_000
    assert (reached["target"], reached["epoch"], reached["reason"]) == (0.7, 2, None)
    assert reached["from_submit_ns"] == known_ns - found["window"]["start_ns"]
    assert reached["from_first_touch_ns"] == known_ns - found["first_touch"]["at_ns"]
    assert reached["from_first_touch_ns"] < reached["from_submit_ns"]
    answers = {answer.question: answer for answer in verify(bundle).answers}
    assert answers["report matches the evidence"].ok, answers

    found["time_to_accuracy"]["from_submit_ns"] -= 1
    bundle.write(found)
    bundle.seal()
    answers = {answer.question: answer for answer in verify(bundle).answers}
    assert "time_to_accuracy.from_submit_ns" in answers["report matches the evidence"].detail


def test_a_target_that_was_not_reached_is_null_with_its_reason(tmp_path: Path) -> None:
    bundle = marked("quick-run", tmp_path)
    missed = with_target(bundle, 0.9)["time_to_accuracy"]
    assert (missed["epoch"], missed["from_submit_ns"], missed["from_first_touch_ns"]) == (None, None, None)
    assert missed["reason"] == "the best test accuracy was 0.8000, after epoch 3"
    assert with_target(bundle, 0.0)["time_to_accuracy"] is None
    nothing = time_to_accuracy(0.5, [], 0, None)
    assert nothing.reason == "no epoch was evaluated"
    unrecorded = time_to_accuracy(0.5, [], 0, None, recorded=False)
    assert unrecorded.reason == "no epoch was recorded"


def test_epochs_as_a_data_frame(tmp_path: Path) -> None:
    bundle = marked("native-run", tmp_path, evaluated=(2,))
    found = with_target(bundle, 0.7)
    table = dlobd.load(bundle.path).epochs()
    assert {name: str(kind) for name, kind in table.dtypes.items()} == frames.EPOCHS
    assert table["epoch"].tolist() == [1, 2, 3]
    assert (table["end_ns"] - table["start_ns"] == table["duration_ns"]).all()
    assert table["end_ns"].tolist() == [e["end_ns"] - found["window"]["start_ns"] for e in found["epochs"]]
    for clock in ("from_submit_ns", "from_first_touch_ns"):
        assert table[clock].isna().tolist() == [True, False, False]
        assert table[clock][1] == found["time_to_accuracy"][clock]
    assert pd.isna(table["test_accuracy"][0])
    nothing = dlobd.load(DATA / "own-run").epochs()
    assert list(nothing.columns) == list(frames.EPOCHS)
    assert nothing.empty


def lines(run: Path) -> list[dict[str, object]]:
    for path in run.rglob("spans-*.jsonl"):
        if '"role":"chief"' in (text := path.read_text()):
            return [json.loads(line) for line in text.splitlines()]
    raise AssertionError("no chief")


@pytest.mark.parametrize("run", ["quick-run", "native-run"])
def test_a_real_run_against_the_published_formulas(run: str) -> None:
    """Of the steps after ten: mean, standard error and jitter of `get_perf_timing`; a step's time is from the step
    before, or from the checkpoint in between."""
    chief = lines(DATA / run)
    ends = {line["i"]: line["t"] for line in chief if line["k"] == "e"}
    ends |= {line["i"]: line["t"] + line["d"] for line in chief if line["k"] == "s"}
    spans = [(line["n"], line["t"], ends[line["i"]]) for line in chief if line["k"] in "bs"]
    steps = [(start, end) for name, start, end in spans if name in ("step", "first step")]
    checkpoints = [(start, end) for name, start, end in spans if name == "checkpoint"]
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

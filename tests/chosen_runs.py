"""Generated runs of many settings, to be compared: their walls, layers and throughput are what a test says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from dlobd.bundle.store import Bundle
from dlobd.compare.runset import RunSet, without_series
from dlobd.experiment import files, series
from dlobd.record.run import Run
from dlobd.schema import Experiment
from tests.records import layer_row, run_record

S = 10**9

_NUMBERS = count()


def experiment(**settings: Any) -> Experiment:
    """The quick job with these settings; what they imply is not looked at."""
    return dataclasses.replace(files.load("softmax-mnist-quick"), name="made", **settings)


def record(layers_s: Mapping[str, float], rate: float | None = None, **settings: Any) -> dict[str, Any]:
    """A run.json whose layers, in seconds, sum to its wall; `rate` in samples per second."""
    chosen = experiment(**settings)
    number = next(_NUMBERS)
    spent = {name: round(seconds * S) for name, seconds in layers_s.items()}
    lengths = {"p50_ns": 1, "p90_ns": None, "p95_ns": None, "p99_ns": None, "max_ns": 2}
    speeds = {"mean": rate, "uncertainty": 0.0, "jitter": 0.0, "step": lengths, "step_with_input": lengths}
    return run_record(
        f"20260102T03{number // 60:02}{number % 60:02}Z-{number:04x}",
        experiment=chosen.name,
        experiment_key=files.key(chosen),
        configuration=dataclasses.asdict(chosen),
        wall_ns=sum(spent.values()),
        layers=[layer_row(name, name, ns) for name, ns in spent.items()],
        unattributed_ns=0,
        throughput={"warmup_steps": 10, "steps": 20, "samples_per_step": 200, **speeds} if rate else None,
        metrics={"test_accuracy": 0.9, "train_samples": chosen.train_samples, "steps": 30, "samples_per_second": rate},
    )


def trained(accuracies: Sequence[float | None], target: float = 0.0, **settings: Any) -> dict[str, Any]:
    """A run.json with these test accuracies; the data is first touched 4 s after submit, and epoch n is known
    10 n s after submit."""
    start_ns = 5_000
    epochs = [
        {
            "epoch": number,
            "end_ns": start_ns + number * 10 * S - S,
            "ns": 9 * S,
            "loss": 1 / number,
            "test_samples": None if accuracy is None else 2000,
            "test_accuracy": accuracy,
            "evaluation_ns": None if accuracy is None else S,
        }
        for number, accuracy in enumerate(accuracies, 1)
    ]
    reached = next((n for n, accuracy in enumerate(accuracies, 1) if accuracy and accuracy >= target), None)
    times = {
        "target": target,
        "epoch": reached,
        "from_submit_ns": reached and 10 * reached * S,
        "from_first_touch_ns": reached and (10 * reached - 4) * S,
        "reason": None if reached else "the best was less",
    }
    touched = {"event": "first touch of the data", "at_ns": start_ns + 4 * S, "source": "own mark", "resolution_ns": 1}
    more = {"epochs": epochs, "first_touch": touched, "time_to_accuracy": times if target else None}
    return record({"tensorflow": 40}, evaluate_every_epochs=1, target_accuracy=target, **settings) | more


def runset(runs: Iterable[Run], axes: tuple[str, ...] = ()) -> RunSet:
    return dataclasses.replace(without_series("", runs), axes=axes)


def made(layers_s: Mapping[str, float], rate: float | None = None, **settings: Any) -> Run:
    return Run.from_json(record(layers_s, rate, **settings))


def on_disk(out: Path, records: list[dict[str, Any]], axes: tuple[str, ...], status: str = "ok") -> Path:
    """A sweep's file of these runs, with their bundles beside it; the last one has this status."""
    points, begun = {}, []
    for number, one in enumerate(records):
        values = one["configuration"]
        label = " ".join(f"{name}={values[name]}" for name in axes)
        points[label] = Experiment(**values)
        bundle = Bundle(out / "made" / one["run_id"])
        bundle.path.mkdir(parents=True)
        bad = {"status": status, "reason": "a rank died"} if number == len(records) - 1 and status != "ok" else {}
        bundle.write(one | bad)
        bundle.seal()
        repeat = sum(start.point == label for start in begun) + 1
        begun.append(series.StartedRun(repeat, label, bundle.run_id, 1.0))
    found = series.Series(points, 0, out, tuple(begun), axes=axes, scaling="weak")
    series.write(found)
    return found.path

"""Constructed repeats for tests: runs whose truth is known, alone or as a series on disk."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dlobd.bundle.store import Bundle
from dlobd.compare.runset import Member, Repeat, RunSet
from dlobd.experiment import files, series
from dlobd.record.run import Run
from dlobd.schema import Experiment
from tests.records import layer_row, run_record

S = 10**9


def experiment(way: str, **changes: Any) -> Experiment:
    """The main job by `launcher` or `launcher input`."""
    return dataclasses.replace(_chosen(way), name=f"{way.replace(' ', '-')}-{changes.get('epochs', 2)}", **changes)


@cache
def _chosen(way: str) -> Experiment:
    launcher, _, source = way.partition(" ")
    return files.load("softmax-mnist", [f"launcher={launcher}", *([f"input={source}"] if source else [])])


def record(
    number: int,
    chosen: Experiment,
    layers: Mapping[str, float],
    loop_s: float | None = None,
    epochs_s: Sequence[float] = (),
    **changes: Any,
) -> dict[str, Any]:
    """Run number `number`: layers in seconds add up to its wall, and so much of it is the training loop, with epochs of
    these lengths."""
    spent = {name: round(seconds * S) for name, seconds in layers.items()}
    wall_ns = sum(spent.values())
    first_ns = (wall_ns - round((loop_s or 0) * S)) * 3 // 4
    known = {"source": "own mark", "resolution_ns": 1}
    rows = [layer_row(name, name, ns) for name, ns in spent.items()]
    return run_record(
        f"20260102T03{number // 60:02}{number % 60:02}Z-0a1b",
        started_at=f"2026-01-02T03:{number // 60:02}:{number % 60:02}Z",
        experiment=chosen.name,
        experiment_key=files.key(chosen),
        configuration=dataclasses.asdict(chosen),
        wall_ns=wall_ns,
        window={"name": "w", "start_ns": 0, "end_ns": wall_ns, "clock": "c"},
        layers=rows,
        unattributed_ns=0,
        startup=[{"event": "first step done", "at_ns": first_ns, **known}] if loop_s is not None else [],
        teardown=[{"event": "last step done", "at_ns": first_ns + round((loop_s or 0) * S), **known}],
        epochs=_epochs(first_ns, epochs_s),
        **changes,
    )


def _epochs(start_ns: int, lengths_s: Sequence[float]) -> list[dict[str, Any]]:
    tested = dict.fromkeys(("test_samples", "test_accuracy", "evaluation_ns"))
    lengths = [round(each * S) for each in lengths_s]
    return [
        {"epoch": number, "end_ns": start_ns + sum(lengths[:number]), "ns": ns, "loss": 1.0, **tested}
        for number, ns in enumerate(lengths, 1)
    ]


def member(repeat: int, number: int, chosen: Experiment, *values: Any, **changes: Any) -> Member:
    return Member(Run.from_json(record(number, chosen, *values, **changes)), Repeat("series", repeat))


def runset(members: Sequence[Member]) -> RunSet:
    return RunSet("", tuple(members))


def on_disk(out: Path, runs: Sequence[tuple[int, dict[str, Any]]]) -> Path:
    """A series' file of (repeat, record), with its sealed bundles beside it."""
    points, begun = {}, []
    for repeat, one in runs:
        name, run_id = one["configuration"]["name"], one["run_id"]
        points[name] = files.from_dict(one["configuration"])
        bundle = Bundle(out / name / run_id)
        bundle.path.mkdir(parents=True)
        bundle.write(json.loads(json.dumps(one)))
        bundle.seal()
        begun.append(series.StartedRun(repeat, name, run_id, 3.0))
    made = series.Series(points, 0, out, tuple(begun))
    series.write(made)
    return made.path

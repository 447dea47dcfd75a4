"""Memory of executors that an experiment leaves to dlobd."""

from __future__ import annotations

import dataclasses

import pytest

from bench.models import points
from dlobd.errors import UsageError
from dlobd.experiment import files, memory
from dlobd.hadoop.embedded.configuration import default_settings
from dlobd.run.preflight import capacity
from dlobd.schema import Experiment

ZERO = ("executor_memory_mb=0", "executor_overhead_mb=0")


def load(*settings: str) -> Experiment:
    return files.load("softmax-mnist", settings)


def test_what_is_zero_is_derived_told_and_stored() -> None:
    told: list[str] = []
    both = files.load("softmax-mnist", ZERO, told.append)
    # 1280, and twice 30,000 records of 28 x 28 bytes
    assert (both.executor_memory_mb, both.executor_overhead_mb) == (512, 1408)
    assert told == ["derived: executor_memory_mb=512, executor_overhead_mb=1408"]
    assert load("executor_overhead_mb=0").executor_memory_mb == load().executor_memory_mb
    assert load("executor_memory_mb=600", "executor_overhead_mb=0").executor_memory_mb == 600
    before = dataclasses.asdict(load()) | {"executor_overhead_mb": 0}
    assert files.from_dict(before).executor_overhead_mb == 0
    with pytest.raises(UsageError, match="executor_memory_mb must be between 450 and 1000000, not 100"):
        load("executor_memory_mb=100")


def test_what_needs_more_gets_more() -> None:
    plain = load(*ZERO).executor_overhead_mb
    assert load(*ZERO, "launcher=tfos-stock").executor_overhead_mb == plain + 1280
    assert load(*ZERO, "model=lenet").executor_overhead_mb > plain
    assert (
        load(*ZERO, "model=lenet", "batch_size=500").executor_overhead_mb
        > load(*ZERO, "model=lenet", "batch_size=50").executor_overhead_mb
    )
    large = ("dataset=synthetic", "synthetic_shape=64x64x3", "train_samples=100000")
    assert load(*ZERO, *large).executor_overhead_mb > plain + 1024
    assert load(*ZERO, *large, "launcher=barrier").executor_overhead_mb < load(*ZERO, *large).executor_overhead_mb
    assert load(*ZERO, *large, "input=read").executor_overhead_mb < plain + 256


def test_every_model_gets_what_its_measured_runs_had() -> None:
    for point in points().values():
        free = dataclasses.replace(point, executor_memory_mb=0, executor_overhead_mb=0)
        sizes = memory.derived(free)
        assert sizes["executor_overhead_mb"] >= point.executor_overhead_mb
        assert sizes["executor_memory_mb"] >= point.executor_memory_mb
        capacity.check_yarn(dataclasses.replace(free, **sizes), capacity.embedded(default_settings()))  # type: ignore[arg-type]

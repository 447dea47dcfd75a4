"""Derives the memory of an executor if `executor_memory_mb` or `executor_overhead_mb` is 0. Pure.

    heap        for Spark itself, which streams records block by block
    overhead    launcher + model x max(1, batch / 50) + input, rounded up to YARN's increment
        launcher    Python workers and a trainer with SoftMax regression
        model       additional memory of another model, with batches of up to 50
        input       feed: a rank's partition, twice for TensorFlowOnSpark (in its queue and in transit); the barrier
                    launcher keeps it for later epochs. read: the batches that tf.data prefetches, as float32

Launcher and model are upper bounds; the runs of docs/results.md did not exceed them.
"""

import math

from dlobd.axes import MODELS
from dlobd.experiment import ways
from dlobd.job.datasets.base import dataset_of, layout_of
from dlobd.registry import LARGEST_MODEL_MB
from dlobd.schema import Experiment

HEAP_MB = 512
LAUNCHER_MB = 1280
"""Memory for launchers without a row in `ways.PREFERRED`."""

BATCH = 50
BATCHES_AHEAD = 10
"""Batches that tf.data prefetches, decodes and hands over; see `dlobd.job.training.inputs`."""

STEP_MB = 128
"""Increment of the embedded cluster's containers: yarn.scheduler.minimum-allocation-mb of yarn/base."""


def derived(experiment: Experiment) -> dict[str, int]:
    """Return the memory settings that are 0, with derived values. Raises ValueError for an invalid data set."""
    e = experiment
    if e.executor_memory_mb and e.executor_overhead_mb:
        return {}
    layout = layout_of(dataset_of(e, available=False))
    launcher_mb = ways.PREFERRED.get(e.launcher, {}).get("executor_overhead_mb", LAUNCHER_MB)
    model_mb = LARGEST_MODEL_MB if e.model.path else MODELS.row(e.model).memory_mb
    if e.input == "read":
        input_bytes = BATCHES_AHEAD * e.batch_size * math.prod(layout.shape) * 4.0
    else:
        input_bytes = e.train_samples / e.workers * layout.record_bytes * (1 if e.launcher == "barrier" else 2)
    overhead_mb = launcher_mb + model_mb * max(1, e.batch_size / BATCH) + input_bytes / 2**20
    sizes = {"executor_memory_mb": HEAP_MB, "executor_overhead_mb": math.ceil(overhead_mb / STEP_MB) * STEP_MB}
    return {name: size for name, size in sizes.items() if not getattr(e, name)}

"""Devices and threads of a rank: the GPUs that CUDA may use, and TensorFlow's settings.

A user may reserve GPUs for other processes with `CUDA_VISIBLE_DEVICES`.
"""

from __future__ import annotations

import os
from itertools import takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlobd.job.description import Job

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable with numbers or IDs of GPUs; launchers pass a Spark task's GPUs in it."""

NO_GPU = "-1"


def visible_gpus() -> list[str] | None:
    """Return the GPUs that the variable lists, up to the first invalid entry, as CUDA does; None if it is not set."""
    if VISIBLE not in os.environ:
        return None
    entries = map(str.strip, os.environ[VISIBLE].split(","))
    return list(takewhile(lambda entry: entry and not entry.startswith("-"), entries))


def gpu_id(number: int) -> str:
    """Return CUDA's ID of a GPU by its number among the usable GPUs. Raises IndexError if there are fewer GPUs."""
    gpus = visible_gpus()
    return str(number) if gpus is None else gpus[number]


def configure(tf: Any, job: Job) -> None:
    """Set device and threads before TensorFlow uses a device. Raises RuntimeError if a needed GPU is missing."""
    if job.device == "cpu":
        os.environ[VISIBLE] = NO_GPU  # never use a GPU unless it was requested
        tf.config.set_visible_devices([], "GPU")
    elif os.environ.get(VISIBLE, "") in ("", NO_GPU):
        raise RuntimeError("device gpu: the scheduler assigned no GPU to this rank")
    if job.intra_op_threads:
        tf.config.threading.set_intra_op_parallelism_threads(job.intra_op_threads)
    if job.inter_op_threads:
        tf.config.threading.set_inter_op_parallelism_threads(job.inter_op_threads)


def effective(tf: Any, job: Job) -> dict[str, str | int]:
    """Return the settings of TensorFlow's context: device, cores, threads (0: TensorFlow's default).

    Raises RuntimeError if they differ from the job's settings.
    """
    settings: dict[str, str | int] = {
        "device": "gpu" if tf.config.list_logical_devices("GPU") else "cpu",
        "cores": len(os.sched_getaffinity(0)),
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
    }
    wrong = [f"{name} {value}" for name, value in settings.items() if name != "cores" and value != getattr(job, name)]
    if wrong:
        assigned = f", although this rank was assigned GPU {os.environ.get(VISIBLE)}" if job.device == "gpu" else ""
        raise RuntimeError(f"TensorFlow's settings differ from the job's: {' and '.join(wrong)}{assigned}")
    return settings

"""What a rank uses of its machine: one kind of device, and so many threads. Said before TensorFlow's context is made,
and looked up afterwards."""

from __future__ import annotations

import os
from typing import Any

from dlobd.job.description import Job
from dlobd.job.launchers.visible_gpus import NONE, VISIBLE


def choose(tf: Any, job: Job) -> None:
    """Before TensorFlow has used any device.

    Raises:
        RuntimeError: the job wants a GPU, and this rank was assigned none.
    """
    if job.device == "cpu":
        os.environ[VISIBLE] = NONE  # a GPU that is there is never used unasked
        tf.config.set_visible_devices([], "GPU")
    elif os.environ.get(VISIBLE, "") in ("", NONE):
        raise RuntimeError("device gpu: the scheduler assigned no GPU to this rank")
    if job.intra_op_threads:
        tf.config.threading.set_intra_op_parallelism_threads(job.intra_op_threads)
    if job.inter_op_threads:
        tf.config.threading.set_inter_op_parallelism_threads(job.inter_op_threads)


def used(tf: Any, job: Job) -> dict[str, Any]:
    """What TensorFlow's context has, once it is made: device, cores of this process, threads (0: TensorFlow's choice).

    Raises:
        RuntimeError: it is not what was asked for.
    """
    found = {
        "device": "gpu" if tf.config.list_logical_devices("GPU") else "cpu",
        "cores": len(os.sched_getaffinity(0)),
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
    }
    wrong = [f"{name} {found[name]}" for name in found if name != "cores" and found[name] != getattr(job, name)]
    if wrong:
        assigned = f" although it was assigned GPU {os.environ.get(VISIBLE)}" if job.device == "gpu" else ""
        raise RuntimeError(f"TensorFlow has {' and '.join(wrong)}, not what the job asks for{assigned}")
    return found

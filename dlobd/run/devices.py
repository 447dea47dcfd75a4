"""Whether the device of an experiment is there, before anything is started for it."""

from __future__ import annotations

from dlobd.errors import SetupError
from dlobd.job.launchers.visible_gpus import VISIBLE, named
from dlobd.run.capacity import gpus_of
from dlobd.schema import Runnable

ON_CPU = "--set device=cpu"


def gpus_here() -> int:
    """How many GPUs of NVIDIA this machine has, by NVIDIA's own library, and CUDA_VISIBLE_DEVICES lets dlobd use."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0  # no driver, or no device
    try:
        found = int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()
    visible = named()
    return found if visible is None else min(found, len(visible))


def check_here(experiment: Runnable) -> None:
    """Of an experiment that runs on this machine alone.

    Raises:
        SetupError: it wants more GPUs than there are, or of a scheduler that has none to give.
    """
    wanted = experiment.workers * gpus_of(experiment)
    if not wanted:
        return
    if not (found := gpus_here()):
        hidden = f", and {VISIBLE} names none" if named() == [] else ""
        raise SetupError(f"device gpu: no NVIDIA GPU was found on this machine{hidden}.", ON_CPU)
    if experiment.scheduler == "yarn":
        raise SetupError(
            "device gpu: the embedded cluster's YARN has no resource type yarn.io/gpu.",
            f"--hadoop-conf of a cluster that has it, --set scheduler=standalone, or {ON_CPU}",
        )
    if wanted > found:
        raise SetupError(
            f"{experiment.workers} workers need a GPU each, but this machine has {found}.", "lower workers"
        )

"""Trial of the user's own model in a separate process before anything is started, and its upload for the job.

Every failure becomes one line, also if the file raises, hangs, ends its process, or does not fit the data set.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache, partial

from dlobd import spans as kinds
from dlobd.axes import MODELS
from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.errors import ClusterError, UsageError
from dlobd.hadoop.embedded.processes import die_with_parent
from dlobd.hadoop.failures import failures
from dlobd.hadoop.file_system import Storage
from dlobd.hadoop.webhdfs import words
from dlobd.job.datasets.base import dataset_of
from dlobd.job.description import MODEL_FILE, Job
from dlobd.job.device_config import NO_GPU, VISIBLE
from dlobd.paths import python_path
from dlobd.run.observer import Report
from dlobd.schema import Experiment

END_S = 5.0
TRIAL_TIMEOUT_S = 120
"""Timeout for TensorFlow's import (3 s on an idle machine) and the model's first step."""


def check(experiment: Experiment, report: Report | None = None) -> None:
    """Try the model unless it is built in. A combination of model and data is tried once per process.
    Raises UsageError if the model does not load, build or train a step, or does not fit the data set, SetupError if its
    package is not installed."""
    model = experiment.model
    if not model.path and not MODELS.row(model).package:
        return
    dataset = dataset_of(experiment)
    request = {
        "model": experiment.model,
        "sha256": experiment.model_sha256,
        "text": model.read(experiment.model_sha256) if model.path else "",
        "shape": dataset.shape,
        "classes": dataset.classes,
        "seed": experiment.seed,
        "loss": experiment.loss,
        "dataset": experiment.dataset,
    }
    if not model.path:
        MODELS.get(experiment.model)
    if report:
        report(f"trying model {experiment.model}")
    _try(json.dumps(request), experiment.model)


def send(experiment: Experiment, job: Job, storage: Storage, bundle: Bundle) -> None:
    """Copy the file of the user's model to the job's directory, where ranks read it, and into the bundle.
    Raises UsageError if the file has changed since the experiment was read, ClusterError if the storage refused."""
    if not experiment.model.path:
        return
    text = experiment.model.read(experiment.model_sha256).encode()
    path = f"{job.run_dir}/{MODEL_FILE}"
    try:
        storage.write(path, text, kinds.MODEL_FILE)
    except failures() as error:
        raise ClusterError(f"{path} could not be written: {words(error)}", "check your permissions there") from error
    bundle.add_bytes(text, files.MODEL)


@cache
def _try(request: str, model: str) -> None:
    process = subprocess.Popen(
        # -P: modules of the current directory are not found, as on another machine
        [sys.executable, "-P", "-m", "dlobd.job.training.model_check"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": python_path(), VISIBLE: NO_GPU, "TF_CPP_MIN_LOG_LEVEL": "3"},
        start_new_session=True,
        preexec_fn=partial(die_with_parent, signal.SIGKILL),
    )
    try:
        out, _ = process.communicate(request.encode(), TRIAL_TIMEOUT_S)
        code = process.returncode
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        ended = f"it ended its process ({how})"
    except subprocess.TimeoutExpired:
        _kill(process)
        out = _rest(process)
        ended = f"it did not end within {TRIAL_TIMEOUT_S} s"
    finally:
        _kill(process)  # also kills the processes that the file has started
    lines = [json.loads(line) for line in out.decode().splitlines()]
    if lines and isinstance(lines[-1], dict):
        if wrong := lines[-1]["wrong"]:
            raise UsageError(f"{wrong.rstrip('.')}.", "correct the file")
        return
    raise UsageError(f"model {model}: {ended} while {lines[-1] if lines else 'starting'}.", "correct the file")


def _rest(process: subprocess.Popen[bytes]) -> bytes:
    """Return the output of a killed process, whose children in another session may hold the pipe open."""
    try:
        return process.communicate(timeout=END_S)[0]
    except subprocess.TimeoutExpired as error:
        return error.stdout or b""


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

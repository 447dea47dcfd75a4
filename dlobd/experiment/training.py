"""Checks combinations of training settings. Pure."""

from collections.abc import Iterator

from dlobd.schema import Experiment


def batches(experiment: Experiment) -> str:
    """Format the batch size of a step, per worker and in total."""
    return f"batch {experiment.batch_size} per worker, {experiment.workers * experiment.batch_size} in total"


def wrong(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """Yield (field, problem, remedy) for each training setting that is impossible or has no effect."""
    if experiment.optimiser == "momentum" and not experiment.momentum:
        yield "optimiser", "optimiser momentum with momentum 0 is sgd.", 'momentum = 0.9, or optimiser = "sgd"'
    if experiment.optimiser == "sgd" and experiment.momentum:
        why = f"momentum {experiment.momentum:g} has no effect with optimiser sgd."
        yield "momentum", why, 'momentum = 0, or optimiser = "momentum"'
    for name in ("num_epochs_per_decay", "learning_rate_decay_factor"):
        value = getattr(experiment, name)
        if experiment.schedule == "step" and not value:
            yield "schedule", f"schedule step needs {name} above 0.", f"set {name}"
        if experiment.schedule != "step" and value:
            why = f"{name} {value:g} has no effect with schedule {experiment.schedule}."
            yield name, why, f'{name} = 0, or schedule = "step"'
    if experiment.warmup_epochs and experiment.warmup_epochs >= experiment.epochs:
        why = f"warmup_epochs {experiment.warmup_epochs:g} must be less than epochs, which is {experiment.epochs}."
        yield "warmup_epochs", why, "lower warmup_epochs, or raise epochs"
    if experiment.target_accuracy and not experiment.evaluate_every_epochs:
        why = f"target_accuracy {experiment.target_accuracy:g} needs evaluate_every_epochs above 0, to evaluate it."
        yield "target_accuracy", why, "evaluate_every_epochs = 1, or target_accuracy = 0"
    if experiment.evaluate_every_epochs > experiment.epochs:
        every = experiment.evaluate_every_epochs
        why = f"evaluate_every_epochs {every} exceeds epochs, which is {experiment.epochs}."
        yield "evaluate_every_epochs", why, f"evaluate_every_epochs = {experiment.epochs}, or raise epochs"
    if experiment.device == "gpu" and experiment.scheduler == "local-cluster":
        yield "device", "device gpu needs a scheduler that allocates GPUs; local-cluster does not.", 'device = "cpu"'
    if experiment.max_seconds >= experiment.timeout_s:
        why = f"max_seconds {experiment.max_seconds} must be less than timeout_s, which is {experiment.timeout_s}."
        yield "max_seconds", why, "lower max_seconds, or raise timeout_s"

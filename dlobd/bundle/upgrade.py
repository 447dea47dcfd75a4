"""Converts run.json of older versions to what this version would have written. The history is in `dlobd.schema`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlobd.axes import RENAMED_EXCHANGES
from dlobd.schema import SCHEMA_VERSION


def upgraded(run: dict[str, Any]) -> dict[str, Any]:
    """`run` in the form of this version.

    Raises:
        KeyError: it is of a newer version, or of none.
    """
    for version in range(run["schema_version"], SCHEMA_VERSION):
        run = _UPGRADES[version](run)
    return run


def _from_1(run: dict[str, Any]) -> dict[str, Any]:
    """What version 1 could not say was so: one replica, and nothing but `timeout_s` ended a run."""
    configuration = {"replication": 1, "accept_timeout_s": run["configuration"]["timeout_s"], **run["configuration"]}
    return {**run, "schema_version": 2, "configuration": configuration}


def _from_2(run: dict[str, Any]) -> dict[str, Any]:
    """Version 2 measured neither the noise before a run nor what recording cost."""
    return {"noise": None, "overhead": None, **run, "schema_version": 3}


def _from_3(run: dict[str, Any]) -> dict[str, Any]:
    """A cause is a named wait; what a run failed of is its reason. There was one optimiser, and one loss."""
    kept = {name: value for name, value in run.items() if name != "cause"}
    configuration = run["configuration"]
    if "script" not in configuration:
        configuration = {"optimiser": "sgd", "loss": "softmax-cross-entropy", **configuration}
    return {**kept, "configuration": configuration, "reason": run["cause"], "schema_version": 4}


def _from_4(run: dict[str, Any]) -> dict[str, Any]:
    """Plain gradient descent at a constant learning rate, on images as they are, in files of one block of HDFS."""
    configuration = run["configuration"]
    if "script" not in configuration:
        plain = {"momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "warmup_epochs": 0.0}
        decay = {"num_epochs_per_decay": 0.0, "learning_rate_decay_factor": 0.0}
        data = {"synthetic_shape": "32x32x3", "synthetic_classes": 10, "block_size_mb": 0, "augment": "none"}
        configuration = {**plain, **decay, **data, **configuration}
    return {**run, "configuration": configuration, "schema_version": 5}


def _from_5(run: dict[str, Any]) -> dict[str, Any]:
    """All epochs, on one core an executor and threads of TensorFlow's choice; the page cache was as it was. Resource
    use, Spark's metrics, epochs, the first touch of the data and what was in the page cache were not looked at."""
    configuration = run["configuration"]
    if "script" not in configuration:
        limits = {"max_steps": 0, "max_seconds": 0, "evaluate_every_epochs": 0, "target_accuracy": 0.0}
        machine = {"device": "cpu", "intra_op_threads": 0, "inter_op_threads": 0, "executor_cores": 1}
        data = {"page_cache": "as-is", "model_sha256": "", "dataset_sha256": ""}
        configuration = {**limits, **machine, **data, **configuration}
    times: dict[str, Any] = {"throughput": None, "epochs": [], "first_touch": None, "time_to_accuracy": None}
    return {
        "page_cache": None,
        "resources": None,
        "spark_metrics": None,
        **times,
        **run,
        "configuration": configuration,
        "schema_version": 6,
    }


def _from_6(run: dict[str, Any]) -> dict[str, Any]:
    """One exchange, TensorFlow's own; by what its bytes went was not looked at."""
    configuration = run["configuration"]
    if "script" not in configuration:
        channel = {"channel_library": "auto", "exchange_fusion_mb": 64, "exchange_servers": 1, "planes": "exchange"}
        exchange = configuration["exchange"]
        configuration = {**channel, **configuration, "exchange": RENAMED_EXCHANGES.get(exchange, exchange)}
    return {"transport": None, "exchange": [], **run, "configuration": configuration, "schema_version": 7}


def _from_7(run: dict[str, Any]) -> dict[str, Any]:
    """How well a layer's time is known, and where the lengths of named waits are from, was not told."""
    unknown = {"measured_ns": None, "between_marks_ns": None, "named_wait_ns": None}
    layers = [
        {**unknown, **layer, "causes": [[*cause, None][:3] for cause in layer.get("causes", ())]}
        for layer in run["layers"]
    ]
    return {**run, "layers": layers, "schema_version": 8}


def _from_8(run: dict[str, Any]) -> dict[str, Any]:
    """Nobody looked at how the wall passed for the threads that carried it, what was in memory of the environment, what
    Python imported, and how long earlier runs took."""
    noise = run["noise"] and {"earlier_walls_ns": None, **run["noise"]}
    unknown = {"core_waits": None, "environment_cache": None, "imports": None}
    return {**unknown, **run, "noise": noise, "schema_version": 9}


def _from_9(run: dict[str, Any]) -> dict[str, Any]:
    """Nobody looked for what would lower the overhead."""
    return {"findings": None, **run, "schema_version": 10}


_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _from_1,
    2: _from_2,
    3: _from_3,
    4: _from_4,
    5: _from_5,
    6: _from_6,
    7: _from_7,
    8: _from_8,
    9: _from_9,
}
"""Schema version to the function that turns its run.json into the next version's."""

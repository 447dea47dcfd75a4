"""A hand-made run.json for tests: small, valid, and with every list filled; and the Run that it tells of."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from dlobd.experiment import files
from dlobd.record.run import Run
from dlobd.schema import SCHEMA_VERSION, Experiment


def run(run_id: str = "20260102T030405Z-0a1b", **changes: Any) -> Run:
    return Run.from_json(run_record(run_id, **changes))


@cache
def _main() -> Experiment:
    return files.load("softmax-mnist")


def layer_row(name: str, group: str, ns: int) -> dict[str, Any]:
    """A layer's row of which everything is measured."""
    bounds = {"lo_ns": ns, "hi_ns": ns}
    known = {"measured_ns": ns, "between_marks_ns": 0, "named_wait_ns": 0, "unexplained_ns": 0}
    return {"layer": name, "group": group, "ns": ns, **bounds, **known}


def run_record(run_id: str = "20260102T030405Z-0a1b", **changes: Any) -> dict[str, Any]:
    """A run of the main job that took one second; `changes` replace top-level keys."""
    main = _main()
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "status": "ok",
        "reason": None,
        "experiment": main.name,
        "experiment_key": files.key(main),
        "configuration": dataclasses.asdict(main),
        "started_at": "2026-01-02T03:04:05Z",
        "command": ["spark-submit", "--master", "yarn"],
        "window": {
            "name": "spark-submit exec -> exit",
            "start_ns": 5_000,
            "end_ns": 1_000_005_000,
            "clock": "host/boot",
        },
        "wall_ns": 1_000_000_000,
        "layers": [
            {
                "layer": "spark",
                "group": "Spark",
                "ns": 600_000_000,
                "unexplained_ns": 1_000_000,
                "lo_ns": 599_000_000,
                "hi_ns": 601_000_000,
                "measured_ns": 500_000_000,
                "between_marks_ns": 94_000_000,
                "named_wait_ns": 5_000_000,
                "causes": [["heartbeat", 5_000_000, "default"]],
                "names": [["SparkContext", 595_000_000]],
            },
            layer_row("tensorflow", "TensorFlow", 390_000_000),
        ],
        "unattributed_ns": 10_000_000,
        "not_measured": [{"layer": "channel", "inside": "tensorflow", "why": "gRPC runs inside a step"}],
        "clips": [{"kind": "crossing", "span": "7", "ns": 12}],
        "metrics": {"test_accuracy": 0.915, "train_samples": 120_000, "steps": 600, "samples_per_second": 9_000.5},
        "startup": [{"event": "spark-submit exec", "at_ns": 5_000, "source": "own clock", "resolution_ns": 1}],
        "teardown": [{"event": "exit", "at_ns": 1_000_005_000, "source": "own clock", "resolution_ns": 1}],
        "hdfs": [
            {
                "purpose": "reading",
                "operations": 2,
                "bytes": 50_280_000,
                "ns": None,
                "lo_ns": 1_000,
                "hi_ns": 2_000,
                "source_begin": "peak rate",
                "source_end": "DataNode client trace",
            }
        ],
        "ranks": [
            {"role": "chief", "index": 0, "steps": 600, "step_p50_ns": 5, "step_p99_ns": 9, "step_max_ns": 10},
            {"role": "worker", "index": 0, "steps": 600, "step_p50_ns": 5, "step_p99_ns": 9, "step_max_ns": 11},
        ],
        "overhead": None,
        "setup": {"cluster_up_ns": 18_000_000_000, "staging_ns": None},
        "checks": [
            {
                "code": "steps-recorded",
                "verdict": "pass",
                "message": "the ranks recorded 1,200 step spans; they report 1,200 steps",
                "left": 1200,
                "left_source": "span files of ranks: steps",
                "right": 1200,
                "right_source": "done-markers: steps",
            },
            {
                "code": "container-memory",
                "verdict": "unknown",
                "message": "the ResourceManager's log has no container",
                "left": None,
                "left_source": "RM log: MB x seconds",
                "right": None,
                "right_source": "RM REST: memorySeconds",
            },
        ],
        "noise": {
            "machine": "this machine, which runs all of it",
            "timer_ns": 50,
            "sleep_over_p50_ns": 60_000,
            "sleep_over_p99_ns": 90_000,
            "loop_variation": 0.01,
            "loop_slowest": 1.02,
            "steal_share": None,
            "loopback_p50_ns": 20_000,
            "loopback_p99_ns": 40_000,
            "load_1m": 0.1,
            "earlier_walls_ns": [],
        },
        "platform": {"system": "Linux", "cores": 2},
        "versions": {"dlobd": "0.1.0", "java": None},
        "git": None,
        "seeds": {"data": 1},
    }
    return record | changes

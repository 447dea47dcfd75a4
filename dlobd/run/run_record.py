"""run.json of a run that starts: the facts known before the job is submitted."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

from dlobd.bundle.redaction import redact_words
from dlobd.bundle.store import Bundle
from dlobd.experiment.files import key
from dlobd.run import provenance
from dlobd.schema import SCHEMA_VERSION, OwnJob, Runnable
from dlobd.tracing.clock import timed

Phase = Literal[
    "cluster_up",
    "cluster_down",
    "spark_up",
    "spark_down",
    "upload",
    "staging",
    "page_cache",
    "noise",
    "collect",
    "import",
]


class SetupTimes:
    """Durations of the phases outside the window. `ns` is `setup` in run.json."""

    def __init__(self) -> None:
        self.ns: dict[str, int | None] = {}

    def measure(self, phase: Phase) -> AbstractContextManager[None]:
        """Measures the duration of a block."""
        return timed(self.ns, f"{phase}_ns")

    def skip(self, phase: Phase) -> None:
        """Notes that a phase was not necessary."""
        self.ns[f"{phase}_ns"] = None


def begin(bundle: Bundle, experiment: Runnable) -> dict[str, Any]:
    """Returns the record of a run that has not been submitted. Unknown values are null or empty."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": bundle.run_id,
        "status": "interrupted",
        "reason": "ended before the job was submitted",
        "experiment": experiment.name,
        "experiment_key": key(experiment),
        "configuration": _configuration(experiment),
        "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "command": [],
        "window": None,
        "wall_ns": None,
        "layers": [],
        "unattributed_ns": None,
        "not_measured": [],
        "intervals": [],
        "clips": [],
        "metrics": {"test_accuracy": None, "train_samples": None, "steps": None, "samples_per_second": None},
        "throughput": None,
        "epochs": [],
        "first_touch": None,
        "time_to_accuracy": None,
        "startup": [],
        "teardown": [],
        "hdfs": [],
        "ranks": [],
        "setup": {},
        "overhead": None,
        "resources": None,
        "core_waits": None,
        "imports": None,
        "spark_metrics": None,
        "checks": [],
        "noise": None,
        "page_cache": None,
        "environment_cache": None,
        "platform": provenance.platform(),
        "versions": provenance.versions(None),
        "git": provenance.git(),
        "seeds": {} if isinstance(experiment, OwnJob) else {"data_order": experiment.seed, "weights": experiment.seed},
        "warnings": [],
    }


def _configuration(experiment: Runnable) -> dict[str, Any]:
    values = asdict(experiment)
    # arguments of the user's own script may be secrets
    return values | {name: redact_words(values[name]) for name in ("arguments", "options") if name in values}

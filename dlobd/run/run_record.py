"""run.json of a run that begins: what is known before anything is submitted."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from dlobd.bundle.redaction import redact_words
from dlobd.bundle.store import Bundle
from dlobd.experiment.files import key
from dlobd.run import provenance
from dlobd.schema import SCHEMA_VERSION, OwnJob, Runnable


def begin(bundle: Bundle, experiment: Runnable) -> dict[str, Any]:
    """The record of a run that has not been submitted: what is not known is null or empty."""
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
        "imports": [],
        "spark_metrics": None,
        "checks": [],
        "audits": None,
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

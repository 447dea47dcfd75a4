"""Record (run.json) of a run in progress: facts known before the submission, and durations of phases."""

import os
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

from dlobd.bundle.redaction import redact_words
from dlobd.bundle.store import Bundle
from dlobd.experiment.files import key
from dlobd.fields import decoded
from dlobd.process_id import identify
from dlobd.recompute.computed import INTERRUPTED
from dlobd.record.run import Checkout, Metrics, Run, RunProcess
from dlobd.run import provenance
from dlobd.schema import SCHEMA_VERSION, OwnJob, Runnable
from dlobd.tracing import clock
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
        """Measure the duration of a block."""
        return timed(self.ns, f"{phase}_ns")

    def skip(self, phase: Phase) -> None:
        """Record a phase that was not necessary."""
        self.ns[f"{phase}_ns"] = None


class RunInProgress:
    """The record of a run that grows step by step. `times` has the durations of the phases outside the window,
    `interruption` the reason if the run is interrupted now."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.times = SetupTimes()
        self.interruption = INTERRUPTED

    def note(self, **members: Any) -> None:
        """Replace members of the record."""
        self.run = replace(self.run, **members)

    def write(self, bundle: Bundle) -> None:
        """Write the record in its current state. Raises BundleError if the disk refuses."""
        process = self.run.process if self.run.status == "running" else None
        self.note(setup=dict(self.times.ns), process=process)
        bundle.write(self.run)


def begin(bundle: Bundle, experiment: Runnable) -> Run:
    """Return the record of a run of this process that has not been submitted."""
    return Run(
        status="running",
        reason=None,
        metrics=Metrics(),
        schema_version=SCHEMA_VERSION,
        run_id=bundle.run_id,
        experiment=experiment.name,
        experiment_key=key(experiment),
        configuration=_redacted(experiment),
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        command=(),
        setup={},
        platform=provenance.platform(),
        versions=provenance.versions(None),
        git=decoded(Checkout, git) if (git := provenance.git()) else None,
        process=RunProcess(own.pid, own.start_ticks, clock.domain()) if (own := identify(os.getpid())) else None,
        seeds={} if isinstance(experiment, OwnJob) else {"data_order": experiment.seed, "weights": experiment.seed},
    )


def _redacted(experiment: Runnable) -> Runnable:
    if not isinstance(experiment, OwnJob):
        return experiment
    # arguments of the user's own script may be secrets
    arguments, options = (tuple(redact_words(words)) for words in (experiment.arguments, experiment.options))
    return replace(experiment, arguments=arguments, options=options)

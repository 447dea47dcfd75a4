"""run.json of a run in progress."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dlobd.bundle.redaction import redact_words
from dlobd.bundle.store import Bundle
from dlobd.experiment.files import key
from dlobd.fields import decoded
from dlobd.record.run import Checkout, Metrics, Run
from dlobd.run import provenance
from dlobd.schema import SCHEMA_VERSION, OwnJob, Runnable


class RunInProgress:
    """A run's record, which grows step by step. `setup` collects times outside the window."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.setup: dict[str, int | None] = dict(run.setup)

    def note(self, **members: Any) -> None:
        """Replaces members of the record."""
        self.run = replace(self.run, **members)

    def write(self, bundle: Bundle) -> None:
        """Writes the record as it is now. Raises BundleError if the disk refuses."""
        self.note(setup=dict(self.setup))
        bundle.write(self.run)


def begin(bundle: Bundle, experiment: Runnable) -> Run:
    """Returns the record of a run that has not been submitted."""
    return Run(
        status="interrupted",
        reason="ended before the job was submitted",
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
        git=decoded(Checkout, provenance.git()),
        seeds={} if isinstance(experiment, OwnJob) else {"data_order": experiment.seed, "weights": experiment.seed},
    )


def _redacted(experiment: Runnable) -> Runnable:
    if not isinstance(experiment, OwnJob):
        return experiment
    # arguments of the user's own script may be secrets
    arguments, options = (tuple(redact_words(words)) for words in (experiment.arguments, experiment.options))
    return replace(experiment, arguments=arguments, options=options)

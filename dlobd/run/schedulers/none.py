"""No scheduler: the job's parent process starts its ranks itself (launcher native)."""

import sys
from pathlib import Path

from dlobd.run.schedulers.base import Command, Submission


class NoScheduler:
    """Implementation of the scheduler contract for jobs without a scheduler."""

    def command(self, submission: Submission, target: None, evidence: Path) -> Command:
        return Command((sys.executable, str(submission.script), *submission.arguments), {})

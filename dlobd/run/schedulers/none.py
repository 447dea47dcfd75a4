"""No scheduler: the job's parent process is started as it is, and starts its ranks itself (launcher native)."""

from __future__ import annotations

import sys
from pathlib import Path

from dlobd.run.schedulers.base import Command, Submission


class NoScheduler:
    """See `dlobd.run.schedulers.base`."""

    def command(self, submission: Submission, target: None, evidence: Path) -> Command:
        """Python, the script and its arguments."""
        return Command((sys.executable, str(submission.script), *submission.arguments), {})

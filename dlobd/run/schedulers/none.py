"""No scheduler: the job's parent process starts its ranks itself (launcher native)."""

import sys
from pathlib import Path

from dlobd.run.schedulers.base import Command, Submission


def command(submission: Submission, target: None, evidence: Path) -> Command:
    """Return the command of the parent process."""
    return Command((sys.executable, str(submission.script), *submission.arguments), {})

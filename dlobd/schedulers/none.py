"""No scheduler: the job's parent process is started as it is, and starts its ranks itself (launcher native)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from dlobd.schedulers.base import Command, Target
from dlobd.schema import Experiment


class NoScheduler:
    """See `dlobd.schedulers.base`."""

    def command(
        self,
        experiment: Experiment,
        target: Target | None,
        launcher_conf: Mapping[str, str],
        evidence: Path,
        script: Path,
        job: Path,
    ) -> Command:
        """Python, the script and the job; `target` is None."""
        return Command((sys.executable, str(script), str(job)), {})

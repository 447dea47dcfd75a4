"""Run jobs with one scripted pathology each, and healthy jobs; write the number of right findings to docs/results.md.

    python -m bench.pathologies [--only NAME...] [--out DIR] [--loaded]

The expected findings are in bench/pathologies/table.toml. Rerun the command to resume, and to repeat runs that failed
to start. To repeat a finished run, remove its directory below --out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import command
from bench.pathologies import results
from bench.pathologies.results import Result
from bench.pathologies.stage import Stage
from bench.pathologies.table import HEALTHY, PATHOLOGIES, QUICK, SOON_CLOSED, Pathology, job
from dlobd.errors import Busy, DlobdError, UsageError
from dlobd.run import series_runner
from dlobd.run.progress import Progress

EVERY = (*HEALTHY, *PATHOLOGIES)
"""Order of the runs: healthy runs first, because they need an undisturbed machine."""

WARM_UP = Pathology("warm up", "not scored", "", job(QUICK))


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = command.parser(results.NAME, __doc__)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=[], help="names of pathologies in the table, in lower case"
    )
    return command.run(parser.parse_args(words), results.NAME, _measure)


def chosen(only: Sequence[str]) -> list[Pathology]:
    """Select pathologies by name; all without names.

    Raises:
        UsageError: a name is not in the table.
    """
    known = {pathology.name.lower(): pathology for pathology in EVERY}
    if wrong := [name for name in only if name.lower() not in known]:
        raise UsageError(f"Unknown pathologies: {', '.join(wrong)}.", f"one of: {', '.join(known)}")
    return [known[name.lower()] for name in only] or list(EVERY)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    left = [pathology for pathology in chosen(asked.only) if not _settled(results.stored(asked.out, pathology))]
    stage = Stage(asked.out, progress, (SOON_CLOSED,))
    try:
        if left:
            progress.keep("warm-up run, not scored")
            WARM_UP.make(stage, results.directory(stage.out, WARM_UP))
        for number, pathology in enumerate(left, 1):
            progress(f"run {number} of {len(left)}: {pathology.name}")
            result = run(stage, pathology)
            results.store(stage.out, pathology, result)
            progress.keep(results.line(result))
    finally:
        stage.close()
    stored = {pathology.name: results.stored(stage.out, pathology) for pathology in EVERY}
    if missing := [name for name, result in stored.items() if result is None]:
        progress.keep(f"the page is unchanged, because these runs are missing: {', '.join(missing)}")
        return [stage.out]
    sick, healthy = ([r for pathology in part if (r := stored[pathology.name])] for part in (PATHOLOGIES, HEALTHY))
    progress.keep(results.summary(sick, healthy))
    return [results.write(asked.docs, sick, healthy)]


def run(stage: Stage, pathology: Pathology) -> Result:
    """Run one pathology; if this machine cannot run it, return a result with the reason.

    Raises:
        Busy: another command uses the cluster.
    """
    busy_percent = series_runner.settled_busy_percent()
    try:
        ended = pathology.make(stage, results.directory(stage.out, pathology))
    except Busy:
        raise
    except (DlobdError, OSError) as error:
        return results.not_run(pathology, error.line if isinstance(error, DlobdError) else str(error), busy_percent)
    return results.of_run(pathology, ended, busy_percent)


def _settled(result: Result | None) -> bool:
    return result is not None and not result.why_not


if __name__ == "__main__":
    sys.exit(main())

"""Makes runs with one scripted pathology each, and healthy ones, and writes into docs/findings.md whether findings are
right: python -m bench.pathologies [--only NAME...] [--out DIR] [--loaded].

The expected finding of each is in bench/pathologies/table.py. The same command goes on where it was ended; what could
not be made is tried again. To make a run once more, remove its directory below --out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import command
from bench.pathologies import publish, results
from bench.pathologies.results import Result
from bench.pathologies.stage import Stage
from bench.pathologies.table import HEALTHY, PATHOLOGIES, QUICK, SOON_CLOSED, Pathology, job
from dlobd.errors import Busy, DlobdError, UsageError
from dlobd.run import series
from dlobd.run.progress import Progress

EVERY = (*HEALTHY, *PATHOLOGIES)
"""In the order in which they are run: first those that need a machine on which nothing happened."""

WARM_UP = Pathology("warm up", "not scored", "", job(QUICK))


def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = command.parser(publish.NAME, __doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="of the table's names, in lower case")
    return command.run(parser.parse_args(words), publish.NAME, _measure)


def chosen(only: Sequence[str]) -> list[Pathology]:
    """Those of the table with these names, or all.

    Raises:
        UsageError: the table has no such name.
    """
    known = {one.name.lower(): one for one in EVERY}
    if wrong := [name for name in only if name.lower() not in known]:
        raise UsageError(f"No pathology is called {', '.join(wrong)}.", f"one of: {', '.join(known)}")
    return [known[name.lower()] for name in only] or list(EVERY)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    left = [one for one in chosen(asked.only) if not _settled(results.stored(asked.out, one))]
    stage = Stage(asked.out, progress, (SOON_CLOSED,))
    try:
        if left:
            progress.keep("a run to warm up, not scored")
            WARM_UP.make(stage, results.directory(stage.out, WARM_UP))
        for number, one in enumerate(left, 1):
            progress(f"run {number} of {len(left)}: {one.name}")
            result = made(stage, one)
            results.store(stage.out, one, result)
            progress.keep(publish.line(result))
    finally:
        stage.close()
    found = {one.name: results.stored(stage.out, one) for one in EVERY}
    if missing := [name for name, result in found.items() if result is None]:
        progress.keep(f"not run yet, so that the page stays as it is: {', '.join(missing)}")
        return [stage.out]
    sick, healthy = ([r for one in part if (r := found[one.name])] for part in (PATHOLOGIES, HEALTHY))
    progress.keep(publish.summary(sick, healthy))
    return [publish.write(asked.docs, sick, healthy)]


def made(stage: Stage, one: Pathology) -> Result:
    """Makes one run; what cannot be made here has its reason in the result.

    Raises:
        Busy: another command uses the cluster.
    """
    busy_percent = series.settled_busy_percent()
    try:
        ended = one.make(stage, results.directory(stage.out, one))
    except Busy:
        raise
    except (DlobdError, OSError) as error:
        return results.unmade(one, error.line if isinstance(error, DlobdError) else str(error), busy_percent)
    return results.of_run(one, ended, busy_percent)


def _settled(result: Result | None) -> bool:
    return result is not None and not result.why_not


if __name__ == "__main__":
    sys.exit(main())

"""Tries the remedy of finding `close-retry`: HDFS's default delay against 40 ms, for clients and DataNodes.

    python -m bench.close_retry [--repeats N] [--out DIR] [--loaded]

The same job runs in random order, each time on a new cluster, because a DataNode reads its settings when it starts.
docs/results.md gets the saving that the finding predicts at most, and the measured saving. The same command continues
after an interruption.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import command, remedies
from bench.pathologies.stage import Stage
from bench.pathologies.table import MAIN, SOON_CLOSED, WARM
from dlobd.errors import RunFailed
from dlobd.report import sides
from dlobd.report.sides import Side
from dlobd.run import series
from dlobd.run.progress import Progress

NAME = "close-retry"
SIDES = {"default": ((), "after 400 ms, the default"), "sooner": ((SOON_CLOSED,), "after 40 ms")}
"""Directory to Hadoop settings and label."""


def main() -> int:
    """Runs the command; returns the exit code."""
    return command.run(command.parser(NAME, __doc__, repeats=6).parse_args(), NAME, _measure)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    busy: list[float] = []
    for repeat in range(asked.repeats):
        for name in random.Random(repeat).sample(sorted(SIDES), len(SIDES)):
            if len(_bundles(asked.out / name)) <= repeat:
                progress(f"repeat {repeat + 1} of {asked.repeats}: {name}")
                busy.append(_run(asked.out / name, SIDES[name][0], progress))
    found = tuple(_side(asked.out / name, label) for name, (_, label) in SIDES.items())
    # the setting under test is part of the machine
    allowed = ["machine", *["busy"] * asked.loaded]
    return [remedies.write(NAME, "close-retry", (found[0], found[1]), busy, asked.docs, allowed)]


def _run(directory: Path, own: Sequence[str], progress: Progress) -> float:
    """Runs the job on a new cluster; returns the load of the machine before, in percent."""
    stage = Stage(directory, progress, own)
    try:
        stage.cluster  # noqa: B018 starts the cluster before the run
        busy_percent = series.settled_busy_percent()
        ended = stage.run(stage.out, ["run", MAIN, "--set", "input=read", "--set", WARM, "--out", str(stage.out)])
    finally:
        stage.close()
    if ended.code:
        raise RunFailed(f"A run ended with exit code {ended.code}: {ended.failure}")
    return busy_percent


def _bundles(directory: Path) -> list[Path]:
    return sorted((directory / MAIN).glob("*/run.json"))


def _side(directory: Path, label: str) -> Side:
    (side,) = sides.read(str(directory / MAIN), directory).values()
    return dataclasses.replace(side, label=label)


if __name__ == "__main__":
    sys.exit(main())

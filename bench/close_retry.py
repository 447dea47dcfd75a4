"""Test the remedy of finding `close-retry`: HDFS's default delay against 40 ms, for clients and DataNodes.

    python -m bench.close_retry [--repeats N] [--out DIR] [--loaded]

The same job runs in random order, each time on a new cluster, because a DataNode reads its settings at start.
docs/results.md gets the predicted and the measured saving. Rerun the command to resume.
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
from dlobd.compare.runset import RunSet, read
from dlobd.errors import RunFailed
from dlobd.run import series_runner
from dlobd.run.progress import Progress

NAME = "close-retry"
SIDES = {"default": ((), "after 400 ms, the default"), "sooner": ((SOON_CLOSED,), "after 40 ms")}
"""Directory to Hadoop settings and label."""


def main() -> int:
    """Return the exit code."""
    return command.run(command.parser(NAME, __doc__, repeats=6).parse_args(), NAME, _measure)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    busy: list[float] = []
    for repeat in range(asked.repeats):
        for name in random.Random(repeat).sample(sorted(SIDES), len(SIDES)):
            if len(_bundles(asked.out / name)) <= repeat:
                progress(f"repeat {repeat + 1} of {asked.repeats}: {name}")
                busy.append(_run(asked.out / name, SIDES[name][0], progress))
    found = tuple(_side(asked.out / name, words) for name, (_, words) in SIDES.items())
    # the tested setting is part of the machine
    allowed = ["machine", *["busy"] * asked.loaded]
    return [remedies.write(NAME, "close-retry", (found[0], found[1]), busy, asked.docs, allowed)]


def _run(directory: Path, own: Sequence[str], progress: Progress) -> float:
    """Run the job on its own cluster, and return the load of the cores before it in percent.

    Raises:
        RunFailed: the run failed.
    """
    stage = Stage(directory, progress, own)
    try:
        stage.cluster  # noqa: B018 starts the cluster, which is not part of the run
        busy_percent = series_runner.settled_busy_percent()
        ended = stage.run(stage.out, ["run", MAIN, "--set", "input=read", "--set", WARM, "--out", str(stage.out)])
    finally:
        stage.close()
    if ended.code:
        raise RunFailed(f"A run ended with exit code {ended.code}: {ended.failure}")
    return busy_percent


def _bundles(directory: Path) -> list[Path]:
    return sorted((directory / MAIN).glob("*/run.json"))


def _side(directory: Path, words: str) -> RunSet:
    return dataclasses.replace(read(str(directory / MAIN), directory), label=words)


if __name__ == "__main__":
    sys.exit(main())

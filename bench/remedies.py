"""Test the remedy of a finding: write the predicted and the measured saving to docs/results.md.

    python -m bench.remedies close-retry|dependencies [--repeats N] [--out DIR] [--loaded]

close-retry     compares HDFS's default delay of 400 ms with 40 ms, for clients and DataNodes. Each run has a new
                cluster, because a DataNode reads its settings at start.
dependencies    finding `localisation`: compares Spark's jars uploaded with each small job and jars stored in HDFS

Both sides run in random order within each repeat. Rerun the command to resume.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from bench import command, publish
from bench.pathologies.own_jobs import SUMS
from bench.pathologies.stage import Stage
from bench.pathologies.table import MAIN, SOON_CLOSED, WARM
from bench.tables import markdown
from dlobd.compare.comparison import compare
from dlobd.compare.figures import WALL
from dlobd.compare.median import spread
from dlobd.compare.runset import RunSet, of_series, read
from dlobd.errors import RunFailed
from dlobd.experiment import own_job
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.file_system import WebHdfs
from dlobd.paths import plain, spark_home
from dlobd.report.comparison import sentence
from dlobd.run import packing, series_runner
from dlobd.run.progress import Progress
from dlobd.schema import OwnJob

SIDES = {"default": ((), "after 400 ms, the default"), "sooner": ((SOON_CLOSED,), "after 40 ms")}
"""Hadoop settings and label of close-retry's runs, by directory."""

UPLOADED, ARCHIVE = "jars uploaded with the job", "jars in HDFS"
IN_HDFS = "/dlobd/dependencies"


def main() -> int:
    """Run the command; return the exit code."""
    measures = {"close-retry": _close_retry, "dependencies": _dependencies}
    words = sys.argv[1:]
    if not words or words[0] not in measures:
        print(__doc__, file=sys.stderr)
        return 2
    return command.run(command.parser(words[0], __doc__, repeats=6).parse_args(words[1:]), words[0], measures[words[0]])


def write(
    name: str, finding: str, pair: tuple[RunSet, RunSet], busy: Sequence[float], docs: Path, allowed: Collection[str]
) -> Path:
    """Write both sides and their comparison into the section `name` of the page.

    Args:
        pair: runs without the remedy, and runs with the remedy.
        busy: load of the cores before each run, in percent.
        allowed: kinds of environment differences that are allowed.

    Raises:
        UsageError: the runs cannot be compared.
    """
    compared = sentence(WALL, compare([pair], allowed=allowed).pairs[0].wall)
    rows = []
    for side in pair:
        walls_ns = [run.wall_ns for run in side.runs if run.wall_ns]
        saves_ns = [sum(one.saves_ns for one in run.findings if one.finding == finding) for run in side.runs]
        rows.append([side.label, str(len(side.runs)), _seconds(walls_ns), _seconds(saves_ns)])
    without, remedy = (side.label for side in pair)
    result = f"{remedy[0].upper()}{remedy[1:]} against {without}, by `dlobd compare`: {compared}."
    table = markdown(["", "n", "wall, s", f"finding `{finding}`: at most, s"], rows)
    return publish.of_runs(docs, name, [run for side in pair for run in side.runs], busy, [table, result])


def _seconds(values_ns: Sequence[int]) -> str:
    found = spread([ns / 1e9 for ns in values_ns])
    return f"{found.median:.1f} [{found.low:.1f} to {found.high:.1f}]" if found.n else "unknown"


# ---- close-retry


def _close_retry(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    busy: list[float] = []
    for repeat in range(asked.repeats):
        for name in random.Random(repeat).sample(sorted(SIDES), len(SIDES)):
            if len([*(asked.out / name / MAIN).glob("*/run.json")]) <= repeat:
                progress(f"repeat {repeat + 1} of {asked.repeats}: {name}")
                busy.append(_run(asked.out / name, SIDES[name][0], progress))
    first, second = (
        dataclasses.replace(read(str(asked.out / name / MAIN), asked.out / name), label=label)
        for name, (_, label) in SIDES.items()
    )
    # the tested setting counts as a difference of the machine
    allowed = ["machine", *["busy"] * asked.loaded]
    return [write("close-retry", "close-retry", (first, second), busy, asked.docs, allowed)]


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


# ---- dependencies


def points(local: Path, archive: str) -> dict[str, OwnJob]:
    """Return jobs by label. The first job uploads an archive in each run, like spark-submit by default."""
    places = {UPLOADED: (plain(local.parent) / local.name).as_uri(), ARCHIVE: archive}
    return {
        label: own_job.from_line(["spark-submit", "--conf", f"spark.yarn.archive={place}", str(SUMS)], [])
        for label, place in places.items()
    }


def packed(tarball: packing.Tarball, directory: Path) -> Path:
    """Write Spark's jars as one archive on this machine."""
    path = directory.resolve() / tarball.name
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".part")
        with aside.open("wb") as file:
            file.writelines(tarball.chunks())
        aside.replace(path)
    return path


def staged(cluster: EmbeddedCluster, tarball: packing.Tarball) -> str:
    """Copy the archive to HDFS, readable by all users; return its URI."""
    storage = WebHdfs(cluster.endpoints.webhdfs_url, cluster.user)
    path = f"{IN_HDFS}/{tarball.name}"
    if not storage.exists(path):
        storage.make_directory(IN_HDFS)
        storage.write(path, tarball.chunks(), "staging")
    return f"hdfs://{path}"


def _dependencies(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    stage, tarball = Stage(asked.out, progress), packing.spark_libs(spark_home() / "jars")
    try:
        chosen = points(packed(tarball, asked.out), staged(stage.cluster, tarball))
        made = series_runner.run(series_runner.opened(chosen, 0, asked.out), asked.repeats, progress, progress.keep)
    finally:
        stage.close()
    found = of_series(made).points()
    pair, busy = (found[UPLOADED], found[ARCHIVE]), publish.busy_before(made)
    return [write("dependencies", "localisation", pair, busy, asked.docs, ["busy"] * asked.loaded)]


if __name__ == "__main__":
    sys.exit(main())

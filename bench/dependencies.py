"""Tries the remedy of finding `localisation`: Spark's jars uploaded with each job, against the same archive in HDFS.

    python -m bench.dependencies [--repeats N] [--out DIR] [--loaded]

Both are the same small job, interleaved on one cluster. docs/findings.md gets what the finding said could be saved at
most, and what was. The same command goes on where it was ended.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import command, publish
from bench.pathologies.stage import Stage
from bench.tables import markdown
from dlobd.bundle.run import Run
from dlobd.experiment import own_job
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.file_system import WebHdfs
from dlobd.paths import plain, spark_home
from dlobd.report import comparison_view
from dlobd.report.comparison import WALL, comparison
from dlobd.report.sides import pairs
from dlobd.run import packing, series
from dlobd.run.progress import Progress
from dlobd.schema import OwnJob

NAME = "dependencies"
UPLOADED, ARCHIVE = "uploaded with the job", "in HDFS"
JOB = Path(__file__).parent / "pathologies" / "jobs" / "sums.py"
IN_HDFS = "/dlobd/dependencies"
MARGIN = 0.05


def points(local: Path, archive: str) -> dict[str, OwnJob]:
    """Label to job. Without a setting spark-submit makes an archive of its jars and uploads that each time; so does the
    first, but for the making."""
    places = {UPLOADED: (plain(local.parent) / local.name).as_uri(), ARCHIVE: archive}
    return {
        label: own_job.from_line(["spark-submit", "--conf", f"spark.yarn.archive={place}", str(JOB)], [])
        for label, place in places.items()
    }


def packed(tarball: packing.Tarball, directory: Path) -> Path:
    """Spark's jars as one archive on this machine."""
    path = directory.resolve() / tarball.name
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".part")
        with aside.open("wb") as file:
            file.writelines(tarball.chunks())
        aside.replace(path)
    return path


def staged(cluster: EmbeddedCluster, tarball: packing.Tarball) -> str:
    """The same in the cluster's HDFS, where all may read it; returns its URI."""
    storage = WebHdfs(cluster.webhdfs_url, cluster.user)
    path = f"{IN_HDFS}/{tarball.name}"
    if not storage.exists(path):
        storage.make_directory(IN_HDFS)
        storage.write(path, tarball.chunks(), "staging")
    return f"hdfs://{path}"


def main() -> int:
    """Returns the exit code."""
    return command.run(command.parser(NAME, __doc__, repeats=6).parse_args(), NAME, _measure)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    stage, tarball = Stage(asked.out, progress), packing.spark_libs(spark_home() / "jars")
    try:
        chosen = points(packed(tarball, asked.out), staged(stage.cluster, tarball))
        made = series.run(series.opened(chosen, 0, asked.out), asked.repeats, progress, progress.keep)
    finally:
        stage.close()
    runs: dict[str, list[Run]] = {label: [] for label in chosen}
    for cell, bundle in made.ended().items():
        runs[cell.point].append(bundle.read())
    return [write(runs, made.path, [*made.busy().values()], asked.docs, asked.loaded)]


def write(runs: Mapping[str, Sequence[Run]], made: Path, busy: Sequence[float], docs: Path, loaded: bool) -> Path:
    """The table, and what `dlobd compare` says, into docs/findings.md."""
    sides = list(pairs(f"{made}:{UPLOADED}", f"{made}:{ARCHIVE}", made.parent))
    found = comparison(sides, MARGIN, ["busy"] if loaded else [])
    rows = [[label, str(len(each)), _seconds(_walls(each)), _seconds(_bounds(each))] for label, each in runs.items()]
    said = comparison_view.sentence(WALL, found.pairs[0].wall)
    page, n = docs / "findings.md", len(found.pairs[0].runs[0])
    publish.page(
        page,
        NAME,
        [*publish.machine([run for each in runs.values() for run in each]), *publish.loaded(busy)],
        [
            markdown(["Spark's jars", "n", "wall, s", "finding `localisation`: at most, s"], rows),
            f"{ARCHIVE[0].upper()}{ARCHIVE[1:]} against {UPLOADED}, {n} repeats, by `dlobd compare`: {said}.",
        ],
    )
    return page


def _walls(runs: Sequence[Run]) -> list[int]:
    return [run.wall_ns for run in runs if run.wall_ns]


def _bounds(runs: Sequence[Run]) -> list[int]:
    """What the finding says of each run; 0 where it has none."""
    return [sum(one.saves_ns for one in run.findings or () if one.finding == "localisation") for run in runs]


def _seconds(values_ns: Sequence[int]) -> str:
    """Median, lowest and highest."""
    if not values_ns:
        return "unknown"
    low, middle, high = (ns / 1e9 for ns in (min(values_ns), statistics.median(values_ns), max(values_ns)))
    return f"{middle:.1f} [{low:.1f} to {high:.1f}]"


if __name__ == "__main__":
    sys.exit(main())

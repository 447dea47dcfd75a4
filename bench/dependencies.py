"""Test the remedy of finding `localisation`: Spark's jars uploaded with each job, against the same archive in HDFS.

    python -m bench.dependencies [--repeats N] [--out DIR] [--loaded]

Both are the same small job, interleaved on one cluster. docs/results.md gets the predicted and the measured saving.
Rerun the command to resume.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench import command, publish, remedies
from bench.pathologies.stage import Stage
from dlobd.compare.runset import of_series
from dlobd.experiment import own_job
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.file_system import WebHdfs
from dlobd.paths import plain, spark_home
from dlobd.run import packing, series_runner
from dlobd.run.progress import Progress
from dlobd.schema import OwnJob

NAME = "dependencies"
UPLOADED, ARCHIVE = "jars uploaded with the job", "jars in HDFS"
JOB = Path(__file__).parent / "pathologies" / "jobs" / "sums.py"
IN_HDFS = "/dlobd/dependencies"


def points(local: Path, archive: str) -> dict[str, OwnJob]:
    """Return label to job. The first uploads an archive with each job, like spark-submit by default."""
    places = {UPLOADED: (plain(local.parent) / local.name).as_uri(), ARCHIVE: archive}
    return {
        label: own_job.from_line(["spark-submit", "--conf", f"spark.yarn.archive={place}", str(JOB)], [])
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
    """Copy the archive to HDFS, readable by all, and return its URI."""
    storage = WebHdfs(cluster.webhdfs_url, cluster.user)
    path = f"{IN_HDFS}/{tarball.name}"
    if not storage.exists(path):
        storage.make_directory(IN_HDFS)
        storage.write(path, tarball.chunks(), "staging")
    return f"hdfs://{path}"


def main() -> int:
    """Return the exit code."""
    return command.run(command.parser(NAME, __doc__, repeats=6).parse_args(), NAME, _measure)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    stage, tarball = Stage(asked.out, progress), packing.spark_libs(spark_home() / "jars")
    try:
        chosen = points(packed(tarball, asked.out), staged(stage.cluster, tarball))
        made = series_runner.run(series_runner.opened(chosen, 0, asked.out), asked.repeats, progress, progress.keep)
    finally:
        stage.close()
    found = of_series(made).points()
    allowed = ["busy"] * asked.loaded
    return [
        remedies.write(
            NAME, "localisation", (found[UPLOADED], found[ARCHIVE]), publish.busy_before(made), asked.docs, allowed
        )
    ]


if __name__ == "__main__":
    sys.exit(main())

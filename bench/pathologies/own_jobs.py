"""Pathologies of the user's own job: large uploads, JVM options that cause garbage collection, and killed
containers."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.pathologies import faults
from bench.pathologies.faults import Beside
from bench.pathologies.stage import QUICK_START, Ended, Stage
from dlobd.findings import rules

SUMS = Path(__file__).parent / "jobs" / "sums.py"
FOREIGN = Path(__file__).parents[2] / "tests" / "foreign"
ATTEMPTS, FEED = FOREIGN / "attempts.py", FOREIGN / "feed.py"
"""Scripts that do not use dlobd."""

BYTES = 400 << 20
SMALL_FILES = 20_000
STEPS = 1000
ROWS = 2 * 32 * STEPS
"""Number of rows for two trainers with batches of 32."""
MIB = 1 << 20

JVM = (
    "-XX:+UseSerialGC -Xmn1m -XX:MetaspaceSize=1m -XX:MinMetaspaceExpansion=256k -XX:MaxMetaspaceExpansion=256k "
    f"-XX:MinMetaspaceFreeRatio=0 -XX:MaxMetaspaceFreeRatio=1 {rules.QUICK_START}"
)
"""JVM options for a young generation of 1 MiB, and a full collection for every 256 KiB of loaded classes."""

KILLED_AFTER_S = 10.0
"""Time between job start and kill; Spark must repeat the work of this time."""

Make = Callable[[Stage, Path], Ended]
"""Function that executes one run with output in the given directory."""


def submit(
    stage: Stage,
    directory: Path,
    script: Path,
    options: Sequence[str] = (),
    arguments: Sequence[str] = (),
    settings: Sequence[str] = (),
    beside: Sequence[Beside] = (),
) -> Ended:
    """Run a script with `dlobd submit`."""
    sets = [word for setting in settings for word in ("--set", setting)]
    line = ["spark-submit", *QUICK_START, *options, str(script), *arguments]
    return stage.run(directory, ["submit", "--out", str(directory), *sets, "--", *line], beside)


def large_file(stage: Stage, directory: Path) -> Ended:
    """Upload a file of random bytes with the job."""
    path = directory / "random"
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("wb") as file:
            for _ in range(BYTES // MIB):
                file.write(os.urandom(MIB))
        return submit(stage, directory, SUMS, ("--files", str(path)))
    finally:
        path.unlink(missing_ok=True)


def many_files(stage: Stage, directory: Path) -> Ended:
    """Upload an archive of small files that each node unpacks."""
    path = directory / "small.zip"
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(SMALL_FILES):
                archive.writestr(f"{number % 100}/{number}", f"{number}\n")
        return submit(stage, directory, SUMS, ("--archives", f"{path}#small"))
    finally:
        path.unlink(missing_ok=True)


def rows(stage: Stage, directory: Path) -> Ended:
    """Feed trainers one row at a time."""
    return submit(stage, directory, FEED, arguments=("--cluster_size", "2", "--steps", str(STEPS)))


def collecting(stage: Stage, directory: Path) -> Ended:
    """Force continuous garbage collection in the JVMs of driver and executors."""
    options = ("--driver-java-options", JVM, "--conf", f"spark.executor.extraJavaOptions={JVM}")
    return submit(stage, directory, SUMS, options)


def executor_killed(stage: Stage, directory: Path) -> Ended:
    """Kill the only executor of a Spark job in the middle of a task."""
    return _killed(stage, directory, 2, (), ("workers=1",))


def master_killed(stage: Stage, directory: Path) -> Ended:
    """Kill the ApplicationMaster, which contains the driver, while tasks run; YARN may start a second attempt."""
    options = ("--deploy-mode", "cluster", "--conf", "spark.yarn.maxAppAttempts=2")
    return _killed(stage, directory, 1, options, ())


def _killed(stage: Stage, directory: Path, number: int, options: Sequence[str], settings: Sequence[str]) -> Ended:
    begun = directory.resolve() / "begun"
    begun.unlink(missing_ok=True)
    fault = faults.container_killed(number, begun, KILLED_AFTER_S)
    return submit(stage, directory, ATTEMPTS, options, (str(begun),), settings, (fault,))

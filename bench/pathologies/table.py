"""Runs of the table of pathologies; table.toml has the construction and the expected finding of each run."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.narrow_loopback import narrow_loopback
from bench.pathologies import faults, own_jobs
from bench.pathologies.faults import Beside
from bench.pathologies.own_jobs import Make
from bench.pathologies.stage import QUICK_START, Ended, Stage
from dlobd.faults import queue_filler
from dlobd.faults.observed_run import SPARK_SUBMIT, LogLine

QUICK, MAIN = "softmax-mnist-quick", "softmax-mnist"
SOON_CLOSED = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms=40"
"""Remedy of finding close-retry. Without it, close-retry is the first finding in each short run that writes files."""
WARM = "page_cache=warm"
NATIVE = "launcher=native"

NO_CHECKPOINTS = "checkpoint_every_steps=1000000"
UNTRAINED = f"{NO_CHECKPOINTS} min_accuracy=0"

STOPPED_S = 12.0
"""Duration of a SIGSTOP, shorter than the timeouts of HDFS and YARN."""

ASKS = LogLine(SPARK_SUBMIT, re.compile("Call -> .*: getNewApplication"))
"""Log line: spark-submit requests an application ID."""
REGISTERED = LogLine("resourcemanager", re.compile(r"appattempt_\w+ State change from LAUNCHED to RUNNING"))
"""Log line after which the ApplicationMaster requests executors."""
LOCALISED = LogLine(
    r"nodemanager-\d+", re.compile(r"Container container_\w+_000001 transitioned from LOCALIZING to SCHEDULED")
)
"""Log line before the NodeManager starts the ApplicationMaster."""


@dataclass(frozen=True, slots=True)
class Pathology:
    """Run with a pathology. `expected` is its first finding above noise; empty if no finding is expected."""

    name: str
    how: str
    expected: str
    make: Make


def job(line: str, *beside: Beside) -> Make:
    """Run dlobd's own training; `line` has the experiment and its settings, separated by spaces."""
    return lambda stage, directory: stage.run(directory, _words(line, directory), beside)


def in_narrow_network(line: str) -> Make:
    """Run dlobd's own training, with its daemons, in a network namespace with a slow loopback."""

    def make(stage: Stage, directory: Path) -> Ended:
        with narrow_loopback("100mbit") as host:
            return stage.run(directory, _words(line, directory), host=host.command)

    return make


def _words(line: str, directory: Path) -> list[str]:
    experiment, *settings = line.split()
    sets = (word for setting in settings for word in ("--set", setting))
    options = () if NATIVE in settings else QUICK_START
    return ["run", experiment, *sets, *options, "--out", str(directory)]


_READ_ONE = f"{QUICK} workers=1 input=read"
_ONE_SAMPLE = f"{QUICK} input=read batch_size=1 train_samples=12000 learning_rate=0.01 {UNTRAINED}"
_EVALUATED = f"{QUICK} input=read train_samples=1000 epochs=40 evaluate_every_epochs=1 test_samples=10000 {UNTRAINED}"
_AUGMENTED = f"{QUICK} augment=flip-crop input=feed train_samples=60000 batch_size=1000 epochs=40 {UNTRAINED}"
_RING = "lenet-mnist input=read exchange=ring"

RUNS: Mapping[str, Make] = {
    "queue full": job(QUICK, faults.queue_filled(15, queue_filler.ACCEPTED)),
    "no room for executors": job(f"{QUICK} executor_memory_mb=2048", faults.queue_filled(15, REGISTERED, 4096)),
    "large file": own_jobs.large_file,
    "many small files": own_jobs.many_files,
    "feed by rows": own_jobs.rows,
    "polls as published": job(f"{QUICK} launcher=tfos-stock input=read"),
    "ResourceManager hangs": job(QUICK, faults.daemon_stopped("resourcemanager", STOPPED_S, ASKS)),
    "NodeManager hangs": job(QUICK, faults.daemon_stopped("", STOPPED_S, LOCALISED)),
    "NameNode hangs": job(_READ_ONE, faults.daemon_stopped("namenode", STOPPED_S, faults.IMPORTED)),
    "DataNodes hang": job(_READ_ONE, faults.daemon_stopped("datanode", STOPPED_S, faults.IMPORTED)),
    "slow disk": job(f"{_READ_ONE} page_cache=cold {NO_CHECKPOINTS}", faults.disk_slowed(500_000)),
    "slow rank": job(f"{_RING} train_samples=19200 {UNTRAINED}", faults.trainer_hampered(0.2, 0.1)),
    "late rank": job(QUICK, faults.trainer_stopped(15)),
    "batches of one sample": job(_ONE_SAMPLE),
    "checkpoints": job(f"{QUICK} epochs=2 checkpoint_every_steps=2"),
    "evaluations": job(_EVALUATED),
    "garbage": own_jobs.collecting,
    "environment not in memory": job(f"{QUICK} input=read", faults.environment_dropped(60_000_000)),
    "busy machine": job(QUICK, faults.busy(4)),
    "busy in training": job(f"lenet-mnist input=read train_samples=57600 {UNTRAINED}", faults.busy_in_training(8)),
    "slow network": in_narrow_network(f"{_RING} train_samples=6400 {UNTRAINED}"),
    "ApplicationMaster killed": own_jobs.master_killed,
    "executor killed": own_jobs.executor_killed,
    "augmentation": job(_AUGMENTED),
    "main job, tfos feed": job(f"{MAIN} {WARM}"),
    "main job, tfos read": job(f"{MAIN} input=read {WARM}"),
    "main job, barrier feed": job(f"{MAIN} launcher=barrier {WARM}"),
    "main job, barrier read": job(f"{MAIN} launcher=barrier input=read {WARM}"),
    "main job, native": job(f"{MAIN} {NATIVE} {WARM}"),
    "CIFAR-10 Quick": job(f"cifar10-quick {WARM}"),
}

PATHOLOGIES, HEALTHY = (
    tuple(Pathology(name, row["how"], row.get("expected", ""), RUNS[name]) for name, row in rows.items())
    for rows in tomllib.loads(Path(__file__).with_name("table.toml").read_text()).values()
)

"""THE table of pathologies: construction and expected finding of each. It was written before any run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.pathologies import faults, own_jobs
from bench.pathologies.faults import Beside
from bench.pathologies.network import RATE, narrow_loopback
from bench.pathologies.own_jobs import Make
from bench.pathologies.stage import Ended, Stage
from dlobd.faults import queue_filler
from dlobd.faults.observed_run import SPARK_SUBMIT
from dlobd.faults.triggers import LogLine

QUICK, MAIN = "softmax-mnist-quick", "softmax-mnist"
SOON_CLOSED = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms=40"
"""The remedy of finding close-retry, which would otherwise be first in every short run that writes files."""

NO_CHECKPOINTS = "checkpoint_every_steps=1000000"
ANY_RESULT = "min_accuracy=0"

STOPPED_S = 12.0
"""Shorter than the deadlines of HDFS and YARN."""

ASKS = LogLine(SPARK_SUBMIT, re.compile("Call -> .*: getNewApplication"))
"""spark-submit asks for an application ID."""
REGISTERED = LogLine("resourcemanager", re.compile(r"appattempt_\w+ State change from LAUNCHED to RUNNING"))
"""The ApplicationMaster requests executors from now on."""
LOCALISED = LogLine(
    r"nodemanager-\d+", re.compile(r"Container container_\w+_000001 transitioned from LOCALIZING to SCHEDULED")
)
"""The NodeManager is about to start the ApplicationMaster."""


@dataclass(frozen=True, slots=True)
class Pathology:
    """A run. `expected`: its first finding above noise; empty if there should be none."""

    name: str
    how: str
    expected: str
    make: Make


def job(experiment: str, *settings: str, beside: Sequence[Beside] = ()) -> Make:
    """Run dlobd's own training."""

    def make(stage: Stage, directory: Path) -> Ended:
        return stage.run(directory, _words(experiment, settings, directory), beside)

    return make


def in_narrow_network(experiment: str, *settings: str) -> Make:
    """Run dlobd's own training and its daemons in a network namespace whose loopback is slow."""

    def make(stage: Stage, directory: Path) -> Ended:
        with narrow_loopback() as host:
            return stage.run(directory, _words(experiment, settings, directory), host=host)

    return make


def _words(experiment: str, settings: Sequence[str], directory: Path) -> list[str]:
    sets = [word for setting in settings for word in ("--set", setting)]
    return ["run", experiment, *sets, "--out", str(directory)]


PATHOLOGIES = (
    Pathology(
        "queue full", "another application holds the queue's memory for ApplicationMasters for 15 s", "queue",
        job(QUICK, beside=[faults.queue_filled(15, queue_filler.ACCEPTED)]),
    ),
    Pathology(
        "no room for executors",
        "executors of 3.3 GB; another application holds 4 GB of a node for 15 s more once they are asked for", "queue",
        job(
            QUICK, "executor_memory_mb=2048",
            beside=[faults.queue_filled(15, REGISTERED, 4096)],
        ),
    ),
    Pathology(
        "large file", f"own job with `--files` of {own_jobs.BYTES >> 20} MiB of random bytes", "localisation",
        own_jobs.large_file,
    ),
    Pathology(
        "many small files", f"own job with `--archives` of a zip of {own_jobs.SMALL_FILES:,} files", "localisation",
        own_jobs.many_files,
    ),
    Pathology(
        "feed by rows", f"own job of TensorFlowOnSpark as published, `TFCluster.train` with {own_jobs.ROWS:,} rows",
        "feed", own_jobs.rows,
    ),
    Pathology(
        "polls as published", "`tfos-stock`, trainers read HDFS, a tenth of MNIST", "polls",
        job(QUICK, "launcher=tfos-stock", "input=read"),
    ),
    Pathology(
        "ResourceManager hangs", "stopped for 12 s when the client asks for an application", "resource-manager",
        job(QUICK, beside=[faults.daemon_stopped("resourcemanager", STOPPED_S, ASKS)]),
    ),
    Pathology(
        "NodeManager hangs", "stopped for 12 s when it has the ApplicationMaster's files, and is to start it",
        "node-manager", job(QUICK, beside=[faults.daemon_stopped("", STOPPED_S, LOCALISED)]),
    ),
    Pathology(
        "NameNode hangs", "stopped for 12 s when the rank has imported TensorFlow, and is to read its input",
        "name-node",
        job(QUICK, "workers=1", "input=read", beside=[
            faults.daemon_stopped("namenode", STOPPED_S, faults.IMPORTED)
        ]),
    ),
    Pathology(
        "DataNodes hang", "stopped for 12 s when the rank has imported TensorFlow, and is to read its input",
        "hdfs-data",
        job(QUICK, "workers=1", "input=read", beside=[
            faults.daemon_stopped("datanode", STOPPED_S, faults.IMPORTED)
        ]),
    ),
    Pathology(
        "slow disk", "DataNodes may read 500 kB a second from their disk; the input is not in memory", "hdfs-data",
        job(QUICK, "workers=1", "input=read", "page_cache=cold", NO_CHECKPOINTS, beside=[faults.disk_slowed(500_000)]),
    ),
    Pathology(
        "slow rank", "one trainer is stopped for 0.2 s and goes on for 0.1 s, all through training; LeNet, `ring`",
        "straggler",
        job(
            "lenet-mnist", "input=read", "exchange=ring", "train_samples=19200", NO_CHECKPOINTS, ANY_RESULT,
            beside=[faults.trainer_hampered(0.2, 0.1)],
        ),
    ),
    Pathology(
        "late rank", "one trainer is stopped for 15 s while it imports TensorFlow", "straggler",
        job(QUICK, beside=[faults.trainer_stopped(15)]),
    ),
    Pathology(
        "batches of one sample", "`batch_size=1`, 12,000 samples", "short-steps",
        job(
            QUICK, "input=read", "batch_size=1", "train_samples=12000", "learning_rate=0.01", NO_CHECKPOINTS,
            ANY_RESULT,
        ),
    ),
    Pathology(
        "checkpoints", "`checkpoint_every_steps=2`, 60 steps", "checkpoints",
        job(QUICK, "epochs=2", "checkpoint_every_steps=2"),
    ),
    Pathology(
        "evaluations", "`evaluate_every_epochs=1`, 40 epochs of 5 steps, all test samples", "evaluations",
        job(
            QUICK, "input=read", "train_samples=1000", "epochs=40", "evaluate_every_epochs=1", "test_samples=10000",
            NO_CHECKPOINTS, ANY_RESULT,
        ),
    ),
    Pathology(
        "garbage", f"own job; driver and executors with `{own_jobs.JVM}`", "garbage", own_jobs.collecting,
    ),
    Pathology(
        "environment not in memory",
        "the kernel drops TensorFlow's, Spark's and Java's files before the run; containers may read 60 MB a second",
        "cold-start", job(QUICK, "input=read", beside=[faults.environment_dropped(60_000_000)]),
    ),
    Pathology(
        "busy machine", "4 busy processes beside the whole run", "contention", job(QUICK, beside=[faults.busy(4)]),
    ),
    Pathology(
        "busy in training", "8 busy processes from the first step to the last; LeNet, 900 steps", "contention",
        job(
            "lenet-mnist", "input=read", "train_samples=57600", NO_CHECKPOINTS, ANY_RESULT,
            beside=[faults.busy_in_training(8)],
        ),
    ),
    Pathology(
        "slow network", f"all of dlobd in a network namespace whose loopback carries {RATE}; LeNet, `ring`",
        "exchange",
        in_narrow_network(
            "lenet-mnist", "input=read", "exchange=ring", "train_samples=6400", NO_CHECKPOINTS, ANY_RESULT
        ),
    ),
    Pathology(
        "ApplicationMaster killed", "own job in cluster mode, 10 s into its tasks; a second attempt is allowed",
        "lost-work", own_jobs.master_killed,
    ),
    Pathology(
        "executor killed", "the only executor of an own job, 10 s into a task, which runs again", "lost-work",
        own_jobs.executor_killed,
    ),
    Pathology(
        "augmentation",
        "all of MNIST cropped and flipped by the trainers' own thread (`input=feed`), 40 epochs of batches of 1,000",
        "input-pipeline",
        job(
            QUICK, "augment=flip-crop", "input=feed", "train_samples=60000", "batch_size=1000", "epochs=40",
            NO_CHECKPOINTS, ANY_RESULT,
        ),
    ),
)  # fmt: skip

WARM = "page_cache=warm"

HEALTHY = (
    Pathology("main job, tfos feed", "as shipped", "", job(MAIN, WARM)),
    Pathology("main job, tfos read", "`input=read`", "", job(MAIN, "input=read", WARM)),
    Pathology("main job, barrier feed", "`launcher=barrier`", "", job(MAIN, "launcher=barrier", WARM)),
    Pathology(
        "main job, barrier read", "`launcher=barrier`, `input=read`", "",
        job(MAIN, "launcher=barrier", "input=read", WARM),
    ),
    Pathology("main job, native", "`launcher=native`: no Hadoop, no Spark", "", job(MAIN, "launcher=native", WARM)),
    Pathology("CIFAR-10 Quick", "experiment `cifar10-quick` as shipped", "", job("cifar10-quick", WARM)),
)  # fmt: skip
"""Runs without a pathology."""

"""Driver of a training job: starts SparkContext, opens the input, runs the launcher, and stops SparkContext."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.axes import EXCHANGES, LAUNCHERS
from dlobd.job.description import Job, Markers
from dlobd.job.launchers.addresses import CHANNEL, driver_host, serve_clock
from dlobd.job.launchers.failure import cause_of
from dlobd.job.launchers.imports import record_packages
from dlobd.job.rank_status import JobStatus, StatusServer
from dlobd.job.training import trainer

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

ONE_SPLIT_A_FILE = {"spark.hadoop.mapreduce.input.fileinputformat.split.minsize": str(1 << 60)}
"""Settings for one split per file. Hadoop splits a file at its blocks, unless the minimum size of a split is larger
than the file; no file is as large as this value."""


def run(job_file: str) -> None:
    """Run the job that `job_file` describes. Raises TrainingFailed with the cause of a rank's failure in one line."""
    job = Job.read(job_file)
    tracing.start(os.environ.get("LOG_DIRS", job.spans_dir).split(",")[0], "driver")
    record_packages()
    if job.scheduler == "none":
        with tracing.span(kinds.PARENT):
            _launch(None, job, None)
        return
    with tracing.span(kinds.DRIVER):
        _run_on_spark(job)


def _launch(sc: SparkContext | None, job: Job, blocks: RDD[bytes] | None) -> None:
    with serve_rendezvous(sc, job), serve_rank_status(sc, job) as server:
        status = JobStatus(Markers(job), server)
        LAUNCHERS.get(job.launcher)().launch(sc, trainer.main, job, blocks, status)
    tracing.instant(kinds.LAUNCHER_SHUT_DOWN)


def _run_on_spark(job: Job) -> None:
    with tracing.span(kinds.IMPORT_PYSPARK):
        from pyspark import SparkConf, SparkContext
    tracing.instant(kinds.SPARK_CONTEXT_START)
    with tracing.span(kinds.SPARK_CONTEXT):
        sc = SparkContext(conf=SparkConf().setAppName(f"dlobd {job.name}").setAll(ONE_SPLIT_A_FILE.items()))
    tracing.instant(kinds.SPARK_CONTEXT_READY, application_id=sc.applicationId)
    serve_clock(sc)  # open until this process ends
    try:
        _launch(sc, job, _blocks(sc, job) if job.input == "feed" else None)
    finally:
        with tracing.span(kinds.SPARK_CONTEXT_STOP):
            sc.stop()
        tracing.instant(kinds.SPARK_CONTEXT_STOPPED)


def _blocks(sc: SparkContext, job: Job) -> RDD[bytes]:
    """Return the training files as an RDD of blocks, one partition per worker.

    A file consists of whole blocks, and a record of Spark is a block: no Python worker has to group samples."""
    with tracing.span(kinds.INPUT_SPLITS):
        blocks = sc.binaryRecords(f"{job.fs_uri}{job.train_dir}", job.batch_size * job.layout.record_bytes)
        partitions = blocks.getNumPartitions()
    if partitions != job.workers:
        raise ValueError(f"{partitions} partitions for {job.workers} workers: each worker needs exactly one file")
    return blocks


@contextmanager
def serve_rendezvous(sc: SparkContext | None, job: Job) -> Iterator[None]:
    """Start the rendezvous servers; set them and the channel in the environment of ranks that start in this context.

    Spark sends the run's secret with each Python function: configuration and command line would expose it.

    Raises SetupError if the driver cannot listen on its address.
    """
    environment = os.environ if sc is None else sc.environment
    environment[CHANNEL] = job.channel
    if EXCHANGES.declared(job.exchange).inside_step:
        yield  # TensorFlow's servers have their own rendezvous
        return
    from dlobd.network.exchanges.outside_step import RENDEZVOUS
    from dlobd.network.rendezvous.pmi import PmiServer
    from dlobd.network.rendezvous.store import KeyValueStore

    secret = secrets.token_hex(16)
    host = socket.gethostbyname(driver_host(sc) if sc else "127.0.0.1")
    with ExitStack() as stack:
        store = stack.enter_context(closing(KeyValueStore(host, job.workers, secret.encode())))
        servers = {"address": store.address, "secret": secret}
        if job.library == "mpi":
            server = stack.enter_context(closing(PmiServer(host, job.workers, secret.encode())))
            servers["pmi"] = server.address
        environment[RENDEZVOUS] = json.dumps(servers)
        yield


@contextmanager
def serve_rank_status(sc: SparkContext | None, job: Job) -> Iterator[StatusServer | None]:
    """Start the server for status messages of ranks that start in this context.

    Yields None without Spark, because the launcher then waits for the ranks' processes, and if the driver cannot
    listen: it then reads the markers."""
    if sc is None:
        yield None
        return
    try:
        server = StatusServer(socket.gethostbyname(driver_host(sc)), job.workers)
    except OSError as error:
        print(f"dlobd: the driver cannot receive the status of ranks: {error}", file=sys.stderr)
        yield None
        return
    sc.environment.update(server.environment)
    with closing(server):
        yield server


def main(argv: list[str]) -> int:
    """Run jobs/train.py; return the exit code. The cause of a failure is one line on stderr."""
    try:
        run(argv[0])
    except Exception as error:  # noqa: BLE001  the cause of any error must reach the user in one line
        cause = cause_of(error)
        print(f"{kinds.JOB_FAILED_LINE}{cause}", file=sys.stderr, flush=True)
        tracing.instant(kinds.JOB_FAILED, cause=cause)
        tracing.flush()
        Path(Job.read(argv[0]).spans_dir).mkdir(parents=True, exist_ok=True)
        return 1
    return 0

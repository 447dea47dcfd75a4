"""Hooks for a user's unchanged script: spans around the calls of PySpark and TensorFlowOnSpark.

On the driver, from before the script's first line: imports, SparkContext, SparkSession, long calls into the JVM, and
TensorFlowOnSpark's entry points. On executors, in the worker daemon: tasks of PySpark's workers, and
TensorFlowOnSpark's tasks and feed. All other time is in a span `user code`.
"""

import functools
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

from dlobd import marks, tracing
from dlobd import spans as kinds
from dlobd.job.launchers import tfos_compat, tfos_stock
from dlobd.job.launchers.addresses import serve_clock, without_proxy
from dlobd.job.launchers.imports import on_import
from dlobd.job.launchers.tfos import FeedTask, NamedSleep, record_driver
from dlobd.job.launchers.tfos_compat import STOCK_POLL_NS, Function, record_calls, replace
from dlobd.job.user import python_worker, steps, torchrun, xgboost_spark
from dlobd.job.user.spark_settings import leave_containers, prefer_users
from dlobd.tracing.clock import monotonic_ns

LONG_CALL_NS = 1_000_000
"""Shortest JVM call with a span. Shorter calls are too frequent; their time counts as time of the calling code."""

# methods of streaming queries and contexts that wait while other threads of the JVM work
STREAM_WAITS = ("awaitTermination", "awaitTerminationOrTimeout", "awaitAnyTermination", "processAllAvailable")

CHUNK = 64
CHUNK_NS = 10_000_000  # limits of a chunk in items and time; a feed of rows has one span per chunk

DAEMONS = {"tfos": "dlobd.job.user.daemon", "tfos-stock": "dlobd.job.user.stock_daemon"}
"""Module of the worker daemon with hooks, by launcher."""


def prepare_driver(launcher: str) -> None:
    """Install the hooks in the driver's Python, for launcher `tfos` or `tfos-stock`, without importing a package."""
    marks.record_with(steps.mark)
    torchrun.install()
    tfos_compat.provide_pkg_resources()
    python = os.environ.get("PYSPARK_PYTHON")
    on_import("pyspark", kinds.IMPORT_PYSPARK, functools.partial(_record_pyspark, given_python=python))
    on_import("tensorflow", kinds.IMPORT_TENSORFLOW)
    on_import("torch", kinds.IMPORT_TORCH)
    on_import("xgboost", kinds.IMPORT_XGBOOST)
    on_import(
        "tensorflowonspark", kinds.IMPORT_TENSORFLOWONSPARK, functools.partial(_prepare_tensorflowonspark, launcher)
    )


def prepare_daemon(launcher: str) -> None:
    """Install the hooks in the worker daemon, and so in every Python worker that it forks, without importing a package:
    TensorFlowOnSpark configures the logging of the process that imports it."""
    marks.record_with(steps.mark)
    torchrun.install()
    xgboost_spark.install()
    tfos_compat.provide_pkg_resources()
    on_import("pyspark.taskcontext", None, python_worker.record_barriers)
    on_import("pyspark.daemon", None, python_worker.record_sockets)
    on_import("pyspark.worker", kinds.IMPORT_PYSPARK_WORKER, python_worker.record)
    on_import("tensorflow", kinds.IMPORT_TENSORFLOW)
    on_import("torch", kinds.IMPORT_TORCH)
    on_import("tensorflowonspark", kinds.IMPORT_TENSORFLOWONSPARK, functools.partial(_prepare_worker, launcher))


# --- driver: PySpark ---


class _Wait:
    """Flag of the driver, True inside a recorded wait: JVM calls are then part of the wait, and get no spans."""

    active = False


def _record_pyspark(pyspark: ModuleType, given_python: str | None = None) -> None:
    from py4j.java_gateway import GatewayClient
    from pyspark.sql import SparkSession

    context = pyspark.SparkContext

    @replace(context, "__init__")
    def init(original: Function, self: Any, *args: object, **kwargs: object) -> None:
        tracing.instant(kinds.SPARK_CONTEXT_START)
        with tracing.span(kinds.SPARK_CONTEXT):
            original(self, *args, **kwargs)
        conf = self.getConf()
        slots = int(conf.get("spark.executor.cores", "1")) // int(conf.get("spark.task.cpus", "1"))
        tracing.instant(kinds.SPARK_CONTEXT_READY, application_id=self.applicationId, master=self.master, slots=slots)
        self._dlobd_clock = serve_clock(self)
        if conf.get("spark.log.level"):
            with suppress(Exception):  # the script can do without
                _filter_console(self)

    @replace(context, "_initialize_context")
    def initialize_context(original: Function, self: Any, conf: Any) -> object:
        for key in prefer_users(conf, self._jvm.SparkConf(), DAEMONS.values()):
            self._jvm.java.lang.System.clearProperty(key)  # a new SparkConf starts with the system properties
        leave_containers(conf, os.environ.get("SPARK_CONF_DIR", ""))
        python = os.environ.get("PYSPARK_PYTHON")
        if python and python != given_python and shutil.which(python) != sys.executable:
            why = f"use dlobd's option --python {python}"
            raise RuntimeError(f"PYSPARK_PYTHON={python} in the script is not supported: {why}.")
        return original(self, conf)

    @replace(context, "stop")
    def stop(original: Function, self: Any) -> None:
        with tracing.span(kinds.SPARK_CONTEXT_STOP):
            original(self)
        if server := getattr(self, "_dlobd_clock", None):
            server.close()
        tracing.instant(kinds.SPARK_CONTEXT_STOPPED)

    @replace(context, "setLogLevel")
    def set_log_level(original: Function, self: Any, level: object) -> None:
        original(self, level)
        with suppress(Exception):
            _filter_console(self)

    record_calls(SparkSession.Builder, "getOrCreate", kinds.SPARK_SESSION)

    @replace(GatewayClient, "send_command")
    def send_command(original: Function, self: Any, command: str, *args: object, **kwargs: object) -> object:
        if (method := _method(command)) in STREAM_WAITS:
            with tracing.span(kinds.WAIT_FOR_STREAM, detail=method):
                return original(self, command, *args, **kwargs)
        begin_ns = monotonic_ns()
        try:
            return original(self, command, *args, **kwargs)
        finally:
            end_ns = monotonic_ns()
            if _Wait.active:
                pass
            elif end_ns - begin_ns >= LONG_CALL_NS:
                tracing.past(kinds.JVM_CALL, begin_ns, end_ns, method, jvm_call=True)
            else:
                tracing.left_out()


def _filter_console(context: Any) -> None:
    """Apply the root logger's level to lines from the loggers of dlobd's evidence, which have levels of their own."""
    log4j = context._jvm.org.apache.logging.log4j
    configuration = log4j.LogManager.getContext(False).getConfiguration()
    if not configuration.getLoggerConfig("org.apache.spark.SparkContext").isAdditive():
        return  # the user's own configuration decides about these lines
    root = configuration.getRootLogger()
    if previous := getattr(context, "_dlobd_console", None):
        root.removeFilter(previous)
    context._dlobd_console = log4j.core.filter.ThresholdFilter.createFilter(root.getLevel(), None, None)
    root.addFilter(context._dlobd_console)


def _method(command: str) -> str:
    """Return the method that a py4j command calls, such as `collectAndServe`."""
    words = command.split("\n", 3)
    if words[0] == "c" and len(words) > 2:
        return words[2]
    return f"new {words[1].rpartition('.')[2]}" if words[0] == "i" and len(words) > 1 else "look up"


# --- driver: TensorFlowOnSpark ---


def _prepare_tensorflowonspark(launcher: str, package: ModuleType) -> None:
    if launcher == "tfos":
        tfos_compat.install()
    from tensorflowonspark import TFCluster, TFParallel, TFSparkNode, reservation

    join_poll_ns = 0 if launcher == "tfos" else STOCK_POLL_NS
    record_driver(TFSparkNode, join_poll_ns, UserFeedTask, start_task=None)
    if launcher != "tfos":
        tfos_stock.record_reservations(reservation)
    TFCluster.time = NamedSleep(kinds.TFCLUSTER_SHUTDOWN_POLL, (kinds.WAIT_TRAINERS,))
    replace(reservation.Server, "await_reservations")(_wait)

    @replace(TFSparkNode, "run")
    def run(original: Function, fn: Function, *args: object, **kwargs: object) -> object:
        return UserStartTask(original(UserMain(fn), *args, **kwargs))

    @replace(TFParallel, "run")
    def run_parallel(original: Function, sc: object, map_fn: Function, *args: object, **kwargs: object) -> object:
        with tracing.span(kinds.TFPARALLEL_RUN):
            return original(sc, UserMain(map_fn), *args, **kwargs)

    @replace(TFSparkNode, "inference")
    def inference(original: Function, *args: object, **kwargs: object) -> object:
        return UserFeedTask(original(*args, **kwargs), join_poll_ns=join_poll_ns)

    @replace(TFSparkNode, "shutdown")
    def shutdown(original: Function, *args: object, **kwargs: object) -> object:
        return ShutdownTask(original(*args, **kwargs))

    @replace(TFCluster, "run")
    def run_cluster(original: Function, *args: object, **kwargs: object) -> object:
        nodes = args[3] if len(args) > 3 else kwargs.get("num_executors")
        with tracing.span(kinds.TFCLUSTER_RUN, nodes=nodes):
            return original(*args, **kwargs)

    cluster = TFCluster.TFCluster
    replace(cluster, "train")(_wait)
    record_calls(cluster, "train", kinds.TFCLUSTER_TRAIN)
    record_calls(cluster, "inference", kinds.TFCLUSTER_INFERENCE)

    @replace(cluster, "shutdown")
    def shut_down(original: Function, *args: object, **kwargs: object) -> None:
        with tracing.span(kinds.TFCLUSTER_SHUTDOWN):
            original(*args, **kwargs)
        tracing.instant(kinds.LAUNCHER_SHUT_DOWN)


def _wait(original: Function, *args: object, **kwargs: object) -> object:
    _Wait.active = True
    try:
        return original(*args, **kwargs)
    finally:
        _Wait.active = False


# --- functions for executors: classes, so that they pickle by reference ---


class _StartedBy:
    """Process ID of this executor's start task. A trainer with another process ID is a fork of the start task."""

    pid = 0


class UserStartTask(tfos_stock.WatchedStartTask):
    """Replacement of TFSparkNode.run's function for one executor."""

    def __call__(self, executor_ids: object) -> object:
        _StartedBy.pid = os.getpid()
        return super().__call__(executor_ids)


class UserMain:
    """Wrapper of the user's main function in a rank."""

    def __init__(self, main: Function) -> None:
        self._main = main

    def __call__(self, args: object, ctx: Any) -> object:
        # TFParallel has no roles: all ranks are workers
        role, index = (ctx.job_name, ctx.task_index) if ctx.job_name else ("worker", ctx.worker_num)
        in_task = os.getpid() == _StartedBy.pid or not ctx.job_name
        if not in_task:
            tracing.identify(role, index)
        peers = [address for addresses in ctx.cluster_spec.values() for address in addresses]
        os.environ.update(without_proxy(peers, os.environ))
        try:
            with tracing.span(kinds.USER_MAIN, role=role, index=index, in_task=in_task), steps.main_function():
                return self._main(args, ctx)
        finally:
            tracing.flush()


class UserFeedTask(FeedTask):
    """Feeding of one partition, for training or for inference."""

    def _timed(self, blocks: Iterator[Any]) -> Iterator[Any]:
        """Yield the rows like FeedTask, but with two spans per chunk: rows are too frequent for two spans per row."""
        count = 0
        while True:
            with tracing.span(kinds.READ_ROWS):
                chunk = list(_chunk(blocks))
            if not chunk:
                break
            count += len(chunk)
            with tracing.span(kinds.PUT, items=len(chunk)):
                yield from chunk
        tracing.instant(kinds.FEED_EXHAUSTED, items=count, join_poll_ns=self._join_poll_ns)


def _chunk(items: Iterator[object]) -> Iterator[object]:
    until_ns = monotonic_ns() + CHUNK_NS
    for item in islice(items, CHUNK):
        yield item
        if monotonic_ns() >= until_ns:
            break


class ShutdownTask:
    """Replacement of TFSparkNode.shutdown's function for one executor, which sleeps for the user's grace_secs."""

    def __init__(self, inner: FunctionType) -> None:
        self._inner = inner

    def __call__(self, items: object) -> object:
        # the function was pickled by value: `time` is in its own globals, not in a module
        function_globals = self._inner.__globals__
        function_globals["time"] = NamedSleep(kinds.TFCLUSTER_GRACE_SECS, (kinds.WAIT_TRAINER,))
        try:
            with tracing.span(kinds.SHUTDOWN_TASK):
                return self._inner(items)
        finally:
            function_globals["time"] = time


# --- executors ---


def _prepare_worker(launcher: str, package: ModuleType) -> None:
    if launcher == "tfos":
        tfos_compat.install()
    from tensorflowonspark import TFNode

    feed = TFNode.DataFeed
    if hasattr(feed.next_batch, "__wrapped__"):
        return

    @replace(feed, "next_batch")
    def next_batch(original: Function, *args: object, **kwargs: object) -> object:
        with tracing.span(kinds.GET) as span:
            batch: Any = original(*args, **kwargs)
            # with an input mapping the batch has a list for each tensor
            rows = next(iter(batch.values()), ()) if isinstance(batch, dict) else batch
            span.note(items=len(rows))  # matches these rows to the feeder's put
            return batch

    record_calls(feed, "batch_results", kinds.PUT_RESULTS)
    record_calls(feed, "terminate", kinds.TERMINATE_FEED)

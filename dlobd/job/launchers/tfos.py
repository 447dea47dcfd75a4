"""The reference launcher: TensorFlowOnSpark with the compatibility layer of `tfos_compat`, fed by Spark."""

from __future__ import annotations

import threading
import time
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers import tfos_compat
from dlobd.job.launchers.base import Feed, Main, TrainingFailed, place, rank_name, recorded_reads, role_of
from dlobd.job.launchers.failure import failure_line
from dlobd.job.launchers.liveness import JoinWatch, uses_tensorflow_servers, watched
from dlobd.job.launchers.tfos_compat import Function
from dlobd.job.rank_status import LONGEST_PAUSE_S, JobStatus
from dlobd.spans import Cause

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from dlobd.job.description import Job

CHECK_EXECUTORS_S = 0.5  # interval between checks of the executors, while the driver waits for the ranks
RESERVATION_TIMEOUT_S = 120
FEED_TIMEOUT_S = 7 * 24 * 3600
"""TensorFlowOnSpark's timeout for a partition: the maximum of `timeout_s`, because an epoch may last as long as the
job. The death of a rank is detected without this timeout."""

AHEAD_BYTES = 8 << 20
"""Size of the blocks that a trainer reads ahead: about 100 steps on MNIST, which take longer than a task's start."""

READER_END_S = 5.0  # timeout for the thread that reads ahead to end after `stop`


class TfosLauncher:
    """Launcher with TensorFlowOnSpark: InputMode.SPARK with blocks to feed, else InputMode.TENSORFLOW."""

    reads_ahead: ClassVar[bool] = True  # a trainer takes blocks before its step loop requests them
    shutdown_sleep_s: ClassVar[float | None] = 0.1  # longest sleep in TFCluster.shutdown; None keeps the original's 5 s

    def spark_conf(self) -> dict[str, str]:
        """Return settings for the worker daemon with hooks, and the reuse of Python workers, parents of trainers."""
        return {"spark.python.daemon.module": "dlobd.job.launchers.tfos_daemon", "spark.python.worker.reuse": "true"}

    def _prepared(self) -> Any:
        tfos_compat.install()
        from tensorflowonspark import TFCluster, TFSparkNode

        record_driver(TFSparkNode, join_poll_ns=0)
        return TFCluster

    def launch(self, sc: SparkContext, main: Main, job: Job, blocks: RDD[bytes] | None, status: JobStatus) -> None:
        with tracing.span(kinds.IMPORT_TENSORFLOWONSPARK):
            TFCluster = self._prepared()  # noqa: N806  a module of that name
        TFCluster.time = NamedSleep(kinds.TFCLUSTER_SHUTDOWN_POLL, at_most_s=self.shutdown_sleep_s)
        executors = _executors(sc)
        # num_gpus: GPUs that Spark assigned; by default TensorFlowOnSpark takes any GPU that nvidia-smi reports as free
        tf_args = Namespace(job=job, markers=status, num_gpus=int(job.device == "gpu"))
        try:
            with tracing.span(kinds.TFCLUSTER_RUN), watched(sc, status):
                cluster = TFCluster.run(
                    sc,
                    _TfosMain(main, blocks is not None, self.reads_ahead),
                    tf_args,
                    job.workers,
                    0,  # parameter servers; servers of an exchange run beside the ranks
                    input_mode=TFCluster.InputMode.TENSORFLOW if blocks is None else TFCluster.InputMode.SPARK,
                    master_node="chief",
                    reservation_timeout=RESERVATION_TIMEOUT_S,
                )
            nodes = cluster.cluster_info if uses_tensorflow_servers(job) else []
            join_watch = JoinWatch({f"{n['job_name']} {n['task_index']}": f"{n['host']}:{n['port']}" for n in nodes})
            if blocks is not None:
                with tracing.span(kinds.FEED_JOB), watched(sc, status, join_watch):
                    _train(cluster, blocks, job.fed_epochs, status, may_end_early=job.may_end_early)
        except tfos_compat.NotRegistered as error:
            missing = (rank_name(rank) for rank in range(job.workers) if role_of(rank) not in error.registered)
            cause = f"{' and '.join(missing)} did not register with TensorFlowOnSpark within {RESERVATION_TIMEOUT_S} s"
            raise TrainingFailed(cause) from error
        except SystemExit as error:  # TensorFlowOnSpark exits if the start job failed
            failed = Exception(TFCluster.tf_status.get("error", "start job failed"))
            raise TrainingFailed(failure_line(failed, status)) from error
        except Exception as error:
            raise TrainingFailed(failure_line(error, status)) from error
        with tracing.span(kinds.AWAIT_TRAINERS, kinds.DONE_MARKER_POLL.wait(int(LONGEST_PAUSE_S * 1e9))):
            while len(finished := status.finished()) < job.workers:
                failure = status.failure() or TFCluster.tf_status.get("error")
                if not failure and (lost := executors - _executors(sc)):
                    failure = f"executor {min(lost)} was lost while its trainer was still working"
                if failure := failure or join_watch.check():
                    raise TrainingFailed(failure_line(Exception(failure), status))
                status.wait(finished, CHECK_EXECUTORS_S)
        with tracing.span(kinds.TFCLUSTER_SHUTDOWN):
            cluster.shutdown(timeout=0)


def _train(cluster: Any, blocks: RDD[bytes], epochs: int, status: JobStatus, may_end_early: bool) -> None:
    """Feed all epochs in one Spark job, or in a job per epoch if the ranks may end early.

    TensorFlowOnSpark reads a job to its end, and discards the blocks that the ranks do not take.
    """
    if not may_end_early:
        cluster.train(blocks, epochs, feed_timeout=FEED_TIMEOUT_S)
        return
    for _ in range(epochs):
        cluster.train(blocks, 1, feed_timeout=FEED_TIMEOUT_S)
        # a feed task stops the server, unless the task began after its rank had stopped the feed
        if cluster.server.done or status.finished():
            return


def _blocks_ahead(job: Job) -> int:
    """Return the number of blocks that a trainer may read ahead of its steps; 0 disables reading ahead.

    The limit is half of a partition: an executor begins Spark's next task when the trainer has taken all blocks of the
    feed task. An executor that is far ahead of its trainer's steps would take partitions of other ranks.
    """
    return min(AHEAD_BYTES // (job.batch_size * job.layout.record_bytes), job.steps_per_epoch // 2)


class _TfosMain:
    """Adapter of `main(job, node)` to TensorFlowOnSpark's `main(tf_args, ctx)`. Runs in the trainer process."""

    def __init__(self, main: Main, fed: bool, ahead: bool) -> None:
        self._main = main
        self._fed = fed
        self._ahead = ahead

    def __call__(self, tf_args: Any, ctx: Any) -> None:
        tracing.identify(ctx.job_name, ctx.task_index)
        feed: Feed | None = _TfosFeed(ctx) if self._fed else None
        if feed and self._ahead and (ahead := _blocks_ahead(tf_args.job)):
            feed = ReadAhead(feed.next_block, tf_args.job.most_steps, ahead, feed.stop)
        # addresses from TensorFlowOnSpark's rendezvous
        peers = [address for role in ("chief", "worker") for address in ctx.cluster_spec.get(role, ())]
        rank = peers.index(ctx.cluster_spec[ctx.job_name][ctx.task_index])
        self._main(tf_args.job, place(tf_args.job, rank, peers, feed))
        tracing.flush()


class _TfosFeed:
    """Adapter of TensorFlowOnSpark's DataFeed: an item is a block."""

    def __init__(self, ctx: Any) -> None:
        with tracing.span(kinds.CONNECT_TO_QUEUE):
            self._feed = ctx.get_data_feed(train_mode=True)

    def next_block(self) -> bytes | None:
        with tracing.span(kinds.GET) as span:
            items: list[bytes] = self._feed.next_batch(1)
            span.note(bytes=sum(map(len, items)))
        return items[0] if items else None

    def stop(self) -> None:
        with tracing.span(kinds.TERMINATE_FEED):
            self._feed.terminate()
        self._feed.queue_in.put(None)  # end the feed for a thread that waits for a block


class ReadAhead:
    """Feed with a thread that reads blocks before the trainer requests them.

    TensorFlowOnSpark feeds each epoch by a separate Spark task, which ends when the trainer has taken its blocks.
    Without blocks in reserve, the trainer waits for the start of the next task, and for the transfer of each block.

    Args:
        take: returns the next block, or None at the end of the feed; called by the thread.
        limit: the largest number of blocks of the feed.
        ahead: the largest number of blocks in the reserve; at least 1.
        stop: stops the feed, and ends a `take` that waits for a block.
    """

    def __init__(
        self, take: Callable[[], bytes | None], limit: int, ahead: int, stop: Callable[[], None] = lambda: None
    ) -> None:
        self._take = take
        self._stop = stop
        self._stopped = False
        self._limit = limit
        self._ahead = ahead
        self._blocks: deque[bytes] = deque()
        self._ended = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="dlobd-reader", daemon=True)
        self._thread.start()

    def next_block(self) -> bytes | None:
        """Return the next block, or None after the end of the feed. Raises errors of `take` after the last block."""
        with self._changed:
            if not self._blocks and not self._ended:
                with tracing.span(kinds.AWAIT_BLOCK):
                    self._changed.wait_for(lambda: self._blocks or self._ended)
            if self._blocks:
                block = self._blocks.popleft()
                self._changed.notify_all()
                return block
        if self._failure:
            raise self._failure
        return None

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._stop()
        self._thread.join(READER_END_S)

    def _read(self) -> None:
        failure = None
        try:
            with tracing.span(kinds.READ_AHEAD):
                for _ in range(self._limit):
                    block = self._take()
                    if block is None or self._stopped:
                        break
                    self._put(block)
        except BaseException as error:  # noqa: BLE001  `next_block` raises it in the trainer
            failure = error
        with self._changed:
            self._failure = failure
            self._ended = True
            self._changed.notify_all()

    def _put(self, block: bytes) -> None:
        with self._changed:
            self._blocks.append(block)
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._blocks) < self._ahead or self._stopped)


class FeedTask:
    """Replacement of TFSparkNode.train's function for one partition, which records spans of the queue's put and join.

    `join_poll_ns`: longest sleep of the join after the queue has become empty.
    """

    def __init__(self, inner: Function, join_poll_ns: int) -> None:
        self._inner = inner
        self._join_poll_ns = join_poll_ns

    def __call__(self, blocks: Iterator[bytes]) -> object:
        from pyspark import TaskContext

        context = TaskContext.get()
        # a Python worker serves several tasks; the attempt number assigns the spans to a task
        with tracing.span(kinds.FEED_TASK, task_attempt=context.taskAttemptId() if context else None):
            return self._inner(self._timed(blocks))

    def _timed(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the blocks, with spans: Spark reads a block in `next`; TensorFlowOnSpark puts it during `yield`."""
        count = 0
        for block in recorded_reads(blocks, kinds.READ_BLOCK):
            count += 1
            with tracing.span(kinds.PUT, bytes=len(block)):
                yield block
        # TFSparkNode._train now waits until the trainer has taken all blocks
        tracing.instant(kinds.FEED_EXHAUSTED, blocks=count, join_poll_ns=self._join_poll_ns)


class StartTask:
    """Replacement of TFSparkNode.run's function for one executor, which records a span of the launcher."""

    def __init__(self, inner: Function) -> None:
        self._inner = inner

    def __call__(self, executor_ids: object) -> object:
        with tracing.span(kinds.START_TASK):
            return self._inner(executor_ids)


def record_driver(
    node: Any, join_poll_ns: int, feed_task: type[FeedTask] = FeedTask, start_task: type[StartTask] | None = StartTask
) -> None:
    """Wrap the tasks that TensorFlowOnSpark creates on the driver. Without `start_task`, the caller wraps that."""
    original_train, original_run = node.train, node.run
    if not getattr(original_train, "dlobd", False):
        if start_task is not None:
            node.run = lambda *args, **kwargs: start_task(original_run(*args, **kwargs))

        def train(*args: object, **kwargs: object) -> FeedTask:
            return feed_task(original_train(*args, **kwargs), join_poll_ns)

        train.dlobd = True  # type: ignore[attr-defined]
        node.train = train


class NamedSleep:
    """Replacement of the module `time` inside TensorFlowOnSpark, which records its sleeps, and may shorten them."""

    def __init__(self, cause: Cause, waits_for: tuple[str, ...] = (), at_most_s: float | None = None) -> None:
        self._cause = cause
        self._waits_for = list(waits_for)
        self._at_most_s = at_most_s

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        seconds = seconds if self._at_most_s is None else min(seconds, self._at_most_s)
        wait = {"waits_for": self._waits_for, **self._cause.wait(int(seconds * 1.1e9), f"sleep {seconds:g} s")}
        with tracing.span(kinds.SLEEP, wait):
            time.sleep(seconds)


def _executors(sc: SparkContext) -> set[str]:
    ids = sc._jsc.sc().getExecutorIds()
    return {ids.apply(i) for i in range(ids.size())}

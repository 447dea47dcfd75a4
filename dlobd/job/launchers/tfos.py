"""The reference launcher: TensorFlowOnSpark with the compatibility layer of `tfos_compat`, fed by Spark."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers import tfos_compat
from dlobd.job.launchers.base import LONGEST_PAUSE_S, Done, Feed, Main, Roles, TrainingFailed, place
from dlobd.job.launchers.read_ahead import ReadAhead
from dlobd.job.launchers.reason import one_line
from dlobd.job.launchers.watching import JoinWatch, meets_by_tensorflow, watched
from dlobd.spans import Cause

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from dlobd.job.description import Job

WATCH_S = 0.5
"""How often the driver looks whether executors are still there, while it waits for a word of the ranks."""

SHUTDOWN_SLEEP_S = 0.1
RESERVATION_TIMEOUT_S = 120
FEED_TIMEOUT_S = 7 * 24 * 3600
"""What TensorFlowOnSpark lets the ranks take for one partition. An epoch may last as long as the job, whose deadline,
`timeout_s`, is at most this; a rank that dies is noticed without it."""


AHEAD_BYTES = 8 << 20
"""Of blocks that a trainer takes ahead: some hundred steps on MNIST, which last longer than the start of a task."""


class TfosLauncher:
    """TensorFlowOnSpark: InputMode.SPARK with blocks to feed, else InputMode.TENSORFLOW."""

    def spark_conf(self) -> dict[str, str]:
        """The worker daemon that carries dlobd's hooks; reuse, because the trainer is a child of the Python worker."""
        return {
            "spark.python.daemon.module": "dlobd.job.launchers.tfos_daemon",
            "spark.python.worker.reuse": "true",
        }

    def _prepared(self) -> Any:
        """The module TFCluster, made importable and measurable."""
        tfos_compat.install()
        from tensorflowonspark import TFCluster, TFSparkNode

        record_driver(TFSparkNode, join_poll_ns=0)
        return TFCluster

    def _reads_ahead(self) -> bool:
        """Whether a trainer takes blocks before its step loop asks for them."""
        return True

    def _shutdown_sleep_s(self, roles: Roles) -> float | None:
        """At most so long TFCluster.shutdown sleeps before it looks again; None leaves its 5 s."""
        # with parameter servers it counts how often it sees them alone: that is a time, not a poll
        return None if roles.ps or roles.evaluator else SHUTDOWN_SLEEP_S

    def launch(
        self, sc: SparkContext, main: Main, job: Any, roles: Roles, blocks: RDD[bytes] | None, epochs: int, done: Done
    ) -> None:
        """See `dlobd.job.launchers.base`."""
        with tracing.span(kinds.IMPORT_TENSORFLOWONSPARK):
            TFCluster = self._prepared()  # noqa: N806  a module of that name
        TFCluster.time = NamedSleep(kinds.TFCLUSTER_SHUTDOWN_POLL, at_most_s=self._shutdown_sleep_s(roles))
        watch = _ExecutorWatch(sc)
        # num_gpus: those that Spark assigned; without it TensorFlowOnSpark takes one that nvidia-smi calls free
        tf_args = Namespace(job=job, markers=done, num_gpus=int(job.device == "gpu"))
        try:
            with tracing.span(kinds.TFCLUSTER_RUN), watched(sc, done):
                cluster = TFCluster.run(
                    sc,
                    _TfosMain(main, blocks is not None, self._reads_ahead()),
                    tf_args,
                    roles.executors,
                    roles.ps,
                    input_mode=TFCluster.InputMode.TENSORFLOW if blocks is None else TFCluster.InputMode.SPARK,
                    master_node="chief",
                    eval_node=roles.evaluator > 0,
                    reservation_timeout=RESERVATION_TIMEOUT_S,
                )
            nodes = cluster.cluster_info if meets_by_tensorflow(job) else []
            joining = JoinWatch({f"{n['job_name']} {n['task_index']}": f"{n['host']}:{n['port']}" for n in nodes})
            if blocks is not None:
                with (
                    tracing.span(kinds.FEED_JOB),
                    watched(sc, done, joining),
                ):
                    _train(cluster, blocks, epochs, done, may_end_early=job.may_end_early)
        except tfos_compat.NotRegistered as error:
            raise TrainingFailed(_unregistered(error, roles)) from error
        except SystemExit as error:  # TensorFlowOnSpark's way to say that the start job failed
            raise TrainingFailed(
                one_line(Exception(TFCluster.tf_status.get("error", "start job failed")), done)
            ) from error
        except Exception as error:
            raise TrainingFailed(one_line(error, done)) from error
        with tracing.span(kinds.AWAIT_TRAINERS, kinds.DONE_MARKER_POLL.wait(int(LONGEST_PAUSE_S * 1e9))):
            while len(finished := done.finished()) < roles.ranks:
                failure = done.failure() or TFCluster.tf_status.get("error") or watch.lost() or joining.look()
                if failure:
                    raise TrainingFailed(one_line(Exception(failure), done))
                done.wait(finished, WATCH_S)
        with tracing.span(kinds.TFCLUSTER_SHUTDOWN):
            cluster.shutdown(timeout=0)


def _train(cluster: Any, blocks: RDD[bytes], epochs: int, done: Done, may_end_early: bool) -> None:
    """Feeds all epochs in one Spark job; or each in a job of its own, until the ranks want no more: TensorFlowOnSpark
    reads what is left of a job to its end, and throws it away."""
    if not may_end_early:
        cluster.train(blocks, epochs, feed_timeout=FEED_TIMEOUT_S)
        return
    for _ in range(epochs):
        cluster.train(blocks, 1, feed_timeout=FEED_TIMEOUT_S)
        # a feed task asks the server to stop, but not if it began after its rank had said so
        if cluster.server.done or done.finished():
            return


def _unregistered(error: tfos_compat.NotRegistered, roles: Roles) -> str:
    """Which nodes are missing, by what the registered ones are."""
    counts = {"chief": roles.chief, "worker": roles.worker, "ps": roles.ps, "evaluator": roles.evaluator}
    wanted = {(role, index) for role, count in counts.items() for index in range(count)}
    missing = " and ".join(f"{role} {index}" for role, index in sorted(wanted - error.registered))
    return f"{missing} did not register with TensorFlowOnSpark within {RESERVATION_TIMEOUT_S} s"


def _blocks_ahead(job: Job) -> int:
    """How many blocks a trainer may take ahead of its steps; 0: it takes each when it needs it.

    At most half of a partition. Once all blocks of a feed task are taken, its executor begins the next task that Spark
    has: were that possible before the steps have come near, it would get partitions that another rank then lacks."""
    return min(AHEAD_BYTES // (job.batch_size * job.layout.record_bytes), job.steps_per_epoch // 2)


class _TfosMain:
    """`main(job, node)` in the form that TensorFlowOnSpark calls, `main(tf_args, ctx)`. Runs in the trainer process."""

    def __init__(self, main: Main, fed: bool, ahead: bool) -> None:
        self._main = main
        self._fed = fed
        self._ahead = ahead

    def __call__(self, tf_args: Any, ctx: Any) -> None:
        tracing.identify(ctx.job_name, ctx.task_index)
        feed: Feed | None = _TfosFeed(ctx) if self._fed else None
        if feed and self._ahead and (ahead := _blocks_ahead(tf_args.job)):
            feed = ReadAhead(feed.next_block, tf_args.job.most_steps, ahead, feed.stop)
        # TensorFlowOnSpark's own rendezvous has told each node where all are
        peers = [address for role in ("chief", "worker") for address in ctx.cluster_spec.get(role, ())]
        rank = peers.index(ctx.cluster_spec[ctx.job_name][ctx.task_index])
        self._main(tf_args.job, place(tf_args.job, rank, peers, feed))
        tracing.flush()


class _TfosFeed:
    """TensorFlowOnSpark's DataFeed, one block an item."""

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
        self._feed.queue_in.put(None)  # the end of the feed, for a thread that still waits for a block


class FeedTask:
    """TFSparkNode.train's function for one partition, with the queue's put and join timed.

    Args:
        join_poll_ns: how long the join may sleep after the queue was taken.
    """

    def __init__(self, inner: Callable[[Iterator[bytes]], Any], join_poll_ns: int) -> None:
        self._inner = inner
        self._join_poll_ns = join_poll_ns

    def __call__(self, blocks: Iterator[bytes]) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        # a Python worker is reused for several tasks: the attempt tells whose spans these are
        with tracing.span(kinds.FEED_TASK, task_attempt=context.taskAttemptId() if context else None):
            return self._inner(self._timed(blocks))

    def _timed(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Between two `yield`s TensorFlowOnSpark puts the block; inside `next` Spark reads it."""
        count = 0
        while True:
            with tracing.span(kinds.READ_BLOCK):
                block = next(blocks, None)
            if block is None:
                break
            count += 1
            with tracing.span(kinds.PUT, bytes=len(block)):
                yield block
        # what follows in TFSparkNode._train: wait until the trainer has taken everything
        tracing.instant(kinds.FEED_EXHAUSTED, blocks=count, join_poll_ns=self._join_poll_ns)


class StartTask:
    """TFSparkNode.run's function for one executor, as a whole: what has no name inside it is the launcher's too."""

    def __init__(self, inner: Callable[[Any], Any]) -> None:
        self._inner = inner

    def __call__(self, executor_ids: Any) -> Any:
        """Starts the node."""
        with tracing.span(kinds.START_TASK):
            return self._inner(executor_ids)


def record_driver(
    node: Any, join_poll_ns: int, feed_task: type[FeedTask] = FeedTask, start_task: type[StartTask] | None = StartTask
) -> None:
    """Spans around the tasks that TensorFlowOnSpark makes on the driver.

    Args:
        feed_task, start_task: stand around each; None: the caller has its own.
    """
    original_train, original_run = node.train, node.run
    if not getattr(original_train, "dlobd", False):
        if start_task is not None:
            node.run = lambda *args, **kwargs: start_task(original_run(*args, **kwargs))

        def train(*args: Any, **kwargs: Any) -> FeedTask:
            return feed_task(original_train(*args, **kwargs), join_poll_ns)

        train.dlobd = True  # type: ignore[attr-defined]
        node.train = train


class NamedSleep:
    """Stands in for the module `time` inside TensorFlowOnSpark, so that its sleeps carry a name.

    Args:
        waits_for: whom they may be waiting for.
        at_most_s: of each sleep; None: as long as TensorFlowOnSpark asks for.
    """

    def __init__(self, cause: Cause, waits_for: tuple[str, ...] = (), at_most_s: float | None = None) -> None:
        self._cause = cause
        self._waits_for = list(waits_for)
        self._at_most_s = at_most_s

    def sleep(self, seconds: float) -> None:
        seconds = seconds if self._at_most_s is None else min(seconds, self._at_most_s)
        wait = {"waits_for": self._waits_for, **self._cause.wait(int(seconds * 1.1e9), f"sleep {seconds:g} s")}
        with tracing.span(kinds.SLEEP, wait):
            time.sleep(seconds)


class _ExecutorWatch:
    """Notices an executor that is lost while no Spark job runs."""

    def __init__(self, sc: SparkContext) -> None:
        self._sc = sc
        self._first = self._now()

    def _now(self) -> set[str]:
        ids = self._sc._jsc.sc().getExecutorIds()
        return {ids.apply(i) for i in range(ids.size())}

    def lost(self) -> str | None:
        gone = self._first - self._now()
        return f"executor {min(gone)} was lost while its trainer was still working" if gone else None

"""Table of rules about kinds of spans: sentence, remedy, and the time of a span that no setting removes.

The rows of `dlobd.spans` have the findings of each kind of span and named wait. A rule removes the spans of its finding
from the trace, except for the time of each span that no setting removes.

`find.py` has the order, the smallest reported saving and the noise test.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import numpy as np

from dlobd import spans as kinds
from dlobd.attribution.trace import SEGMENT_KINDS
from dlobd.columns import NONE
from dlobd.evidence.topology import Placement
from dlobd.findings.base import Advice, Candidate, Condition, Context, Wanted, wall_share
from dlobd.schema import Experiment, OwnJob
from dlobd.spans import Cause, SpanKind

S = 10**9
MS = 10**6

HEARTBEAT_NS = S
"""yarn.resourcemanager.nodemanagers.heartbeat-interval-ms: a container is allocated at a heartbeat, never before."""

QUICK_START = "-XX:TieredStopAtLevel=1"
"""Option of a JVM without its slowest compiler."""
_QUICK = f"for short jobs on few cores, limit the JIT compiler: pass {QUICK_START}"

SPARKS_OWN = ("pyspark.zip", "py4j-", "__spark_conf__", "__spark_libs__")
"""Beginnings of the names of files that Spark uploads with each job."""

SMALL_BYTES = 1 << 20
"""Smallest uploaded file whose upload is worth avoiding."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule about the kinds of spans and waits that have its code in their column `findings`.

    sentence: the finding; `{time}` stands for its time and share of the wall time.
    inside: only spans inside a span of one of these kinds count.
    outside: spans inside a span of one of these kinds do not count.
    at_least_ns: time of each span that no setting removes.
    saved: largest share of a span that the remedy saves.
    keeps_core_waits: waits for a core have another cause; the remedy does not remove them.
    """

    finding: str
    layer: str
    sentence: str
    remedy: str = ""
    unless: str = ""
    advice: Advice = field(default_factory=dict)
    inside: tuple[SpanKind, ...] = ()
    outside: tuple[SpanKind, ...] = ()
    at_least_ns: int = 0
    saved: Fraction | int = 1
    keeps_core_waits: bool = False

    def __call__(self, context: Context) -> Candidate | None:
        """Return the candidate finding; None if it has no wall time."""

        wanted, spans = self._wanted(context), context.trace.spans
        lengths_ns = np.maximum(1, spans.end_ns - spans.start_ns)
        kept_ns = np.full(len(spans), self.at_least_ns)
        if self.keeps_core_waits:
            rows = np.flatnonzero(wanted.own | wanted.waits)
            waited_ns = (context.waited_ns(span, span.start_ns, span.end_ns) for span in spans.rows(rows))
            kept_ns[rows] += np.fromiter(waited_ns, np.int64, len(rows))
        kept_ns = np.minimum(kept_ns, lengths_ns)
        # the remedy saves at most `saved`
        rest = 1 - Fraction(self.saved)
        more = kept_ns * rest.denominator >= lengths_ns * rest.numerator
        kept, of = np.where(more, kept_ns, rest.numerator), np.where(more, lengths_ns, rest.denominator)
        share = wall_share(context, wanted, self.keeps_core_waits)
        if share.ns <= 0:
            return None
        return Candidate(
            self.finding,
            self.layer,
            self.sentence.format(time=context.time(share.ns)),
            share,
            self.remedy,
            self.unless,
            self.advice,
            wanted.retained(kept, of),
        )

    def _wanted(self, context: Context) -> Wanted:
        spans = context.trace.spans
        there = np.ones(len(spans), np.bool_)
        if self.inside:
            there &= context.around(*self.inside) != NONE
        if self.outside:
            there &= context.around(*self.outside) == NONE
        of_waits = [wait.cause_kind is not None and self.finding in wait.cause_kind.findings for wait in spans.waits]
        own = spans.of_kinds(lambda kind: self.finding in kind.findings)
        return Wanted(own & there, np.array(of_waits, np.bool_)[spans.wait] & there)


# ---- conditions of advice


def on_yarn(context: Context) -> bool:
    """Return True if YARN starts the executors."""
    return context.evidence.topology.has_yarn


def training_without(**advised: str) -> Condition:
    """Return the condition that dlobd's own job trains, without advised values, which are separated by blanks."""
    return lambda context: (
        isinstance(context.chosen, Experiment)
        and not any(
            str(getattr(context.chosen, name)).partition("@")[0] in values.split() for name, values in advised.items()
        )
    )


def script(launcher: str = "", cause: Cause | None = None) -> Condition:
    """Return the condition that the user's script runs, with the launcher and waits of the cause if given."""

    def helps(context: Context) -> bool:
        segments, spans = context.attribution.segments, context.trace.spans
        rows = segments.row[segments.kind == SEGMENT_KINDS.index("cause")]
        waits = {spans.waits[wait].cause_kind for wait in np.unique(spans.wait[rows]).tolist()}
        fits = isinstance(context.chosen, OwnJob) and launcher in ("", context.chosen.launcher)
        return fits and (cause is None or cause in waits)

    return helps


def lacks_quick_start(*jvms: str) -> Condition:
    """Return the condition that the run has these JVMs, and that one lacks the option. Only YARN's client mode has
    `yarn.am`; without executors the driver is the only JVM."""

    def lacks(context: Context) -> bool:
        settings, placement = context.evidence.event_log.spark_settings, context.evidence.topology.placement
        own = jvms[:1] if placement is Placement.LOCAL else jvms
        lacking = any(QUICK_START not in settings.get(f"spark.{jvm}.extraJavaOptions", "") for jvm in own)
        return lacking and ("yarn.am" in jvms) is (placement is Placement.YARN_CLIENT)

    return lacks


def retries_late(context: Context) -> bool:
    """Return True if a client of HDFS waited for half of the default delay before it retried a close."""
    first_ns = {retry.path: retry.delay_ns for retry in reversed(context.evidence.hdfs.close_retries)}
    return any(delay_ns > kinds.CLOSE_RETRY.period_ns // 2 for delay_ns in first_ns.values())


def uploads_jars(context: Context) -> bool:
    """Return True if Spark's jars come from the client's machine, by default or by a setting."""
    settings = context.evidence.event_log.spark_settings
    place = settings.get("spark.yarn.archive") or settings.get("spark.yarn.jars", "")
    return bool(settings) and urlsplit(place).scheme in ("", "file")


def uploads_files(context: Context) -> bool:
    """Return True if the job uploaded a file of its own that is large, or of unknown size."""
    written = [one for one in context.evidence.hdfs.transfers if one.operation == "HDFS_WRITE"]
    spans = context.trace.spans
    staged = spans.of_kinds(lambda kind: kind in (kinds.UPLOAD_TO_STAGING, kinds.WRITE_STAGING))
    for span in spans.rows(np.flatnonzero(staged)):
        size_bytes = sum(one.bytes for one in written if span.start_ns <= one.end_ns <= span.end_ns)
        if not PurePosixPath(span.attrs["path"]).name.startswith(SPARKS_OWN) and not 0 < size_bytes < SMALL_BYTES:
            return True
    return False


# ---- the table

RULES = (
    Rule(
        "queue",
        "yarn",
        "The application waited {time} for YARN to allocate containers.",
        "use a queue with free capacity (spark.yarn.queue), or raise yarn.scheduler.capacity.<queue>.capacity; for the "
        "ApplicationMaster raise yarn.scheduler.capacity.maximum-am-resource-percent",
        "the queue had free capacity, and the nodes lacked memory or cores for containers of this size",
        at_least_ns=HEARTBEAT_NS,
    ),
    Rule(
        "localisation",
        "yarn",
        "Uploading and localising the job's files took {time}.",
        unless="the NodeManagers had the files in their caches already; then a NodeManager was slow",
        advice={
            "put Spark's jars in HDFS once (spark.yarn.archive=hdfs:///...), where nodes find them": uploads_jars,
            "ship fewer or smaller --py-files, --files, --jars and --archives": uploads_files,
        },
    ),
    Rule(
        "resource-manager",
        "yarn",
        "The ResourceManager took {time} to answer, to register or to end the application.",
        "raise heap and threads of the ResourceManager: YARN_RESOURCEMANAGER_HEAPSIZE, "
        "yarn.resourcemanager.client.thread-count, yarn.resourcemanager.scheduler.client.thread-count",
        "the client itself waited for a core (see dlobd show --full), or the network lost packets",
        at_least_ns=100 * MS,
    ),
    Rule(
        "node-manager",
        "yarn",
        "The NodeManagers took {time} to prepare and start containers.",
        "use a faster disk for yarn.nodemanager.local-dirs, and run fewer containers per node",
        "other containers kept the node busy at that time",
        at_least_ns=300 * MS,
    ),
    Rule(
        "jvm-startup",
        "spark",
        "Spark's JVMs took {time} to start.",
        unless="the nodes have idle cores for compiler threads, or the JVMs compute for minutes with C2's faster code",
        advice={
            f"{_QUICK} in spark.driver.extraJavaOptions, spark.yarn.am.extraJavaOptions and "
            "spark.executor.extraJavaOptions": lacks_quick_start("driver", "yarn.am", "executor"),
            f"{_QUICK} in spark.driver.extraJavaOptions and spark.executor.extraJavaOptions": lacks_quick_start(
                "driver", "executor"
            ),
        },
        saved=Fraction(1, 2),
    ),
    Rule(
        "garbage",
        "spark",
        "Garbage collection stopped JVMs for {time}.",
        "raise the heap of that JVM: executor_memory_mb (spark.executor.memory), or spark.driver.memory",
        "a few pauses are long because the machine swapped; then the node needs more memory",
    ),
    Rule(
        "polls",
        "launcher",
        "TensorFlowOnSpark slept {time} between polls.",
        unless="other work took as long as the sleep; the upper bound accounts for that",
        advice={
            'use launcher = "tfos" or "barrier", which do not poll': training_without(launcher="tfos barrier native"),
            "use --set launcher=tfos, which polls 20 times per second": script("tfos-stock"),
            "pass a small grace_secs to TFCluster.shutdown": script(cause=kinds.TFCLUSTER_GRACE_SECS),
            "shorten the sleeps of 5 s in TFCluster.shutdown": script(cause=kinds.TFCLUSTER_SHUTDOWN_POLL),
            "call DataFeed.terminate only if data is left": script(cause=kinds.TERMINATE_POLL),
        },
    ),
    Rule(
        "feed",
        "feed",
        "Feeding the trainers through Spark took {time}.",
        unless="the trainers were slower than the feed, which then waited for them",
        advice={
            'use input = "read", so that trainers read HDFS themselves': training_without(input="read"),
            'use launcher = "barrier", which feeds through a pipe': training_without(input="read", launcher="barrier"),
            "use InputMode.TENSORFLOW, so that trainers read HDFS themselves": script(),
        },
    ),
    Rule(
        "hdfs-data",
        "hdfs",
        "DataNodes took {time} to serve or store data.",
        "check disks and load of the DataNodes; use more replicas (replication) or short-circuit reads for reads, "
        "fewer replicas for writes",
        "the reader was slow; then it waited for a core, or the DataNode's own times are shorter",
        {'run with page_cache = "warm" to see if the disk is the cause': training_without(page_cache="warm")},
        outside=(kinds.WRITE_STAGING, kinds.UPLOAD_TO_STAGING),
    ),
    Rule(
        "name-node",
        "hdfs",
        "The NameNode took {time} to answer.",
        "raise heap and threads of the NameNode (HDFS_NAMENODE_OPTS, dfs.namenode.handler.count); use fewer and "
        "larger files",
        "the NameNode was in safe mode, or the disk of its edit log was slow",
    ),
    Rule(
        "close-retry",
        "hdfs",
        "HDFS clients waited {time} before they retried file closes.",
        unless="DataNodes report blocks late; then the first retry fails as well",
        advice={
            "set dfs.client.block.write.locateFollowingBlock.initial.delay.ms=40 (default 400) in hdfs-site.xml of "
            "clients and DataNodes; a DataNode is the client for WebHDFS writes": retries_late
        },
    ),
    Rule(
        "evaluations",
        "tensorflow",
        "Evaluations by the chief stopped training for {time}.",
        unless="the evaluation at the end took the time; it is needed once",
        advice={"raise evaluate_every_epochs, or lower test_samples": training_without(evaluate_every_epochs="0")},
        inside=(kinds.EVALUATE,),
    ),
    Rule(
        "input-pipeline",
        "tensorflow",
        "Steps waited {time} for their next batch to be decoded or augmented.",
        "use more threads for the input (executor_cores, inter_op_threads), or records that need no decoding",
        "no input can keep up with such short steps; more time can be saved if input threads take cores from steps",
        {'use augment = "none"': training_without(augment="none")},
        outside=(kinds.EVALUATE,),
    ),
    Rule(
        "exchange",
        "channel",
        "Ranks waited {time} for gradients in transit from other ranks.",
        "use another exchange, or a larger batch_size, which needs fewer exchanges",
        "interleaved runs with another channel show no difference; then packing and summing take the time",
        {'use channel = "rdma" with such a device, or "shm" on one host': training_without(channel="rdma shm")},
    ),
    Rule(
        "lost-work",
        "spark",
        "Spark repeated the work of lost containers for {time}.",
        "remove the reason that the warnings name",
        "somebody killed the containers on purpose",
        {
            "raise executor_overhead_mb if YARN killed a container for its memory": on_yarn,
            "lower yarn.nm.liveness-monitor.expiry-interval-ms to detect dead nodes earlier": on_yarn,
        },
    ),
)

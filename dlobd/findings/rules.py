"""Table of rules about kinds of spans: sentence, remedy, and the time of a span that no setting removes.

The rows of `dlobd.spans` have the findings of each kind of span and named wait. A rule removes the spans of its finding
from the trace, except for the time of each span that no setting removes.

`find.py` has the order, the smallest reported saving and the noise test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dlobd.findings.base import Candidate, Context, wall_share
from dlobd.schema import Experiment, OwnJob, Runnable, Span
from dlobd.spans import EVALUATE, UPLOAD_TO_STAGING, WRITE_STAGING, SpanKind

S = 10**9
MS = 10**6

HEARTBEAT_NS = S
"""yarn.resourcemanager.nodemanagers.heartbeat-interval-ms: a container is allocated at a heartbeat, never before."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule about the kinds of spans and waits that have its code in their column `findings`.

    sentence: the finding; `{time}` stands for its time and share of the wall time.
    inside: only spans inside a span of one of these kinds count.
    outside: spans inside a span of one of these kinds do not count.
    at_least_ns: time of each span that no setting removes.
    saved: largest share of a span that the remedy saves.
    helps: returns False if the run has the remedy already.
    """

    finding: str
    layer: str
    sentence: str
    remedy: str
    unless: str
    inside: tuple[SpanKind, ...] = ()
    outside: tuple[SpanKind, ...] = ()
    at_least_ns: int = 0
    saved: Fraction | int = 1
    helps: Callable[[Runnable], bool] | None = None

    def __call__(self, context: Context) -> Candidate | None:
        """Return the candidate finding; None if it has no wall time, or if the experiment has the remedy already."""
        if self.helps and not self.helps(context.chosen):
            return None

        def wanted(span: Span, waited: bool) -> bool:
            row = span.cause_kind if waited else span.kind
            if row is None or self.finding not in row.findings:
                return False
            if not (self.inside or self.outside):
                return True
            around = [outer.kind for outer in context.spans_around(span)]
            inside = not self.inside or any(kind in self.inside for kind in around)
            return inside and not any(kind in self.outside for kind in around)

        def retain(span: Span, waited: bool) -> Fraction | int:
            if not wanted(span, waited):
                return 1
            length_ns = span.end_ns - span.start_ns
            least = Fraction(min(self.at_least_ns, length_ns), length_ns) if length_ns > 0 else 1
            return max(least, 1 - self.saved)

        share = wall_share(context, wanted)
        if not share.ns:
            return None
        return Candidate(
            self.finding,
            self.layer,
            self.sentence.format(time=context.time(share.ns)),
            share.ns,
            share.evidence,
            self.remedy,
            self.unless,
            retain,
            uncertain_ns=share.uncertain_ns,
        )


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
        "put Spark's jars in HDFS once (spark.yarn.archive=hdfs:///...), so that NodeManagers cache them; ship fewer "
        "or smaller --py-files, --files and --archives",
        "the NodeManagers had the files in their caches already; then a NodeManager was slow",
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
        "for short jobs on few cores, pass -XX:TieredStopAtLevel=1 in spark.driver.extraJavaOptions, "
        "spark.yarn.am.extraJavaOptions and spark.executor.extraJavaOptions: compiler threads then need less CPU time",
        "the nodes have idle cores for compiler threads, or the JVMs compute for minutes with C2's faster code",
        saved=Fraction(1, 2),
        helps=lambda chosen: not isinstance(chosen, OwnJob) or "TieredStopAtLevel" not in " ".join(chosen.options),
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
        'use launcher = "tfos" or "barrier", which do not poll; pass a small grace_secs to TFCluster.shutdown',
        "other work took as long as the sleep; the upper bound accounts for that",
        helps=lambda chosen: not isinstance(chosen, Experiment) or chosen.launcher in ("tfos-stock", "distributor"),
    ),
    Rule(
        "feed",
        "feed",
        "Feeding the trainers through Spark took {time}.",
        'use input = "read" (InputMode.TENSORFLOW), so that trainers read HDFS themselves; or launcher = "barrier", '
        "which feeds blocks through a pipe",
        "the trainers were slower than the feed, which then waited for them",
        helps=lambda chosen: not isinstance(chosen, Experiment) or chosen.input == "feed",
    ),
    Rule(
        "hdfs-data",
        "hdfs",
        "DataNodes took {time} to serve or store data.",
        "check disks and load of the DataNodes; use more replicas (replication) or short-circuit reads for reads, "
        'fewer replicas for writes; run with page_cache = "warm" to see if the disk is the cause',
        "the reader was slow; then it waited for a core, or the DataNode's own times are shorter",
        outside=(WRITE_STAGING, UPLOAD_TO_STAGING),
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
        "set dfs.client.block.write.locateFollowingBlock.initial.delay.ms=40 (default 400) in hdfs-site.xml of clients "
        "and DataNodes; a DataNode is the client for WebHDFS writes",
        "DataNodes report blocks late; then the first retry fails as well",
    ),
    Rule(
        "evaluations",
        "tensorflow",
        "Evaluations by the chief stopped training for {time}.",
        "evaluate less often: raise evaluate_every_epochs, or lower test_samples",
        "the evaluation at the end took the time; it is needed once",
        inside=(EVALUATE,),
        helps=lambda chosen: not isinstance(chosen, Experiment) or chosen.evaluate_every_epochs > 0,
    ),
    Rule(
        "input-pipeline",
        "tensorflow",
        "Steps waited {time} for their next batch to be decoded or augmented.",
        'use augment = "none", more threads for the input (executor_cores, inter_op_threads), or records that need no '
        "decoding",
        "no input can keep up with such short steps; more time can be saved if input threads take cores from steps",
        outside=(EVALUATE,),
    ),
    Rule(
        "exchange",
        "channel",
        "Ranks waited {time} for gradients in transit from other ranks.",
        'use a faster channel (channel = "rdma" with such a device, "shm" on one host) or another exchange. A larger '
        "batch_size also helps, because it needs fewer exchanges",
        "interleaved runs with another channel show no difference; then packing and summing take the time",
    ),
    Rule(
        "lost-work",
        "spark",
        "Spark repeated the work of lost containers for {time}.",
        "see the warnings for the reason: raise executor_overhead_mb if YARN killed a container for its memory; lower "
        "yarn.nm.liveness-monitor.expiry-interval-ms to detect dead nodes earlier",
        "somebody killed the containers on purpose",
    ),
)

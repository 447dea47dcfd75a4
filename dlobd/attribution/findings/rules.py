"""Table of rules about certain kinds of spans: the setting, and the time that stays in any context.

The rows of `dlobd.spans` say which kinds of spans and which named waits support a finding. A rule takes these spans out
of the trace, except for the time of each span that stays in any context.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dlobd.attribution.findings.base import Candidate, Context, wall_share
from dlobd.schema import Experiment, Span
from dlobd.spans import EVALUATE, UPLOAD_TO_STAGING, WRITE_STAGING, SpanKind

S = 10**9
MS = 10**6

HEARTBEAT_NS = S
"""yarn.resourcemanager.nodemanagers.heartbeat-interval-ms: a container is allocated at a heartbeat, never before."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule about the kinds of spans and waits that have its code.

    Attributes:
        finding: code in the columns `findings` of span kinds and causes.
        inside: only spans inside a span of one of these kinds count.
        outside: spans inside a span of one of these kinds do not count.
        at_least_ns: time of each span that stays in any context.
        helps: False if the experiment has the remedy already.
    """

    finding: str
    layer: str
    what: str
    remedy: str
    unless: str
    inside: tuple[SpanKind, ...] = ()
    outside: tuple[SpanKind, ...] = ()
    at_least_ns: int = 0
    helps: Callable[[Experiment], bool] | None = None

    @property
    def _anyway(self) -> str:
        return f"; {self.at_least_ns / S:.1f} s of each would be there anyway" if self.at_least_ns else ""

    def __call__(self, context: Context) -> Candidate | None:
        """Returns the candidate finding; None if no wall time is involved, or if the setting is there already."""
        if self.helps and isinstance(context.chosen, Experiment) and not self.helps(context.chosen):
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
            return Fraction(min(self.at_least_ns, length_ns), length_ns) if length_ns > 0 else 1

        found = wall_share(context, wanted)
        if not found.ns:
            return None
        return Candidate(
            self.finding,
            self.layer,
            f"{self.what}: {context.share(found.ns)}{self._anyway}.",
            found.ns,
            found.evidence,
            self.remedy,
            self.unless,
            retain,
            uncertain_ns=found.uncertain_ns,
        )


RULES = (
    Rule(
        "queue",
        "yarn",
        "YARN let the application wait for a container",
        "spark.yarn.queue: a queue with room; or its yarn.scheduler.capacity.<queue>.capacity, and "
        "yarn.scheduler.capacity.maximum-am-resource-percent for the ApplicationMaster",
        "the queue had room: then nodes lacked memory or cores of the size that was asked for",
        at_least_ns=HEARTBEAT_NS,
    ),
    Rule(
        "localisation",
        "yarn",
        "The job's files were uploaded, and copied to each container before it started",
        "spark.yarn.archive=hdfs:///...: what every job needs lies in HDFS once, for all users, and nodes keep it; "
        "and fewer or smaller --py-files, --files and --archives",
        "the files were in the nodes' caches already: then it is the NodeManager that was slow",
    ),
    Rule(
        "resource-manager",
        "yarn",
        "The ResourceManager was slow to answer, to register or to end the application",
        "heap and threads of the ResourceManager: YARN_RESOURCEMANAGER_HEAPSIZE, "
        "yarn.resourcemanager.client.thread-count, yarn.resourcemanager.scheduler.client.thread-count",
        "the client waited for a core itself (see how the wall passed), or the network lost packets",
        at_least_ns=100 * MS,
    ),
    Rule(
        "node-manager",
        "yarn",
        "The NodeManagers took long to prepare and to start containers",
        "a faster disk for yarn.nodemanager.local-dirs, and less load on the nodes",
        "the node was busy with other containers at that time",
        at_least_ns=300 * MS,
    ),
    Rule(
        "garbage",
        "spark",
        "JVMs stood still to collect garbage",
        "executor_memory_mb (spark.executor.memory), or spark.driver.memory: the heap of the JVM that collected",
        "few pauses are long because the machine swapped: then it is memory of the node that lacks",
    ),
    Rule(
        "polls",
        "launcher",
        "TensorFlowOnSpark slept in polls",
        'launcher = "tfos" or "barrier", which are told instead of asking; a small grace_secs in TFCluster.shutdown',
        "the sleep covers work that takes as long: the bound says so",
        helps=lambda chosen: chosen.launcher in ("tfos-stock", "distributor"),
    ),
    Rule(
        "feed",
        "feed",
        "The trainers were fed through Spark, row by row or block by block",
        'input = "read" (InputMode.TENSORFLOW): the trainers read HDFS themselves; or launcher = "barrier", whose '
        "feed is a pipe of blocks",
        "the trainers, not the feed, were slow: then the feed's puts were blocked, which is the trainers' time",
        helps=lambda chosen: chosen.input == "feed",
    ),
    Rule(
        "hdfs-data",
        "hdfs",
        "DataNodes were slow to serve or to take data",
        "disks and load of the DataNodes that served it; more replicas (replication) or short-circuit reads for reads, "
        'fewer for writes; page_cache = "warm" tells whether it was the disk',
        "the reader was slow: then its own core waits show it, and audits of the DataNodes' times are shorter",
        outside=(WRITE_STAGING, UPLOAD_TO_STAGING),
    ),
    Rule(
        "name-node",
        "hdfs",
        "The NameNode was slow to answer",
        "heap and threads of the NameNode: HDFS_NAMENODE_OPTS, dfs.namenode.handler.count; fewer and larger files",
        "the NameNode was in safe mode, or its disk of edits was slow",
    ),
    Rule(
        "close-retry",
        "hdfs",
        "HDFS clients slept before they closed a file again",
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms = 40 instead of the default 400: of clients, and "
        "of DataNodes, which are the clients of what WebHDFS writes",
        "a DataNode was slow to report its blocks: then the first try is not the last",
    ),
    Rule(
        "evaluations",
        "tensorflow",
        "Training stood still while the chief evaluated the model",
        "evaluate_every_epochs: fewer of them; or fewer test_samples",
        "the evaluation at the end is the one that counts: it is needed once",
        inside=(EVALUATE,),
        helps=lambda chosen: chosen.evaluate_every_epochs > 0,
    ),
    Rule(
        "input-pipeline",
        "tensorflow",
        "Steps waited for their next batch to be decoded or augmented",
        'augment = "none", or more threads for the input (executor_cores, inter_op_threads); records that need no '
        "decoding",
        "the steps are short: then any input is slower than they are; or the input's threads had the cores that steps "
        "needed: then more is saved than waiting",
        outside=(EVALUATE,),
    ),
    Rule(
        "exchange",
        "channel",
        "Ranks waited for each other's gradients on their way",
        'a faster channel (channel = "rdma" where there is such a device, shm on one host), another exchange, or a '
        "larger batch_size: fewer exchanges for the same samples",
        "runs with another channel, in turns, show no difference: then it is not the network, but what packs and sums",
    ),
    Rule(
        "lost-work",
        "spark",
        "Containers were lost, and their work was done again",
        "what the warnings name as the reason: executor_overhead_mb where YARN killed a container for its memory, "
        "yarn.nm.liveness-monitor.expiry-interval-ms for how long a dead node goes unnoticed",
        "somebody ended it on purpose",
    ),
)

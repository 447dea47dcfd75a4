"""THE table of remedies that are a matter of spans: which spans, which setting, and what they cost at least.

A rule takes its spans out of the trace; of each span that has a length which it will have anyway, that much is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction

from dlobd.attribution.findings.base import Case, Draft, any_of, taken
from dlobd.schema import Experiment, Span
from dlobd.tracing import names

S = 10**9
MS = 10**6

HEARTBEAT_NS = S
"""yarn.resourcemanager.nodemanagers.heartbeat-interval-ms: a container is not allocated faster than by the next one."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One remedy.

    Attributes:
        spans: (layer, name) of spans whose own time counts, a star for any words.
        waits: what their causes begin with, of sleeps and of the rest of waits.
        inside: only spans that lie in one of these names.
        outside: only spans that do not.
        at_least_ns: so much of each span would be there anyway.
        helps: whether the remedy is one that the experiment does not have yet.
    """

    finding: str
    layer: str
    what: str
    spans: tuple[tuple[str, str], ...]
    remedy: str
    unless: str
    waits: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    at_least_ns: int = 0
    helps: Callable[[Experiment], bool] | None = None

    @property
    def _anyway(self) -> str:
        return f"; {self.at_least_ns / S:.1f} s of each would be there anyway" if self.at_least_ns else ""

    def __call__(self, case: Case) -> Draft | None:
        """What it says of a case; None where it takes nothing of the wall, or the setting is there already."""
        if self.helps and isinstance(case.chosen, Experiment) and not self.helps(case.chosen):
            return None

        def wanted(span: Span, waited: bool) -> bool:
            if waited:
                fits = bool(span.cause) and span.cause.startswith(self.waits) if self.waits else False
            else:
                fits = any(span.layer == layer and fnmatchcase(span.name, name) for layer, name in self.spans)
            around = {one.name for one in case.spans_around(span)} if fits and (self.inside or self.outside) else set()
            return fits and (not self.inside or any(any_of(name, self.inside) for name in around)) and not any(
                any_of(name, self.outside) for name in around
            )  # fmt: skip

        def kept(span: Span, waited: bool) -> Fraction | int:
            if not wanted(span, waited):
                return 1
            length_ns = span.end_ns - span.start_ns
            return Fraction(min(self.at_least_ns, length_ns), length_ns) if length_ns > 0 else 1

        found = taken(case, wanted)
        if not found.ns:
            return None
        return Draft(
            self.finding,
            self.layer,
            f"{self.what}: {case.share(found.ns)}{self._anyway}.",
            found.ns,
            found.evidence,
            self.remedy,
            self.unless,
            kept,
            uncertain_ns=found.uncertain_ns,
        )


RULES = (
    Rule(
        "queue", "yarn", "YARN let the application wait for a container",
        (("yarn", "accept application"), ("yarn", "allocate * container"), ("yarn", "hand out * container"),
         ("yarn", "allocate and launch * container"), ("yarn", "allocate, localise and start * container")),
        "spark.yarn.queue: a queue with room; or its yarn.scheduler.capacity.<queue>.capacity, and "
        "yarn.scheduler.capacity.maximum-am-resource-percent for the ApplicationMaster",
        "the queue had room: then nodes lacked memory or cores of the size that was asked for",
        at_least_ns=HEARTBEAT_NS,
    ),
    Rule(
        "localisation", "yarn", "The job's files were uploaded, and copied to each container before it started",
        (("yarn", "localise * container"), ("yarn", "localise and start * container"),
         ("hdfs", "upload to staging"), ("hdfs", "write staging")),
        "spark.yarn.archive=hdfs:///...: what every job needs lies in HDFS once, for all users, and nodes keep it; "
        "and fewer or smaller --py-files, --files and --archives",
        "the files were in the nodes' caches already: then it is the NodeManager that was slow",
    ),
    Rule(
        "resource-manager", "yarn", "The ResourceManager was slow to answer, to register or to end the application",
        (("yarn", "* RPC"), ("yarn", "register application"), ("yarn", "unregister application")),
        "heap and threads of the ResourceManager: YARN_RESOURCEMANAGER_HEAPSIZE, "
        "yarn.resourcemanager.client.thread-count, yarn.resourcemanager.scheduler.client.thread-count",
        "the client waited for a core itself (see how the wall passed), or the network lost packets",
        at_least_ns=100 * MS,
    ),
    Rule(
        "node-manager", "yarn", "The NodeManagers took long to prepare and to start containers",
        (("yarn", "launch * container"), ("yarn", "start * container"), ("yarn", "prepare * container")),
        "a faster disk for yarn.nodemanager.local-dirs, and less load on the nodes",
        "the node was busy with other containers at that time",
        at_least_ns=300 * MS,
    ),
    Rule(
        "garbage", "spark", "JVMs stood still to collect garbage", (("spark", "GC pause"),),
        "executor_memory_mb (spark.executor.memory), or spark.driver.memory: the heap of the JVM that collected",
        "few pauses are long because the machine swapped: then it is memory of the node that lacks",
    ),
    Rule(
        "polls", "launcher", "TensorFlowOnSpark slept in polls", (),
        "launcher = \"tfos\" or \"barrier\", which are told instead of asking; a small grace_secs in "
        "TFCluster.shutdown",
        "the sleep covers work that takes as long: the bound says so",
        waits=("TensorFlowOnSpark", "TFCluster.shutdown(grace_secs)", "Spark's barrier poll"),
        helps=lambda chosen: chosen.launcher in ("tfos-stock", "distributor"),
    ),
    Rule(
        "feed", "feed", "The trainers were fed through Spark, row by row or block by block",
        (("feed", "*"), ("spark", names.READ_BLOCK), ("spark", names.READ_ROWS), ("launcher", names.FEED_TASK)),
        "input = \"read\" (InputMode.TENSORFLOW): the trainers read HDFS themselves; or launcher = \"barrier\", whose "
        "feed is a pipe of blocks",
        "the trainers, not the feed, were slow: then the feed's puts were blocked, which is the trainers' time",
        helps=lambda chosen: chosen.input == "feed",
    ),
    Rule(
        "hdfs-data", "hdfs", "DataNodes were slow to serve or to take data",
        (("hdfs", "* DataNode"), ("hdfs", names.STREAM), ("hdfs", f"{names.READ} *"), ("hdfs", f"{names.WRITE} *")),
        "disks and load of the DataNodes that served it; more replicas (replication) or short-circuit reads for reads, "
        "fewer for writes; page_cache = \"warm\" tells whether it was the disk",
        "the reader was slow: then its own core waits show it, and audits of the DataNodes' times are shorter",
        outside=("write staging", "upload to staging"),
    ),
    Rule(
        "name-node", "hdfs", "The NameNode was slow to answer",
        (("hdfs", "* NameNode"), ("hdfs", names.OPEN), ("hdfs", names.LIST_DIRECTORY)),
        "heap and threads of the NameNode: HDFS_NAMENODE_OPTS, dfs.namenode.handler.count; fewer and larger files",
        "the NameNode was in safe mode, or its disk of edits was slow",
    ),
    Rule(
        "close-retry", "hdfs", "HDFS clients slept before they closed a file again", (),
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms = 40 instead of the default 400: of clients, and "
        "of DataNodes, which are the clients of what WebHDFS writes",
        "a DataNode was slow to report its blocks: then the first try is not the last",
        waits=("HDFS client's close retry",),
    ),
    Rule(
        "evaluations", "tensorflow", "Training stood still while the chief evaluated the model",
        (("tensorflow", names.EVALUATE), ("tensorflow", names.PREDICT), ("tensorflow", names.DECODE),
         ("tensorflow", f"{names.READ} *"), ("hdfs", "*")),
        "evaluate_every_epochs: fewer of them; or fewer test_samples",
        "the evaluation at the end is the one that counts: it is needed once",
        inside=(names.EVALUATE,), helps=lambda chosen: chosen.evaluate_every_epochs > 0,
    ),
    Rule(
        "input-pipeline", "tensorflow", "Steps waited for their next batch to be decoded or augmented",
        (("tensorflow", names.NEXT_BATCH), ("tensorflow", names.DECODE), ("tensorflow", names.AUGMENT),
         ("tensorflow", names.CHECK_RECORDS)),
        "augment = \"none\", or more threads for the input (executor_cores, inter_op_threads); records that need no "
        "decoding",
        "the steps are short: then any input is slower than they are; or the input's threads had the cores that steps "
        "needed: then more is saved than waiting",
        waits=("tf.data decodes and hands over a batch",), outside=(names.EVALUATE,),
    ),
    Rule(
        "exchange", "channel", "Ranks waited for each other's gradients on their way",
        (("channel", names.EXCHANGE), ("channel", names.WIRE), ("channel", names.PUSH), ("channel", names.PULL),
         ("channel", names.RECEIVE), ("channel", names.SEND), ("channel", names.PACK), ("channel", names.UNPACK),
         ("channel", names.SUM), ("channel", names.WAIT_FOR_PEERS)),
        "a faster channel (channel = \"rdma\" where there is such a device, shm on one host), another exchange, or a "
        "larger batch_size: fewer exchanges for the same samples",
        "runs with another channel, in turns, show no difference: then it is not the network, but what packs and sums",
    ),
    Rule(
        "lost-work", "spark", "Containers were lost, and their work was done again",
        (("spark", "lost *"), ("spark", "wait for another ApplicationMaster"), ("yarn", "notice lost *")),
        "what the warnings name as the reason: executor_overhead_mb where YARN killed a container for its memory, "
        "yarn.nm.liveness-monitor.expiry-interval-ms for how long a dead node goes unnoticed",
        "somebody ended it on purpose",
    ),
)  # fmt: skip

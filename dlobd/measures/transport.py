"""Finds the transport of each plane of a run, by the rules of `dlobd.network.verdict`. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from dlobd import spans as kinds
from dlobd.bundle import files
from dlobd.evidence.evidence import Evidence
from dlobd.experiment.channels import library
from dlobd.fields import decoded
from dlobd.network.verdict.evidence import Snapshot, TransportEvidence
from dlobd.network.verdict.rules import plane_of_addresses, verdict
from dlobd.record.run import Plane
from dlobd.schema import OwnJob, Runnable

EXCHANGE, GRPC, SPARK, HDFS = "exchange", "tensorflow-grpc", "spark", "hdfs"


def planes(experiment: Runnable, evidence: Evidence) -> tuple[Plane, ...] | None:
    """Return a verdict per plane; None for the user's own script, whose ranks do not record their exchange."""
    if isinstance(experiment, OwnJob):
        return None
    marks = filter(None, (process.instant(kinds.TRANSPORT) for process in evidence.processes))
    ranks = [TransportEvidence.from_attrs(mark.attrs) for mark in marks]
    channel = experiment.channel
    requested_of_all = channel if experiment.planes == "all" else None
    verdicts = []
    if experiment.workers > 1:  # a single rank exchanges nothing
        exchange = verdict(EXCHANGE, channel, ranks)
        verdicts.append(exchange)
        if library(experiment) == "tensorflow":
            verdicts.append(replace(exchange, plane=GRPC))
    snapshots = [rank.after for rank in ranks]
    # of dlobd's machine, on which the driver runs in client mode
    if (interfaces := evidence.document(files.CLIENT_INTERFACES)) is not None:
        snapshots.append(decoded(Snapshot, interfaces))
    for plane, addresses in ((SPARK, spark_addresses(evidence)), (HDFS, evidence.hdfs.datanode_addresses)):
        if addresses:
            verdicts.append(plane_of_addresses(plane, requested_of_all, addresses, snapshots))
    return tuple(verdicts)


def spark_addresses(evidence: Evidence) -> tuple[str, ...]:
    """Return the addresses of Spark's driver and executors from its event log; a host's name if its address is
    unknown."""
    known: dict[str, str] = evidence.document(files.HOSTS) or {}
    # a host may occur by its address and by its name
    return tuple(sorted({known.get(host, host) for host in evidence.event_log.hosts}))


def disagreements(verdicts: Sequence[Plane] | None) -> list[str]:
    """Return a line for each plane that did not use the requested transport."""
    return [line for plane in verdicts or () if (line := plane.disagreement())]

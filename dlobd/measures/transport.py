"""Finds the transport of each plane of a run, from records of the ranks and addresses of Spark and HDFS. Pure.

The rules are those of `dlobd.network.verdict`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.experiment.channels import library
from dlobd.network.verdict.evidence import Snapshot, TransportEvidence
from dlobd.network.verdict.rules import plane_of_addresses, verdict
from dlobd.record.run import Plane
from dlobd.schema import OwnJob, Runnable

EXCHANGE, GRPC, SPARK, HDFS = "exchange", "tensorflow-grpc", "spark", "hdfs"


def planes(experiment: Runnable, evidence: Evidence) -> tuple[Plane, ...] | None:
    """Return a verdict per plane; None for the user's own script, whose ranks do not record their exchange."""
    if isinstance(experiment, OwnJob):
        return None
    ranks = list(_ranks(evidence))
    channel = experiment.channel
    requested_of_all = channel if experiment.planes == "all" else None
    verdicts = []
    if experiment.workers > 1:  # a single rank exchanges nothing
        exchange = verdict(EXCHANGE, channel, ranks)
        verdicts.append(exchange)
        if library(experiment) == "tensorflow":
            verdicts.append(replace(exchange, plane=GRPC))
    snapshots = [*(rank.after for rank in ranks), *_client(evidence)]
    for plane, addresses in ((SPARK, evidence.spark_addresses), (HDFS, evidence.hdfs.datanode_addresses)):
        if addresses:
            verdicts.append(plane_of_addresses(plane, requested_of_all, addresses, snapshots))
    return tuple(verdicts)


def disagreements(verdicts: Sequence[Plane] | None) -> list[str]:
    """Return a line for each plane that did not use the requested transport."""
    return [line for plane in verdicts or () if (line := plane.disagreement())]


def _client(evidence: Evidence) -> Iterator[Snapshot]:
    """Yield the interfaces of dlobd's machine, on which the driver runs in client mode."""
    if (interfaces := evidence.client_interfaces) is not None:
        try:
            yield Snapshot.from_json(interfaces)
        except (KeyError, TypeError):
            return  # the interface of the driver's address is unknown then


def _ranks(evidence: Evidence) -> Iterator[TransportEvidence]:
    for process in evidence.processes:
        if (mark := process.instant(kinds.TRANSPORT)) is not None:
            try:
                yield TransportEvidence.from_attrs(mark.attrs)
            except (KeyError, TypeError):
                continue  # the verdict then reports a missing rank

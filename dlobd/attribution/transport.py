"""By what a run's bytes went, plane by plane: what ranks recorded of their exchange, and whose addresses Spark and HDFS
used. Pure. The rules are those of `dlobd.network.verdict`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dlobd import spans as kinds
from dlobd.attribution.importers.evidence import Evidence
from dlobd.channel import Channel
from dlobd.experiment.channels import library
from dlobd.network.verdict.evidence import Snapshot, TransportEvidence
from dlobd.network.verdict.rules import plane_of_addresses, verdict
from dlobd.record.run import Plane
from dlobd.schema import OwnJob, Runnable

EXCHANGE, GRPC, SPARK, HDFS = "exchange", "tensorflow-grpc", "spark", "hdfs"


def planes(experiment: Runnable, evidence: Evidence) -> tuple[Plane, ...] | None:
    """The verdicts; None for the user's own script, whose ranks record nothing of their exchange."""
    if isinstance(experiment, OwnJob):
        return None
    ranks = list(_ranks(evidence))
    channel = Channel.parse(experiment.channel)
    requested_of_all = channel if experiment.planes == "all" else None
    found = []
    if experiment.workers > 1:  # one rank alone has nobody to exchange with
        exchange = verdict(EXCHANGE, channel, ranks)
        found.append(exchange)
        if library(experiment.exchange, experiment.channel, experiment.channel_library) == "tensorflow":
            found.append(replace(exchange, plane=GRPC))
    snapshots = [*(one.after for one in ranks), *_client(evidence)]
    for plane, addresses in ((SPARK, evidence.spark_addresses), (HDFS, evidence.hdfs.datanode_addresses)):
        if addresses:
            found.append(plane_of_addresses(plane, requested_of_all, addresses, snapshots))
    return tuple(found)


def disagreements(found: Sequence[Plane] | None) -> list[str]:
    """One line for each plane where what was used is not what was asked for."""
    return [line for plane in found or () if (line := plane.disagreement())]


def _client(evidence: Evidence) -> Iterator[Snapshot]:
    """Of dlobd's machine, where the driver is in client mode."""
    if (found := evidence.client_interfaces) is not None:
        try:
            yield Snapshot.from_json(found)
        except (KeyError, TypeError):
            return  # the driver's address is then one of an unknown interface


def _ranks(evidence: Evidence) -> Iterator[TransportEvidence]:
    for process in evidence.processes:
        if (said := process.instant(kinds.TRANSPORT)) is not None:
            try:
                yield TransportEvidence.from_attrs(said.attrs)
            except (KeyError, TypeError):
                continue  # the verdict then lacks a rank, and says so

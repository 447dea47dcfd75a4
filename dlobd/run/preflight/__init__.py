"""Checks before a run: is this machine, the cluster and the network fit for it? Nothing is started.

capacity   memory, cores and GPUs that an experiment asks for, and whether they exist
cluster    an external Hadoop cluster
rdma       devices and libraries for RDMA, IPoIB and shared memory
machine    this machine; `examine` collects the diagnoses of all parts for `dlobd doctor`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "absent", "broken"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check of `dlobd doctor`.

    Args:
        part: the part of the machine or cluster.
        verdict: `absent` parts are supplied by dlobd or not needed; `broken` parts make a run fail.
        what: the observation.
        remedy: the next step; empty if none is needed.
        optional: a run works without this part, so that it never changes the exit code.
        remote: the part belongs to an external cluster.
    """

    part: str
    verdict: Verdict
    what: str
    remedy: str = ""
    optional: bool = False
    remote: bool = False

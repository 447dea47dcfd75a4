"""The topology of a run: the process that dlobd starts, the place of the driver, the manager of the executors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

from dlobd.layers import CHANNEL, LAUNCHER, LAYERS, TENSORFLOW, USER, YARN

DRIVER_LANE = "driver"
SUBMITTER_LANE = "spark-submit"
APPLICATION_LANE = "application"


class Placement(Enum):
    """The place of the driver, and the manager that starts executors."""

    NATIVE = "plain processes: a parent and its ranks"
    STANDALONE = "Spark's Master and Workers; the driver is a child of spark-submit"
    LOCAL_CLUSTER = "Spark's Master and Workers in the driver's JVM"
    LOCAL = "threads of the driver's JVM run the tasks"
    YARN_CLIENT = "YARN; the driver is a child of spark-submit"
    YARN_CLUSTER = "YARN; the driver is in the ApplicationMaster's container"


_WITHOUT_YARN = {"none": Placement.NATIVE, "standalone": Placement.STANDALONE, "local-cluster": Placement.LOCAL_CLUSTER}
_MASTERS = {"local": Placement.LOCAL, "local-cluster": Placement.LOCAL_CLUSTER, "spark": Placement.STANDALONE}
"""First word of the master of a SparkContext -> placement."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The topology of one run."""

    placement: Placement
    by_hand: bool = False  # the user submitted the application; the window is the ResourceManager's
    external: bool = False  # dlobd did not start the cluster
    user_script: bool = False  # not dlobd's training job
    own_master: str = ""  # the script's own, if no SparkContext has the master of the submission

    @classmethod
    def of(
        cls, job: Mapping[str, object], by_hand: bool = False, external: bool = False, masters: Sequence[str] = ()
    ) -> Self:
        """Return the topology of a job. A job without a scheduler ran on YARN. `masters`: of its SparkContexts."""
        scheduler = str(job.get("scheduler", "yarn"))
        on_yarn = Placement.YARN_CLUSTER if job.get("deploy_mode") == "cluster" else Placement.YARN_CLIENT
        placement = on_yarn if scheduler == "yarn" else _WITHOUT_YARN.get(scheduler, Placement.STANDALONE)
        placements = [_MASTERS.get(re.split(r"[\[:]", master)[0], on_yarn) for master in masters]
        if not masters or placement in placements:
            return cls(placement, by_hand, external, "script" in job)
        # the container of the ApplicationMaster has the driver, whatever its master is
        actual = placement if placement is Placement.YARN_CLUSTER else placements[0]
        return cls(actual, by_hand, external, "script" in job, masters[0])

    @property
    def has_spark(self) -> bool:
        """True if the run has Spark and HDFS, False for plain processes on local files."""
        return self.placement is not Placement.NATIVE

    @property
    def has_yarn(self) -> bool:
        """True if YARN starts the executors."""
        return self.placement in (Placement.YARN_CLIENT, Placement.YARN_CLUSTER)

    @property
    def driver_in_container(self) -> bool:
        """True if the ApplicationMaster is the driver's JVM: its container has the driver's log."""
        return self.placement is Placement.YARN_CLUSTER

    @property
    def layers(self) -> frozenset[str]:
        """The layers that can have time in this run."""
        if not self.has_spark:
            return frozenset((LAUNCHER, TENSORFLOW, CHANNEL))
        absent = {YARN: not self.has_yarn, USER: not self.user_script}
        return frozenset(layer for layer in LAYERS if not absent.get(layer))

    @property
    def window_name(self) -> str:
        """The two events that bound the window."""
        if self.by_hand:
            return "RM startedTime -> finishedTime"
        return "spark-submit exec -> exit" if self.has_spark else "parent process exec -> exit"

    @property
    def launched_role(self) -> str:
        """The role of the process that the client starts."""
        return SUBMITTER_LANE if self.driver_in_container else DRIVER_LANE

    @property
    def client_waits_for(self) -> str:
        """The lane that the client waits for."""
        return APPLICATION_LANE if self.by_hand else self.launched_role

    @property
    def driver_ends_in_window(self) -> bool:
        """True if the driver must end before the client's process."""
        return not (self.by_hand or self.driver_in_container)

"""The contract of a place, which executes the job of a run.

A row of the registry `places` points to a subclass of `Place`: it selects experiments, describes what it would start,
and opens a place for an experiment. The first row that serves an experiment wins.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from dlobd.axes import PLACES
from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.jars import HADOOP_VERSION
from dlobd.hadoop.file_system import Storage
from dlobd.job.description import Job
from dlobd.run.machine_noise import ALL
from dlobd.run.observer import Report
from dlobd.run.run_record import SetupTimes
from dlobd.run.schedulers.base import Target
from dlobd.run.submitted_process import Window
from dlobd.schema import Runnable

if TYPE_CHECKING:
    from dlobd.run.place.external import ExternalCluster, ExternalHadoop

Lent: TypeAlias = "EmbeddedCluster | ExternalCluster | ExternalHadoop | None"
"""Cluster that the caller lends: the running cluster of a series, an external cluster, or None."""

Metrics = dict[str, int | None]
"""Metrics of `Place.collect`, by name."""


class Place(ABC):
    """Place of one run; by default on this machine, without a cluster."""

    collects: ClassVar[str]
    """Description of the evidence that a run at this place leaves."""
    here: ClassVar[bool] = True
    """True if all processes run on this machine, so that its memory must suffice."""

    java_version: str | None = None
    hadoop_version: str | None = HADOOP_VERSION
    own_settings = ""  # the user's Hadoop settings for an embedded cluster
    storage: Storage
    top = ""  # prefix of every path in the storage
    machine = ALL  # the machines whose noise is measured before the window

    @staticmethod
    @abstractmethod
    def serves(experiment: Runnable, lent: Lent) -> bool:
        """Return True if the experiment runs at this kind of place."""

    @staticmethod
    @abstractmethod
    def planned(experiment: Runnable, lent: Lent) -> tuple[str, Target | None]:
        """Describe the steps of `opened`, and return the target as far as it is known. Starts nothing.
        Raises UsageError if the experiment cannot run at this place."""

    @staticmethod
    @abstractmethod
    def opened(experiment: Runnable, lent: Lent, times: SetupTimes, report: Report) -> AbstractContextManager["Place"]:
        """Open the place; `times` receives the durations of start and stop. At the end of the context all started
        processes stop; a lent cluster stays."""

    @property
    def rm_url(self) -> str | None:
        """URL of the ResourceManager, whose applications may outlive this process; None without one."""
        return None

    def daemon_pids(self) -> dict[str, int]:
        """Return the daemons on this machine by name. Their resource use is sampled, including their children."""
        return {}

    def target(self) -> Target | None:
        """Return the cluster for the scheduler; None for a place without a cluster."""
        return None

    def send(self, packages: Path) -> str:
        """Make a directory of packages available to the job's processes. Return the URI of its archive with the name in
        containers; empty if all processes run on this machine. Raises ClusterError if the storage refused."""
        return ""

    @abstractmethod
    def job_fields(self) -> dict[str, str]:
        """Return the fields of Job that name the storage: fs_uri, webhdfs_url, user."""

    @abstractmethod
    def prepare(self, run_dir: str) -> None:
        """Create the directories that the job writes to, and note the sizes of the daemons' logs. `run_dir` is empty
        for a job without markers of ranks. Raises ClusterError if the storage refused."""

    def local_files(self, directory: str) -> list[Path] | None:
        """Return the files on this machine's disks with the content of a directory of the storage. In HDFS these are
        the blocks, including replicas. Returns None if the blocks are on other machines.
        Raises ClusterError if the storage does not answer."""
        return None

    def abort(self, application_id: str) -> str:
        """End an application after dlobd has ended its driver; return the scheduler's diagnostics before the end."""
        return ""

    @abstractmethod
    def collect(self, window: Window, job: Job | None, bundle: Bundle) -> tuple[list[str], Metrics]:
        """Copy the evidence into the bundle; return a line for each missing source, and metrics. `job` is None for the
        user's own script, whose files are unknown."""


def kind_of(experiment: Runnable, lent: Lent = None) -> type[Place]:
    """Return the kind of place of an experiment. Every valid experiment has a kind of place."""
    kinds: list[type[Place]] = [PLACES.get(row.name) for row in PLACES]
    return next(kind for kind in kinds if kind.serves(experiment, lent))

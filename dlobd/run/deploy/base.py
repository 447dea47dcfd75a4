"""The contract of a place: where a job runs, as far as `dlobd.run.runner` must know.

A row of the registry `places` points to a `PlaceKind`: it says which experiments it serves, what it would start, and
opens a `Place` for one of them. Rows are asked in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Protocol

from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.configuration import ClusterSettings
from dlobd.hadoop.file_system import Storage
from dlobd.job.description import Job
from dlobd.run.schedulers.base import Target
from dlobd.run.submit import Window
from dlobd.schema import Runnable

Progress = Callable[[str], None]

Lent = Any
"""A cluster that the caller has: a running one of a series, an external one, or None."""


class Place(Protocol):
    """Where one run's job runs."""

    java_version: str | None
    hadoop_version: str | None
    own_settings: str  # Hadoop settings that the user gave a cluster of dlobd's; empty: none
    storage: Storage
    top: str  # what every path in the storage begins with
    machine: str  # whose noise is measured before the window

    @property
    def rm_url(self) -> str | None:
        """The ResourceManager, whose applications may outlive this process; None where nothing does."""

    def daemon_pids(self) -> dict[str, int]:
        """The daemons that run on this machine, by their names: what they and those below them use is sampled."""

    def target(self) -> Target | None:
        """What the scheduler must know; None where there is no cluster."""

    def job_fields(self) -> dict[str, str]:
        """Fields of Job that name the storage: fs_uri, webhdfs_url, user."""

    def prepare(self, run_dir: str) -> None:
        """Makes the directories that the job writes to, and notes what was there before it.

        Args:
            run_dir: where ranks leave markers; empty for a job that leaves none.

        Raises:
            ClusterError: the storage refused.
        """

    def local_files(self, directory: str) -> list[Path] | None:
        """The files of this machine's disks that hold what lies in a directory of the storage: of HDFS the blocks, each
        replica. None where other machines hold them.

        Raises:
            ClusterError: the storage does not answer.
        """

    def abort(self, application_id: str) -> str:
        """Ends an application whose driver dlobd ended; returns what the scheduler said of it before, if anything."""

    def collect(self, window: Window, job: Job | None, bundle: Bundle) -> tuple[list[str], dict[str, Any]]:
        """Brings the evidence into the bundle; returns what could not be had, one line each, and metrics.

        Args:
            job: None for the user's own script, whose files are unknown.
        """


class PlaceKind(Protocol):
    """One kind of place."""

    evidence: ClassVar[str]
    """What a run there leaves to be collected, in words."""
    here: ClassVar[bool]
    """Whether all of it runs on this machine, so that its memory must suffice."""

    @staticmethod
    def serves(experiment: Runnable, lent: Lent) -> bool:
        """Whether an experiment runs here."""

    @staticmethod
    def planned(experiment: Runnable, lent: Lent) -> tuple[str, Target | None]:
        """What `opened` would do, in words, and the target as far as it is known before; starts nothing.

        Raises:
            UsageError: the experiment cannot run here.
        """

    @staticmethod
    def opened(
        experiment: Runnable, settings: ClusterSettings, lent: Lent, setup: dict[str, int | None], progress: Progress
    ) -> AbstractContextManager[Place]:
        """The place; what had to be started for it is stopped at the end of the context, what was lent stays.

        Args:
            setup: gets how long that took, in nanoseconds; None for a cluster that ran already.
        """

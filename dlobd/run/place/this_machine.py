"""Place on this machine without a cluster: files in a directory, ranks as plain processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.errors import ClusterError
from dlobd.hadoop.embedded.configuration import user_name
from dlobd.hadoop.file_system import LocalDirectory
from dlobd.job.description import Job
from dlobd.paths import make_writable, native_dir
from dlobd.run.observer import Report
from dlobd.run.place.base import Lent, Metrics, Place
from dlobd.run.run_record import SetupTimes
from dlobd.run.submitted_process import Window
from dlobd.schema import Runnable


class ThisMachine(Place):
    """A `Place` that is a directory in the cache. No daemon runs."""

    collects = "logs, spans, markers"

    @staticmethod
    def serves(experiment: Runnable, lent: Lent) -> bool:
        return experiment.scheduler == "none"

    @staticmethod
    def planned(experiment: Runnable, lent: Lent) -> tuple[str, None]:
        return "no daemon is started", None

    @staticmethod
    @contextmanager
    def opened(experiment: Runnable, lent: Lent, times: SetupTimes, report: Report) -> Iterator["ThisMachine"]:
        yield ThisMachine()

    def __init__(self) -> None:
        """Raise SetupError if the directory cannot be written."""
        directory = native_dir()
        make_writable(directory)
        self.storage = LocalDirectory()
        self.top = str(directory)

    def job_fields(self) -> dict[str, str]:
        return {"fs_uri": "file://", "webhdfs_url": "", "user": user_name()}

    def prepare(self, run_dir: str) -> None:
        try:
            self.storage.make_directory(f"{run_dir}/done")
        except OSError as error:
            raise ClusterError(f"{run_dir} cannot be created: {error}", "check that directory's permissions") from error

    def local_files(self, directory: str) -> list[Path]:
        return [Path(directory) / name for name in sorted(self.storage.sizes(directory))]

    def collect(self, window: Window, job: Job | None, bundle: Bundle) -> tuple[list[str], Metrics]:
        if job is None:
            return [], {}
        names = self.storage.sizes(f"{job.run_dir}/done")
        markers = {name: self.storage.read(f"{job.run_dir}/done/{name}", "marker").decode() for name in names}
        bundle.add_json(markers, files.MARKERS)
        return [], {}

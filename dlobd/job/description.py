"""Description of a submitted job, which the driver reads as JSON and ranks as a pickle, and markers of ranks."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.axes import MODELS
from dlobd.fields import decoded
from dlobd.hadoop.file_system import LocalDirectory, Storage, WebHdfs
from dlobd.hadoop.webhdfs import HdfsError
from dlobd.job import rank_status
from dlobd.job.datasets.tfrecord import Layout
from dlobd.schema import Experiment

STAGED = "_SUCCESS"
"""The last file of a staged data set. It maps the path of each file to the checksum that HDFS should report."""

MODEL_FILE = "model.py"
"""The file of a user's model in a job's `run_dir`."""


def part_name(rank: int) -> str:
    """Return the name of a rank's training file."""
    return f"part-{rank:05d}.tfrecord"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Experiment):
    """A training job: the settings of its experiment, and its files. By default, a path is in the job's storage."""

    library: str  # library of the channel, never auto
    fs_uri: str
    webhdfs_url: str  # empty: the storage is local directories
    user: str
    train_dir: str  # one file per worker
    test_path: str
    run_dir: str
    image_shape: tuple[int, ...]  # image_shape, dtype and classes: layout of a record
    dtype: str
    classes: int
    spans_dir: str  # local path of the driver's spans, if YARN gives the driver no log directory

    @classmethod
    def of(cls, experiment: Experiment, **own: Any) -> Self:
        """Make the job of an experiment; `own` has the values of the fields that only this class has."""
        return cls(**asdict(experiment), **own)

    @property
    def layout(self) -> Layout:
        """Layout of a record of the files."""
        return Layout(self.image_shape, self.dtype, self.classes)

    @property
    def fed_epochs(self) -> int:
        """Number of passes over the training samples in `most_steps` steps; the last pass may be partial."""
        return -(-self.most_steps // self.steps_per_epoch)

    @property
    def may_end_early(self) -> bool:
        """True if the ranks may agree to end before `most_steps`."""
        return self.max_seconds > 0 or self.target_accuracy > 0

    def storage(self) -> Storage:
        """Open a new connection to the storage of the job's files."""
        return WebHdfs(self.webhdfs_url, self.user, self.replication) if self.webhdfs_url else LocalDirectory()

    def build_model(self) -> Any:
        """Build the model in the current strategy scope. Raises UsageError if the user's file does not load."""

        def text() -> str:
            return self.storage().read(f"{self.run_dir}/{MODEL_FILE}", kinds.MODEL_FILE).decode()

        build = MODELS.resolve(self.model, self.model_sha256, text)
        return build(self.image_shape, self.classes, self.seed)

    def to_json(self) -> str:
        """Encode the job as JSON for spark-submit, with `steps` for readers of the bundle."""
        return json.dumps(asdict(self) | {"steps": self.steps}, indent=1)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file that `to_json` encoded. Raises the errors of `from_dict`."""
        return cls.from_dict(json.loads(Path(path).read_text()))

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        """Make the job of a job.json. Raises TypeError if a field is missing or unknown."""
        return decoded(cls, {name: value for name, value in values.items() if name != "steps"})


class Markers:
    """Done and failure markers in the job's storage: they outlive every process, and need no port.

    A message to the driver follows each marker. The driver reads markers too, because a message may be lost."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._directory = f"{job.run_dir}/done"

    def report_done(self, rank: int, result: Mapping[str, object]) -> None:
        """Write the rank's result.

        The driver may end this process as soon as the marker exists. So the marker appears last, by a rename: after
        HDFS has closed the file, up to 0.4 s after the write, and after all spans are on disk."""
        storage, name = self._job.storage(), f"rank-{rank}.json"
        storage.write(f"{self._directory}/.{name}", json.dumps(result).encode(), kinds.DONE_MARKER)
        tracing.flush()
        storage.rename(f"{self._directory}/.{name}", f"{self._directory}/{name}")
        with tracing.span(kinds.TELL_DRIVER):
            rank_status.send({"done": rank})

    def report_failure(self, cause: str) -> None:
        """Write the cause of this rank's failure, in one line. Only the first failure of all ranks is stored."""
        self._report("failed", cause)

    def report_death(self, cause: str) -> None:
        """Write the cause of death of another rank's process, in one line. It overrides failures that ranks report."""
        self._report("died", cause)

    def _report(self, name: str, cause: str) -> None:
        line = " ".join(cause.split())
        try:
            self._job.storage().create(f"{self._directory}/{name}", line.encode())
        except HdfsError:
            pass  # stderr has the cause too
        rank_status.send({name: line})

    def read(self) -> tuple[set[int], str | None]:
        """Return the ranks with a done-marker, and the line of the failure marker, if any."""
        # an empty marker is still being written
        markers = [name for name, size in self._job.storage().sizes(self._directory).items() if size > 0]
        ranks = {int(name.removeprefix("rank-").removesuffix(".json")) for name in markers if name.startswith("rank-")}
        for name in ("died", "failed"):
            if name in markers:
                return ranks, self._job.storage().read(f"{self._directory}/{name}", "failure marker").decode()
        return ranks, None

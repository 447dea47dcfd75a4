"""What a submitted job is told, and how its ranks report back. Plain data: it travels to the driver as JSON and to
the ranks by pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlobd import own_file, tracing
from dlobd import spans as kinds
from dlobd.axes import MODELS
from dlobd.hadoop.file_system import LocalDirectory, Storage, WebHdfs
from dlobd.hadoop.webhdfs import HdfsError
from dlobd.job import notices
from dlobd.job.datasets.tfrecord import Layout

STAGED = "_SUCCESS"
"""The last file of a staged data set: path of each of its files to the checksum that HDFS should have of it."""

MODEL_FILE = "model.py"
"""In a job's `run_dir`: the file of a model of the user's own."""


def part_name(rank: int) -> str:
    """The training file of a rank."""
    return f"part-{rank:05d}.tfrecord"


@dataclass(frozen=True, slots=True)
class Job:
    """One training job. Paths are in its storage unless said otherwise."""

    name: str
    scheduler: str
    deploy_mode: str
    launcher: str
    input: str  # feed or read
    channel: str
    exchange: str
    model: str
    optimiser: str
    loss: str
    workers: int
    epochs: int
    steps: int  # of all epochs
    batch_size: int  # samples per worker and step; a block of the feed
    learning_rate: float
    momentum: float
    weight_decay: float
    schedule: str
    num_epochs_per_decay: float
    learning_rate_decay_factor: float
    warmup_epochs: float
    checkpoint_every_steps: int
    seed: int
    fs_uri: str
    webhdfs_url: str  # empty: the storage is this machine's own directories
    user: str
    replication: int  # of what ranks write to HDFS
    train_dir: str  # one file per worker
    test_path: str
    run_dir: str
    image_shape: tuple[int, ...]  # and, with the next two, the layout of the files' records
    dtype: str
    classes: int
    spans_dir: str  # local; where the driver's spans go when YARN gives it no log directory
    augment: str
    max_steps: int
    max_seconds: int
    evaluate_every_epochs: int
    target_accuracy: float
    device: str
    intra_op_threads: int
    inter_op_threads: int
    model_sha256: str
    library: str  # of the channel, never auto
    exchange_fusion_mb: int
    exchange_servers: int

    @property
    def layout(self) -> Layout:
        """How one record of the files is laid out."""
        return Layout(self.image_shape, self.dtype, self.classes)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one pass over the training samples."""
        return self.steps // self.epochs

    @property
    def most_steps(self) -> int:
        """Steps that are taken unless the ranks agree to end earlier."""
        return min(self.steps, self.max_steps or self.steps)

    @property
    def fed_epochs(self) -> int:
        """Passes over the training samples that so many steps take, the last of them perhaps in part."""
        return -(-self.most_steps // self.steps_per_epoch)

    @property
    def may_end_early(self) -> bool:
        """Whether the ranks may agree to end before that."""
        return self.max_seconds > 0 or self.target_accuracy > 0

    def storage(self) -> Storage:
        """Where its files lie; a new connection."""
        return WebHdfs(self.webhdfs_url, self.user, self.replication) if self.webhdfs_url else LocalDirectory()

    def build_model(self) -> Any:
        """The model, built in the current strategy scope. Raises UsageError for an own file that does not load."""
        own = own_file.named(self.model)
        build = own_file.load(own, self.model_sha256, self._model_text) if own else MODELS.get(self.model)
        return build(self.image_shape, self.classes, self.seed)

    def _model_text(self) -> str:
        return self.storage().read(f"{self.run_dir}/{MODEL_FILE}", kinds.MODEL_FILE).decode()

    def to_json(self) -> str:
        """The form in which it is handed to spark-submit."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def read(cls, path: str | Path) -> Job:
        """Reads what `to_json` wrote. Raises as `from_dict`."""
        return cls.from_dict(json.loads(Path(path).read_text()))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Job:
        """Builds the job of a job.json.

        Raises:
            TypeError: a field is missing, or is not known.
        """
        return cls(**{**values, "image_shape": tuple(values.get("image_shape", ()))})


class Markers:
    """Done and failure markers in the job's storage: they outlive every process, and need no port. Whoever leaves one
    tells the driver, which looks for them only in case that it was not told."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._directory = f"{job.run_dir}/done"

    def report_done(self, rank: int, result: dict[str, Any]) -> None:
        """Leaves the rank's result. Whoever sees it may end this process at once, so it is seen last: when HDFS has
        closed the file, which may take 0.4 s after its bytes are there, and all spans are on disk."""
        storage, name = self._job.storage(), f"rank-{rank}.json"
        storage.write(f"{self._directory}/.{name}", json.dumps(result).encode(), kinds.DONE_MARKER)
        tracing.flush()
        storage.rename(f"{self._directory}/.{name}", f"{self._directory}/{name}")
        with tracing.span(kinds.TELL_DRIVER):
            notices.tell({"done": rank})

    def report_failure(self, cause: str) -> None:
        """Leaves what a rank says of its failure, in one line; the first one written is the one that counts."""
        self._report("failed", cause)

    def report_death(self, cause: str) -> None:
        """Leaves what was seen of a rank that could not speak. It counts more than what its peers say then."""
        self._report("died", cause)

    def _report(self, name: str, cause: str) -> None:
        line = " ".join(cause.split())
        try:
            self._job.storage().create(f"{self._directory}/{name}", line.encode())
        except HdfsError:
            pass  # the cause is on stderr too
        notices.tell({name: line})

    def look(self) -> tuple[set[int], str | None]:
        """The ranks that have left their done-marker, and the failure marker's line, if there is one."""
        # an empty one is still being written
        there = [name for name, size in self._job.storage().sizes(self._directory).items() if size > 0]
        ranks = {int(name.removeprefix("rank-").removesuffix(".json")) for name in there if name.startswith("rank-")}
        for name in ("died", "failed"):
            if name in there:
                return ranks, self._job.storage().read(f"{self._directory}/{name}", "failure marker").decode()
        return ranks, None

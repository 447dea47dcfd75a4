"""What a submitted job is told, and how its ranks report back. Plain data: it travels to the driver as JSON and to
the ranks by pickle."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlobd import webhdfs
from dlobd.datasets.tfrecord import Layout


@dataclass(frozen=True, slots=True)
class Job:
    """One training job. Paths are in HDFS unless said otherwise."""

    name: str
    deploy_mode: str
    launcher: str
    input: str  # feed or read
    model: str
    workers: int
    epochs: int
    steps: int
    batch_size: int  # samples a worker and step; a block of the feed
    learning_rate: float
    checkpoint_every_steps: int
    seed: int
    fs_uri: str
    webhdfs_url: str
    user: str
    train_dir: str  # one file a worker
    test_path: str
    run_dir: str
    image_values: int
    classes: int
    spans_dir: str  # local; where the driver's spans go when YARN gives it no log directory

    @property
    def layout(self) -> Layout:
        """How one record of the files is laid out."""
        return Layout(self.image_values)

    def build_model(self) -> Any:
        """The model, built in the current strategy scope."""
        from dlobd.registry import MODELS

        return MODELS.get(self.model)(self.image_values, self.classes, self.seed)

    def to_json(self) -> str:
        """The form in which it is handed to spark-submit."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def read(cls, path: str | Path) -> Job:
        """Reads what `to_json` wrote."""
        return cls(**json.loads(Path(path).read_text()))


class Markers:
    """Done and failure markers in HDFS: they outlive every process, and need no port of ours."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._directory = f"{job.run_dir}/done"

    def report_done(self, rank: int, result: dict[str, Any]) -> None:
        """Leaves the rank's result."""
        webhdfs.write(
            self._connect(), f"{self._directory}/rank-{rank}.json", json.dumps(result).encode(), "done-marker"
        )

    def report_failure(self, cause: str) -> None:
        """Leaves the cause in one line; the first one written is the one that counts."""
        client = self._connect()
        try:
            client.write(f"{self._directory}/failed", " ".join(cause.split()).encode(), overwrite=False)
        except webhdfs.HdfsError:
            pass  # another rank was first

    def finished(self) -> set[int]:
        """Ranks whose done-marker is complete."""
        return {
            int(name.removeprefix("rank-").removesuffix(".json")) for name in self._list() if name.startswith("rank-")
        }

    def failure(self) -> str | None:
        """The failure marker's line, if there is one."""
        if "failed" not in self._list():
            return None
        with self._connect(timed=False).read(f"{self._directory}/failed") as reader:
            return reader.read().decode() or "a rank failed"

    def _list(self) -> list[str]:
        status = self._connect(timed=False).list(self._directory, status=True)
        # a file being written has length 0 until its first block is reported
        return [name for name, facts in status if facts["length"] > 0]

    def _connect(self, timed: bool = True) -> Any:
        return webhdfs.connect(self._job.webhdfs_url, self._job.user, timed)

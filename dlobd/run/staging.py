"""Writes a data set to HDFS or a local directory as a job reads it: one TFRecord file per worker, of equal size.

Each file is one HDFS block, unless the experiment sets a block size. Existing files are reused, because the name of the
directory contains all parameters of the content.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dlobd.axes import DATASETS
from dlobd.errors import ClusterError
from dlobd.hadoop.failures import failures
from dlobd.hadoop.file_system import LocalDirectory, Storage
from dlobd.hadoop.webhdfs import words
from dlobd.job.datasets.base import dataset_of, files_of, is_users, layout_of
from dlobd.job.datasets.tfrecord import Layout
from dlobd.job.description import STAGED, part_name
from dlobd.job.generation import parts_of, write_checksums, write_part
from dlobd.schema import Experiment

FORMAT = 1
"""Version of the files' format, part of the directory's name."""


@dataclass(frozen=True, slots=True)
class StagedData:
    """Paths and format of a staged data set."""

    train_dir: str
    test_path: str
    layout: Layout
    bytes: int
    reused: bool


def directory(experiment: Experiment) -> str:
    """Return the data set's directory below the top of its storage."""
    e = experiment
    named = _own_name(e) if is_users(e.dataset) else e.dataset
    name = f"{named}-v{FORMAT}-w{e.workers}-n{e.train_samples}-t{e.test_samples}-s{e.seed}-r{e.replication}"
    if e.dataset == "synthetic":
        name += f"-{e.synthetic_shape}-c{e.synthetic_classes}"
    if e.block_size_mb:
        name += f"-b{e.block_size_mb}"
    return f"/dlobd/data/{name}"


def _own_name(experiment: Experiment) -> str:
    """Return a name for a user's data set, with a hash of the parameters that determine its content.

    Its files, which may be large, are identified by size and time.
    """
    dataset = dataset_of(experiment)
    files = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files_of(dataset) if path.is_file()]
    package = "" if experiment.dataset_sha256 else DATASETS.row(experiment.dataset).package
    facts = (experiment.dataset, experiment.dataset_sha256, package, files, str(layout_of(dataset)))
    plain = re.sub(r"[^A-Za-z0-9]+", "-", dataset.name).strip("-")
    return f"own-{plain}-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]}"


def stage(
    experiment: Experiment,
    storage: Storage,
    top: str,
    progress: Callable[[str], None],
    make: Callable[[str], None] | None = None,
) -> StagedData:
    """Write the training and test files below `top`, which is empty for the embedded HDFS, unless they exist. `make`
    writes all files below a directory; if it is None, this process writes them.

    Raises SetupError if a data file is missing or damaged, ClusterError if the storage refused or has damaged files.
    """
    dataset = dataset_of(experiment)
    layout = layout_of(dataset)
    base = top + directory(experiment)
    try:
        reused = storage.exists(f"{base}/{STAGED}")
        if not reused:
            make(base) if make else _write(experiment, storage, base, progress)
        sizes = storage.sizes(f"{base}/train")
    except failures() as error:
        where = "This machine's disk" if isinstance(storage, LocalDirectory) else "HDFS"
        remedy = "check `dlobd cluster status`" if not top else f"check the free space and your permissions in {top}"
        raise ClusterError(f"{where} refused to store the data set: {words(error)}", remedy) from error
    local = isinstance(storage, LocalDirectory)
    ours = local or not top  # `dlobd clean` removes it
    remove = "`dlobd clean --yes`" if ours else f"`hdfs dfs -rm -r {base}`"
    _check(sizes, experiment, layout.record_bytes, f"{base}/train", local, remove)
    return StagedData(f"{base}/train", f"{base}/test.tfrecord", layout, sum(sizes.values()), reused)


def _write(experiment: Experiment, storage: Storage, base: str, progress: Callable[[str], None]) -> None:
    """Write all files of a data set. The last file marks the data set as complete."""
    checksums = {}
    for path, part in parts_of(experiment, base).items():
        progress(f"{path} ({part.bytes / 1e6:.1f} MB)")
        checksums[path] = write_part(part, storage, path)
    write_checksums(storage, base, checksums)


def _check(
    sizes: Mapping[str, int], experiment: Experiment, record_bytes: int, directory: str, local: bool, remove: str
) -> None:
    """Refuse files of unequal size: in a collective, other ranks would wait for the rank with the shortest file."""
    samples = experiment.train_samples // experiment.workers
    wanted = {part_name(i): samples * record_bytes for i in range(experiment.workers)}
    for name in sorted(sizes.keys() | wanted.keys()):
        if sizes.get(name) != wanted.get(name):
            holds = f"holds {sizes[name] / record_bytes:g} records" if name in sizes else "is missing"
            expected = f"{samples if name in wanted else 'none'} expected"
            raise ClusterError(
                f"The data set{'' if local else ' in HDFS'} is damaged: {directory}/{name} {holds}, {expected}.",
                f"remove it with {remove}; the next run writes it again",
            )

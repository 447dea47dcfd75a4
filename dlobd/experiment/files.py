"""Reads experiment files: TOML -> Experiment. Keys, types, ranges and names are checked before a run starts.

The keys of a file are the fields of `dlobd.schema.Experiment`. `extends = "NAME"` takes missing keys from a built-in
experiment. The name defaults to the file's name.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from dlobd.axes import DATASETS, MODELS
from dlobd.errors import DlobdError, UsageError
from dlobd.experiment import channels, settings, spark_conf, ways
from dlobd.experiment.settings import SETTINGS, Source, Value
from dlobd.fields import decoded
from dlobd.job.datasets.base import dataset_of, is_users, layout_of
from dlobd.paths import PACKAGE
from dlobd.registry import LARGEST_MODEL_MB, unknown
from dlobd.schema import DEFAULTS, Experiment, OwnJob, Runnable
from dlobd.user_file import MemberRef, sha256_of

_HASH_OF = {"model": "model_sha256", "dataset": "dataset_sha256"}
"""Setting that may name the user's own file -> setting with the sha256 of the file.

A new experiment reads and hashes the file. A stored experiment has the sha256; only a run needs the file, to compare.
"""

_WITH = {"train_samples": ("workers", "batch_size")}
"""Setting -> settings that a combination with it involves."""

_ADDED = ("queue", "spark_conf", "record_every_steps")
"""Settings that count in a key only if they are set: they were added later, and earlier runs keep their keys."""

HEAP_MB = 512
LAUNCHER_MB = 1280
"""Memory for launchers without a row in `ways.PREFERRED`."""

BATCH = 50
BATCHES_AHEAD = 10
"""Batches that tf.data prefetches, decodes and hands over; see `dlobd.job.training.inputs`."""

STEP_MB = 128
"""Increment of the embedded cluster's containers: yarn.scheduler.minimum-allocation-mb of yarn/base."""

Note = Callable[[str], None]
"""Function that receives a line for each setting that dlobd implied or derived."""


def built_in(kind: str = "experiment") -> dict[str, Path]:
    """Return the built-in files by name; `kind` is experiment or sweep."""
    folder = PACKAGE / "experiment" / "shipped" / ("sweeps" if kind == "sweep" else "")
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def titles(kind: str) -> list[tuple[str, str]]:
    """Return (name, title) of the built-in files. The title is the comment in the first line."""
    return [(name, path.read_text().partition("\n")[0].lstrip("# ")) for name, path in built_in(kind).items()]


def load(
    name_or_path: str | Path,
    overrides: Sequence[str] = (),
    note: Note = lambda line: None,
    options: spark_conf.Options = spark_conf.NO_OPTIONS,
    admit: Callable[[Experiment], None] = lambda experiment: None,
) -> Experiment:
    """Read a built-in experiment or a TOML file, and apply `key=value` overrides; the last override wins. `admit` may
    refuse an experiment before the error of a combination is raised. Raises UsageError with the line if the file is
    missing or not TOML, or a key, type, range or name is wrong."""
    path = locate(str(name_or_path), "experiment")
    values, sources = read(path)
    for override in overrides:
        key, text, source = settings.split(override)
        values[key], sources[key] = settings.parse(key, text, source), source
    options.apply(values, sources)
    values.setdefault("name", path.stem)
    return build(values, sources, Source(str(path)), note, admit=admit)


def from_dict(values: Mapping[str, object], label: str = "configuration") -> Experiment:
    """Build the experiment of a stored `configuration`. Raises UsageError if this version cannot run it. The user's own
    files, and packages with models or data sets, may be missing: only a run needs them."""
    source = Source(label)
    return build(values, dict.fromkeys(values, source), source, stored=True)


def key(experiment: Runnable) -> str:
    """Return a short hash of all fields; it is equal for equal fields. Optional fields of an own job, and `_ADDED`,
    count only if they are set: they were added after the others, and earlier runs keep their keys."""
    own = isinstance(experiment, OwnJob)
    defaults = {field.name: field.default for field in dataclasses.fields(experiment) if own or field.name in _ADDED}
    values = dataclasses.asdict(experiment)
    values = {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def locate(name_or_path: str, kind: str) -> Path:
    """Return the path of a built-in file or of the user's own file. Raises UsageError if there is no such file."""
    files = built_in(kind)
    if name_or_path in files:
        return files[name_or_path]
    path = Path(name_or_path)
    if path.is_file():
        return path
    if path.suffix == ".toml" or "/" in name_or_path:
        why = "is a directory" if path.is_dir() else "does not exist"
        raise UsageError(f"{kind} file {name_or_path} {why}.", f"dlobd list {kind}s")
    raise UsageError(unknown(kind, name_or_path, files), f"dlobd list {kind}s")


def read(
    path: Path, seen: tuple[Path, ...] = (), kind: str = "experiment"
) -> tuple[dict[str, object], dict[str, Source]]:
    """Read the unchecked values of a file and of the experiment that it extends, with their sources. Raises UsageError
    if a file cannot be read, is not TOML, or extends an unknown experiment."""
    own, source = settings.read_toml(path, kind)
    base = own.pop("extends", None)
    if base is None:
        return own, dict.fromkeys(own, source)
    files = built_in()
    if not isinstance(base, str) or base not in files:
        raise UsageError(f"{source.at('extends')}: extends: {unknown('experiment', str(base), files)}")
    if files[base] in seen or files[base] == path:
        raise UsageError(f"{source.at('extends')}: {base} extends itself.")
    values, sources = read(files[base], (*seen, path))
    values.pop("name", None)
    return values | own, sources | dict.fromkeys(own, source)


def build(
    values: Mapping[str, object],
    sources: Mapping[str, Source],
    whole: Source,
    note: Note = lambda line: None,
    stored: bool = False,
    admit: Callable[[Experiment], None] = lambda experiment: None,
) -> Experiment:
    """Build an experiment; check its values and their combination. `whole` is the source of values not in `sources`."""
    checked = {
        name: settings.check(name, value, sources.get(name, whole), stored)
        for name, value in {**DEFAULTS, **values}.items()
    }
    if not stored:
        checked |= _digests(checked, values, lambda name: sources.get(name, whole).at(name))
    require(checked, SETTINGS, whole)
    defaults = set(map(str, built_in().values()))
    given_at = {name: source.at(name) for name, source in sources.items() if source.label not in defaults}
    changed, lines = ways.implied(checked, given_at)
    for line in lines:
        note(line)
    experiment = decoded(Experiment, checked | changed)
    for name, why, remedy in _problems(experiment, stored):
        with contextlib.suppress(ValueError):  # an invalid data set
            admit(decoded(Experiment, dataclasses.asdict(experiment) | derived_memory(experiment)))
        # the user may have changed another setting of the combination
        options = [one for one in (name, *_WITH.get(name, ())) if one in sources and sources[one].option]
        at = options[0] if options else name
        raise UsageError(f"{sources.get(at, whole).at(at)}: {why}", remedy)
    if stored or not (sizes := derived_memory(experiment)):
        return experiment
    note(f"derived: {', '.join(f'{name}={value}' for name, value in sizes.items())}")
    return decoded(Experiment, dataclasses.asdict(experiment) | sizes)


def require(values: Mapping[str, object], needed: Iterable[str], whole: Source) -> None:
    """Raise UsageError if settings are missing."""
    if missing := [name for name in needed if name not in values]:
        raise UsageError(f"{whole.label}: missing: {', '.join(missing)}.", 'add them, or extends = "softmax-mnist"')


def batches(experiment: Experiment) -> str:
    """Format the batch size of a step, per worker and in total."""
    return f"batch {experiment.batch_size} per worker, {experiment.workers * experiment.batch_size} in total"


def _digests(values: Mapping[str, Value], given: Mapping[str, object], at: Callable[[str], str]) -> dict[str, str]:
    hashes = {}
    for field, sha256 in _HASH_OF.items():
        if sha256 in given:
            raise UsageError(f"{at(sha256)}: {sha256} is computed from the file of {field}.", "omit it")
        if (ref := MemberRef(values.get(field, ""))).path:
            try:
                hashes[sha256] = sha256_of(ref.read())
            except DlobdError as error:
                raise UsageError(f"{at(field)}: {field} {error.what}", error.remedy) from None
    return hashes


def derived_memory(experiment: Experiment) -> dict[str, int]:
    """Return the memory settings that are 0, with derived values. Raises ValueError for an invalid data set.

    heap        for Spark itself, which streams records block by block
    overhead    launcher + model x max(1, batch / 50) + input, rounded up to YARN's increment
        launcher    Python workers and a trainer with SoftMax regression
        model       additional memory of another model, with batches of up to 50
        input       feed: a rank's partition, twice for TensorFlowOnSpark (in its queue and in transit); the barrier
                    launcher keeps it for later epochs. read: the batches that tf.data prefetches, as float32

    Launcher and model are upper bounds; the runs of docs/results.md did not exceed them.
    """
    e = experiment
    if e.executor_memory_mb and e.executor_overhead_mb:
        return {}
    layout = layout_of(dataset_of(e, available=False))
    launcher_mb = ways.PREFERRED.get(e.launcher, {}).get("executor_overhead_mb", LAUNCHER_MB)
    model_mb = LARGEST_MODEL_MB if e.model.path else MODELS.row(e.model).memory_mb
    if e.input == "read":
        input_bytes = BATCHES_AHEAD * e.batch_size * math.prod(layout.shape) * 4.0
    else:
        input_bytes = e.train_samples / e.workers * layout.record_bytes * (1 if e.launcher == "barrier" else 2)
    overhead_mb = launcher_mb + model_mb * max(1, e.batch_size / BATCH) + input_bytes / 2**20
    sizes = {"executor_memory_mb": HEAP_MB, "executor_overhead_mb": math.ceil(overhead_mb / STEP_MB) * STEP_MB}
    return {name: size for name, size in sizes.items() if not getattr(e, name)}


def _problems(experiment: Experiment, stored: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (field, problem, remedy) for each setting that is impossible or has no effect with the other settings."""
    global_batch = experiment.workers * experiment.batch_size
    if experiment.train_samples < global_batch:
        why = f"{batches(experiment)}, exceeds train_samples {experiment.train_samples}."
        yield "train_samples", why, f"--set train_samples={global_batch}, or lower batch_size or workers"
    if rest := experiment.train_samples % global_batch:
        why = (
            f"train_samples {experiment.train_samples} is not a multiple of workers x batch_size = {global_batch}: "
            "all ranks need the same number of full batches."
        )
        yield "train_samples", why, f"--set train_samples={experiment.train_samples - rest}"
    for field, sha256 in _HASH_OF.items():
        ref, digest = getattr(experiment, field), getattr(experiment, sha256)
        if ref.path and not re.fullmatch("[0-9a-f]{64}", digest):
            yield sha256, f"{field} {ref} needs the sha256 of its file, not {digest!r}.", ""
        if digest and not ref.path:
            yield sha256, f"{sha256} needs a file, but {field} {ref} is not a file.", ""
    if not (stored and is_users(experiment.dataset)):
        yield from _sizes(experiment)
    yield from _training(experiment)
    yield from channels.wrong(experiment)
    yield from spark_conf.wrong(experiment)


def _training(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """Yield (field, problem, remedy) for each training setting that is impossible or has no effect."""
    if experiment.optimiser == "momentum" and not experiment.momentum:
        yield "optimiser", "optimiser momentum with momentum 0 is sgd.", 'momentum = 0.9, or optimiser = "sgd"'
    if experiment.optimiser == "sgd" and experiment.momentum:
        why = f"momentum {experiment.momentum:g} has no effect with optimiser sgd."
        yield "momentum", why, 'momentum = 0, or optimiser = "momentum"'
    for name in ("num_epochs_per_decay", "learning_rate_decay_factor"):
        value = getattr(experiment, name)
        if experiment.schedule == "step" and not value:
            yield "schedule", f"schedule step needs {name} above 0.", f"set {name}"
        if experiment.schedule != "step" and value:
            why = f"{name} {value:g} has no effect with schedule {experiment.schedule}."
            yield name, why, f'{name} = 0, or schedule = "step"'
    if experiment.warmup_epochs and experiment.warmup_epochs >= experiment.epochs:
        why = f"warmup_epochs {experiment.warmup_epochs:g} must be less than epochs, which is {experiment.epochs}."
        yield "warmup_epochs", why, "lower warmup_epochs, or raise epochs"
    if experiment.target_accuracy and not experiment.evaluate_every_epochs:
        why = f"target_accuracy {experiment.target_accuracy:g} needs evaluate_every_epochs above 0, to evaluate it."
        yield "target_accuracy", why, "evaluate_every_epochs = 1, or target_accuracy = 0"
    if experiment.evaluate_every_epochs > experiment.epochs:
        every = experiment.evaluate_every_epochs
        why = f"evaluate_every_epochs {every} exceeds epochs, which is {experiment.epochs}."
        yield "evaluate_every_epochs", why, f"evaluate_every_epochs = {experiment.epochs}, or raise epochs"
    if experiment.device == "gpu" and experiment.scheduler == "local-cluster":
        yield "device", "device gpu needs a scheduler that allocates GPUs; local-cluster does not.", 'device = "cpu"'
    if experiment.max_seconds >= experiment.timeout_s:
        why = f"max_seconds {experiment.max_seconds} must be less than timeout_s, which is {experiment.timeout_s}."
        yield "max_seconds", why, "lower max_seconds, or raise timeout_s"


def _sizes(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """Yield (field, problem, remedy) for each setting that does not match the data set's size or shape."""
    try:
        dataset = dataset_of(experiment, available=False)
    except ValueError as error:
        yield "synthetic_shape", str(error), ""
        return
    own = is_users(experiment.dataset)
    for name, size in (("train_samples", dataset.train_size), ("test_samples", dataset.test_size)):
        if (requested := getattr(experiment, name)) > size:
            has = f"{name} {requested} exceeds the {size} samples of {experiment.dataset}"
            row = None if own else DATASETS.row(experiment.dataset)
            if row and row.part_of:
                yield name, f"{has}: {row.title}.", f"`dlobd data fetch {row.part_of}`, then dataset={row.part_of}"
            else:
                yield name, f"{has}.", ""
    if experiment.augment != "none" and len(dataset.shape) not in (2, 3):
        shape = "x".join(map(str, dataset.shape))
        why = f"augment {experiment.augment} needs images with height and width, but their shape is {shape}."
        yield "augment", why, ""

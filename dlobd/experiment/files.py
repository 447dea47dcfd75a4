"""Experiment files: TOML -> Experiment. Keys, types, ranges and names are checked before a run starts.

The keys of a file are the fields of `dlobd.schema.Experiment`; `dlobd.schema.DEFAULTS` lists the optional ones.
`extends = "NAME"` takes missing keys from a built-in experiment. The name defaults to the file's name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from dlobd.axes import DATASETS, REGISTRIES
from dlobd.channel import Channel
from dlobd.errors import UsageError
from dlobd.experiment import channels, memory, own_files, training, ways
from dlobd.job.datasets import user as user_datasets
from dlobd.job.datasets.base import declared
from dlobd.paths import PACKAGE
from dlobd.registry import unknown
from dlobd.schema import DEFAULTS, Experiment, Runnable

FIELDS: dict[str, type] = get_type_hints(Experiment)
"""Field -> type: str, int or float."""

AXES = {
    "scheduler": "schedulers",
    "deploy_mode": "deploy-modes",
    "launcher": "launchers",
    "input": "inputs",
    "channel": "channels",
    "exchange": "exchanges",
    "model": "models",
    "dataset": "datasets",
    "optimiser": "optimisers",
    "loss": "losses",
    "schedule": "schedules",
    "augment": "augmentations",
    "device": "devices",
    "page_cache": "page-caches",
    "channel_library": "libraries",
    "planes": "planes",
}
"""Field -> registry of its names."""

RANGES: dict[str, tuple[float, float]] = {
    "workers": (1, 1000),
    "epochs": (1, 10_000),
    "batch_size": (1, 1_000_000),
    "learning_rate": (1e-12, 1e6),
    "momentum": (0, 1),
    "weight_decay": (0, 1),
    "num_epochs_per_decay": (0, 10_000),
    "learning_rate_decay_factor": (0, 1),
    "warmup_epochs": (0, 10_000),
    "train_samples": (1, 10**9),
    "test_samples": (1, 10**9),
    "checkpoint_every_steps": (1, 10**9),
    "min_accuracy": (0, 1),
    "seed": (0, 2**31 - 1),
    "replication": (1, 512),  # HDFS's own maximum
    "executor_memory_mb": (450, 10**6),  # Spark refuses a heap below 1.5 x 300 MB
    "executor_overhead_mb": (0, 10**6),
    "timeout_s": (10, 7 * 24 * 3600),
    "accept_timeout_s": (5, 7 * 24 * 3600),
    "synthetic_classes": (1, 1_000_000),
    "block_size_mb": (0, 1 << 20),
    "max_steps": (0, 10**9),
    "max_seconds": (0, 7 * 24 * 3600),
    "evaluate_every_epochs": (0, 10_000),
    "target_accuracy": (0, 1),
    "intra_op_threads": (0, 1024),
    "inter_op_threads": (0, 1024),
    "executor_cores": (1, 1024),
    "exchange_fusion_mb": (1, 1024),
    "exchange_servers": (1, 1000),
}

_TYPE_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "a boolean", list: "a list"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Source:
    """The place of a value, for error messages."""

    label: str
    text: str = ""

    def at(self, key: str) -> str:
        """Return `label:line`; only the label if the line of `key` is unknown."""
        for number, line in enumerate(self.text.splitlines(), 1):
            if re.match(rf"\s*\[*\s*[\"']?{re.escape(key)}[\"']?\s*[=\].]", line):
                return f"{self.label}:{number}"
        return self.label


def experiments() -> list[tuple[str, str]]:
    """Return (name, title) of the built-in experiments."""
    return titles(_shipped_files())


def titles(paths: Sequence[Path]) -> list[tuple[str, str]]:
    """Return (name, title) of files. The title is the comment in the first line."""
    return [(path.stem, path.read_text().partition("\n")[0].lstrip("# ")) for path in paths]


def load(
    name_or_path: str | Path, overrides: Sequence[str] = (), note: Callable[[str], None] = lambda line: None
) -> Experiment:
    """Read a built-in experiment or a TOML file, and apply `key=value` overrides; the last override wins.

    Args:
        note: called with a line for each choice of the user that changes other settings of a built-in experiment.

    Raises:
        UsageError: the file is missing or not TOML, or a key, type, range or name is wrong; the message has file and
            line.
    """
    path = locate(str(name_or_path), _shipped_files(), "experiment")
    values, sources = read(path)
    for override in overrides:
        key, sign, text = override.partition("=")
        # channel.library is the key channel_library: a file could not have both `channel` and a table of that name
        key, source = key.strip().replace(".", "_"), Source(f"--set {override}")
        if not sign:
            raise UsageError(f"{source.label}: expected key=value.", f"--set {key}=VALUE")
        values[key], sources[key] = _parse(key, text.strip(), source), source
    values.setdefault("name", path.stem)
    return build(values, sources, Source(str(path)), note)


def parse_value(name: str, text: str, label: str) -> Any:
    """Parse and check a value of the command line.

    Raises:
        UsageError: the value is not valid.
    """
    source = Source(label)
    return check_value(name, _parse(name, text, source), source)


def from_dict(values: Mapping[str, Any], label: str = "configuration") -> Experiment:
    """Build the experiment of a stored `configuration`, the result of `dataclasses.asdict`.

    The user's own files, and packages with models or data sets, may be missing: a run searches for them.

    Raises:
        UsageError: this version cannot run it.
    """
    source = Source(label)
    return build(dict(values), dict.fromkeys(values, source), source, stored=True)


def key(experiment: Runnable) -> str:
    """Return a short hash of all fields: equal fields, equal key."""
    text = json.dumps(dataclasses.asdict(experiment), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def steps_per_epoch(experiment: Experiment) -> int:
    """Return the steps of a pass over the training samples; all workers take a step together."""
    return experiment.train_samples // (experiment.workers * experiment.batch_size)


def steps(experiment: Experiment) -> int:
    """Return the steps of all epochs."""
    return experiment.epochs * steps_per_epoch(experiment)


def most_steps(experiment: Experiment) -> int:
    """Return the steps of a run that ends neither by time nor by accuracy."""
    return min(steps(experiment), experiment.max_steps or steps(experiment))


def _shipped_files() -> list[Path]:
    return sorted((PACKAGE / "experiment" / "shipped").glob("*.toml"))


def locate(name_or_path: str, shipped: Sequence[Path], kind: str) -> Path:
    """Return the path of a built-in file or of the user's own file.

    Raises:
        UsageError: there is no such file.
    """
    files = {path.stem: path for path in shipped}
    if name_or_path in files:
        return files[name_or_path]
    path = Path(name_or_path)
    if path.is_file():
        return path
    if path.suffix == ".toml" or "/" in name_or_path:
        why = "is a directory" if path.is_dir() else "does not exist"
        raise UsageError(f"{kind} file {name_or_path} {why}.", f"dlobd list {kind}s")
    raise UsageError(unknown(kind, name_or_path, files), f"dlobd list {kind}s")


def read(path: Path, seen: tuple[Path, ...] = (), kind: str = "experiment") -> tuple[dict[str, Any], dict[str, Source]]:
    """Read the unchecked values of a file and of the experiment that it extends, with their sources.

    Raises:
        UsageError: a file cannot be read, is not TOML, or extends an unknown experiment.
    """
    try:
        source = Source(str(path), path.read_text(encoding="utf-8"))
        own = tomllib.loads(source.text)
    except OSError as error:
        raise UsageError(f"{kind} file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{kind} file {path} is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.", "write lines of the form key = value") from None
    base = own.pop("extends", None)
    if base is None:
        return own, dict.fromkeys(own, source)
    files = {file.stem: file for file in _shipped_files()}
    if not isinstance(base, str) or base not in files:
        raise UsageError(f"{source.at('extends')}: extends: {unknown('experiment', str(base), files)}")
    if files[base] in seen or files[base] == path:
        raise UsageError(f"{source.at('extends')}: {base} extends itself.")
    values, sources = read(files[base], (*seen, path))
    values.pop("name", None)
    return values | own, sources | dict.fromkeys(own, source)


def _parse(name: str, text: str, source: Source) -> str | int | float:
    """Convert a value of the command line to the type of its field."""
    if name not in FIELDS:
        raise UsageError(f"{source.label}: {unknown('key', name, FIELDS)}")
    wanted = FIELDS[name]
    try:
        # float() accepts "nan" and "inf"; the range check refuses them
        return text if wanted is str else int(text) if wanted is int else float(text)
    except ValueError:
        raise UsageError(f"{source.label}: {name} must be {_TYPE_NAMES[wanted]}, not {text!r}.") from None


def build(
    values: dict[str, Any],
    sources: dict[str, Source],
    whole: Source,
    note: Callable[[str], None] = lambda line: None,
    stored: bool = False,
) -> Experiment:
    """Build an experiment; checks its values and their combination. See `load`.

    Args:
        whole: source of values without an own source.

    Raises:
        UsageError: a key, type, range, name or combination is wrong; the message has the place.
    """
    given = {**DEFAULTS, **values}
    checked: dict[str, Any] = {
        name: check_value(name, value, sources.get(name, whole), stored) for name, value in given.items()
    }
    if not stored:
        checked |= own_files.digests(checked, values.keys(), lambda name: sources.get(name, whole).at(name))
    if missing := [name for name in FIELDS if name not in checked]:
        raise UsageError(f"{whole.label}: missing: {', '.join(missing)}.", 'add them, or extends = "softmax-mnist"')
    defaults = set(map(str, _shipped_files()))
    given_at = {name: source.at(name) for name, source in sources.items() if source.label not in defaults}
    changed, lines = ways.implied(checked, given_at)
    for line in lines:
        note(line)
    experiment = Experiment(**checked | changed)
    _check_together(experiment, sources, whole, stored)
    if stored or not (sizes := memory.derived(experiment)):
        return experiment
    note(f"derived: {', '.join(f'{name}={value}' for name, value in sizes.items())}")
    return dataclasses.replace(experiment, **sizes)  # type: ignore[arg-type]


def check_value(name: str, value: Any, source: Source, stored: bool = False) -> Any:
    """Check key, type, range and registry of a value; return it.

    A stored model or data set may belong to a package that is not installed.

    Raises:
        UsageError: the value is not valid.
    """
    where = source.at(name)
    if isinstance(value, dict):
        remedy = "dlobd sweep FILE" if name == "axes" else "put its keys at the top level"
        raise UsageError(f"{where}: unknown table [{name}]: an experiment has no tables.", remedy)
    if name not in FIELDS:
        raise UsageError(f"{where}: {unknown('key', name, FIELDS)}")
    wanted = FIELDS[name]
    if wanted is float and _is(value, int):
        value = float(value)
    if not _is(value, wanted):
        got = _TYPE_NAMES.get(type(value), f"a {type(value).__name__}")
        raise UsageError(f"{where}: {name} must be {_TYPE_NAMES[wanted]}, not {got} ({value!r}).")
    if name == "name" and not _NAME.fullmatch(value):
        raise UsageError(
            f"{where}: name {value!r} may contain only letters, digits, '.', '_' and '-': it names a directory."
        )
    if own_files.names_file(name, value) or (stored and name in own_files.SHA256):
        return value
    if name in AXES:
        _check_member(name, _transport(value, where) if name == "channel" else value, where)
    if name in RANGES:
        low, high = RANGES[name]
        if not (math.isfinite(value) and low <= value <= high) and not (name in memory.KEYS and value == 0):
            raise UsageError(f"{where}: {name} must be between {_plain(low)} and {_plain(high)}, not {value}.")
    return value


def _check_member(name: str, value: str, where: str) -> None:
    """Check that a value is a member of the field's axis that jobs can use."""
    registry = REGISTRIES[AXES[name]]
    if value not in registry.names():
        raise UsageError(
            f"{where}: {unknown(registry.singular, value, registry.names())}", f"dlobd list {registry.kind}"
        )
    if why := registry.row(value).unavailable:
        raise UsageError(f"{where}: {name} {value} cannot be used by a job: {why}.", f"dlobd list {registry.kind}")


def _transport(channel: str, where: str) -> str:
    """Return the transport of TRANSPORT[@DEVICE]. The host checks the device later."""
    try:
        return Channel.parse(channel).transport
    except ValueError as error:
        raise UsageError(f"{where}: {error}.", "dlobd list channels") from None


def _plain(number: float) -> str:
    # `:g` rounds to six digits
    return str(int(number)) if number == int(number) else str(number)


def _is(value: Any, kind: type) -> bool:
    # isinstance() accepts a boolean as an int
    return type(value) is kind


def _check_together(experiment: Experiment, sources: dict[str, Source], whole: Source, stored: bool) -> None:
    """Check combinations of fields."""

    def refuse(name: str, why: str, remedy: str = "") -> UsageError:
        return UsageError(f"{sources.get(name, whole).at(name)}: {why}", remedy)

    global_batch = experiment.workers * experiment.batch_size
    if experiment.train_samples < global_batch:
        raise refuse(
            "train_samples",
            f"{training.batches(experiment)}, exceeds the {experiment.train_samples} training samples.",
            f"lower batch_size or workers, or train_samples = {global_batch}",
        )
    if rest := experiment.train_samples % global_batch:
        raise refuse(
            "train_samples",
            f"train_samples {experiment.train_samples} is not a multiple of workers x batch_size = {global_batch}: "
            "all ranks need the same number of full batches.",
            f"for example train_samples = {experiment.train_samples - rest}",
        )
    for name, why in own_files.contradictions(dataclasses.asdict(experiment)):
        raise refuse(name, why)
    if not (stored and user_datasets.is_users(experiment.dataset)):
        for name, why, remedy in _sizes(experiment):
            raise refuse(name, why, remedy)
    for name, why, remedy in (*training.wrong(experiment), *channels.wrong(experiment)):
        raise refuse(name, why, remedy)


def _sizes(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """Yield (field, problem, remedy) of sizes and shapes that the data set does not have."""
    try:
        dataset = declared(experiment)
    except ValueError as error:
        yield "synthetic_shape", str(error), ""
        return
    own = user_datasets.is_users(experiment.dataset)
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
        why = f"augment {experiment.augment} needs images with height and width, not of shape {shape}."
        yield "augment", why, ""

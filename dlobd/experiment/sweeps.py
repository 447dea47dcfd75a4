"""Reads sweep files: TOML -> checked experiments for all combinations of the axes' values.

A sweep file is an experiment file with tables: `[axes]` lists the values of each axis, `[sweep]` has the fields of
`Options`, and `[[exclude]]` tables list combinations to omit. The default name of the sweep is the file's name; all its
experiments have the name of the sweep.
"""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path

from dlobd.errors import UsageError
from dlobd.experiment import files, spark_conf
from dlobd.experiment.settings import AXES, SETTINGS, Source, Value, check
from dlobd.registry import unknown
from dlobd.schema import Experiment

SCALINGS = ("weak", "strong")

MAX_POINTS = 1000

Choice = Mapping[str, Value]
"""Values by axis or setting."""


@dataclass(frozen=True, slots=True)
class Options:
    """Keys of `[sweep]`.

    scaling: `weak` keeps `batch_size`, the batch per worker, for all `workers`; `strong` keeps the global batch, the
        product of workers and batch_size outside of `[axes]`. Both keep `train_samples`.
    fit_train_samples: True to lower `train_samples` to the largest multiple of the global batches of all points.
    skip_impossible: True to skip invalid combinations with a note; False to refuse the sweep.
    """

    scaling: str = "weak"
    fit_train_samples: bool = False
    skip_impossible: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """Content of a sweep file. `points` are experiments by label; `impossible` are error messages by label."""

    axes: tuple[str, ...]
    scaling: str
    points: Mapping[str, Experiment]
    impossible: Mapping[str, str]
    excluded: tuple[str, ...]
    skip_impossible: bool


def load(
    name_or_path: str | Path, note: files.Note = lambda line: None, spark: spark_conf.Options = spark_conf.NO_OPTIONS
) -> Sweep:
    """Read a built-in sweep or a TOML file. Invalid combinations are in `impossible`. Raises UsageError if the file, a
    key, an axis or a setting is wrong."""
    path = files.locate(str(name_or_path), "sweep")
    values, sources = files.read(path, kind="sweep")
    whole = Source(str(path), path.read_text(encoding="utf-8"))
    axes = _axes(values.pop("axes", None), whole)
    options = _options(values.pop("sweep", {}), axes, whole)
    excludes = _excludes(values.pop("exclude", []), axes, whole)
    spark.apply(values, sources)
    for name in axes:
        if name in sources and sources[name].option:
            raise UsageError(f"{sources[name].label}: {name} is an axis of the sweep.", "remove the option or the axis")
    values.setdefault("name", path.stem)
    base = {name: check(name, value, sources.get(name, whole)) for name, value in values.items()}
    # strong scaling needs the number of workers outside of [axes] too, for the global batch
    given = axes.keys() - {"workers"} if options.scaling == "strong" else axes.keys()
    if twice := [name for name in axes if sources.get(name) == whole and name in given]:
        raise UsageError(f"{whole.at(twice[0])}: {twice[0]} is both a key and an axis.", "remove the key or the axis")
    files.require(base, [name for name, setting in SETTINGS.items() if setting.required and name not in given], whole)
    chosen = [dict(zip(axes, combination, strict=True)) for combination in product(*axes.values())]
    varying = tuple(name for name, levels in axes.items() if len(levels) > 1)
    labels = {" ".join(f"{name}={choice[name]}" for name in varying) or "point": choice for choice in chosen}
    excluded = tuple(label for label, choice in labels.items() if any(e.items() <= choice.items() for e in excludes))
    wanted = {label: choice for label, choice in labels.items() if label not in excluded}
    sources |= dict.fromkeys(axes, whole)
    if not wanted:
        raise UsageError(f"{whole.at('exclude')}: every combination is excluded.", "remove an exclude")
    impossible: dict[str, str] = {}
    settings: dict[str, dict[str, Value]] = {}
    for label, choice in wanted.items():
        try:
            settings[label] = _values(base, choice, options.scaling, whole)
        except UsageError as error:
            impossible[label] = error.line
    if options.fit_train_samples:
        samples = _fitting(base, settings.values(), whole)
        if samples != base["train_samples"]:
            note(f"train_samples={samples} instead of {base['train_samples']}: all points divide it into full batches")
        settings = {label: {**values, "train_samples": samples} for label, values in settings.items()}
        sources["train_samples"] = whole
    notes: dict[str, None] = {}
    points = {}
    for label, point in settings.items():
        try:
            points[label] = files.build(point, sources, whole, notes.setdefault)
        except UsageError as error:
            impossible[label] = error.line
    for line in notes:
        note(line)
    in_order = {label: impossible[label] for label in wanted if label in impossible}
    return Sweep(varying, options.scaling, points, in_order, excluded, options.skip_impossible)


def _values(base: Choice, choice: Choice, scaling: str, whole: Source) -> dict[str, Value]:
    """Return the values of a point. Raises UsageError if its workers do not divide the global batch."""
    values = {**base, **choice}
    if scaling == "strong":
        global_batch, workers = int(base["workers"]) * int(values["batch_size"]), int(values["workers"])
        if global_batch % workers:
            raise UsageError(
                f"{whole.at('scaling')}: scaling strong: the global batch of {global_batch} cannot be divided among "
                f"{workers} workers.",
                f"a batch_size that makes {base['workers']} x batch_size a multiple of {workers}",
            )
        values["batch_size"] = global_batch // workers
    return values


def _fitting(base: Choice, points: Iterable[Choice], whole: Source) -> int:
    """Return the largest multiple of the points' global batches up to `train_samples`. Raises UsageError for 0."""
    least = math.lcm(*(int(values["workers"]) * int(values["batch_size"]) for values in points))
    fitting = int(base["train_samples"]) // least * least
    if not fitting:
        raise UsageError(
            f"{whole.at('fit_train_samples')}: train_samples {base['train_samples']} is less than {least}, the least "
            "number that all points divide into full batches.",
            "raise train_samples, or use values of workers and batch_size with common factors",
        )
    return fitting


def _axes(table: object, whole: Source) -> dict[str, tuple[Value, ...]]:
    if table is None:
        raise UsageError(f"{whole.label} has no table [axes].", "dlobd run runs an experiment")
    if not isinstance(table, dict) or not table:
        raise UsageError(f"{whole.at('axes')}: [axes] has no axis.", "for example workers = [1, 2]")
    axes = {}
    for name, levels in table.items():
        where = whole.at(name)
        if name not in AXES:
            raise UsageError(f"{where}: {unknown('axis', name, AXES)}")
        if not isinstance(levels, list):
            raise UsageError(f"{where}: axis {name} must be a list, not {levels!r}.", f"{name} = [{levels!r}]")
        if not levels:
            raise UsageError(f"{where}: axis {name} is empty.", "give it values, or remove it")
        found = tuple(check(name, level, whole) for level in levels)
        if twice := [level for number, level in enumerate(found) if level in found[:number]]:
            raise UsageError(f"{where}: axis {name} has {twice[0]!r} twice.", "remove the second value")
        axes[name] = found
    if (size := math.prod(map(len, axes.values()))) > MAX_POINTS:
        raise UsageError(f"{whole.at('axes')}: {size} points exceed the limit of {MAX_POINTS}.")
    return axes


def _options(table: object, axes: Container[str], whole: Source) -> Options:
    if not isinstance(table, dict):
        raise UsageError(f"{whole.at('sweep')}: sweep must be a table.", "write [sweep]")
    names = [field.name for field in fields(Options)]
    for name, value in table.items():
        where = whole.at(name)
        if name not in names:
            raise UsageError(f"{where}: {unknown('key of [sweep]', name, names)}")
        if name == "scaling" and value not in SCALINGS:
            raise UsageError(f"{where}: scaling must be {' or '.join(SCALINGS)}, not {value!r}.")
        if name != "scaling" and not isinstance(value, bool):
            raise UsageError(f"{where}: {name} must be true or false, not {value!r}.")
    options = Options(**table)
    if options.scaling == "strong" and "workers" not in axes:
        why = "scaling strong has no effect: workers is not an axis."
        raise UsageError(f"{whole.at('scaling')}: {why}", "remove it, or add workers to [axes]")
    if options.fit_train_samples and "train_samples" in axes:
        why = "fit_train_samples and axis train_samples contradict each other."
        raise UsageError(f"{whole.at('fit_train_samples')}: {why}", "remove the option or the axis")
    return options


def _excludes(tables: object, axes: Mapping[str, Sequence[Value]], whole: Source) -> list[Choice]:
    where = whole.at("exclude")
    if not isinstance(tables, list) or not all(isinstance(table, dict) and table for table in tables):
        raise UsageError(f"{where}: exclude must be a list of tables of axis = value.", "write [[exclude]]")
    for number, table in enumerate(tables, 1):
        for name, value in table.items():
            if name not in axes:
                raise UsageError(f"{where}: exclude {number}: {unknown('axis', name, axes)}")
            if value not in axes[name]:
                raise UsageError(f"{where}: exclude {number}: axis {name} has no value {value!r}.")
    return tables

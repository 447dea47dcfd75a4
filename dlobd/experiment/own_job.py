"""Builds a checked OwnJob from the user's script or spark-submit line.

Defaults come from the built-in main experiment. The script itself controls the training. The options --python, --with
and --requirements choose its Python; `dlobd.run.overlay` installs the packages.
"""

import hashlib
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dlobd.axes import LAUNCHERS
from dlobd.errors import UsageError
from dlobd.experiment import files as experiments
from dlobd.experiment import settings, user_logging, ways
from dlobd.experiment import spark_submit_line as spark_options
from dlobd.experiment.files import Note
from dlobd.experiment.settings import Value
from dlobd.experiment.spark_submit_line import FORCED, Given, ignored_shell, shell_of
from dlobd.fields import decoded
from dlobd.job.user.hooks import DAEMONS
from dlobd.job.user.spark_settings import rivals
from dlobd.paths import own_pythons, sha256_of
from dlobd.registry import unknown
from dlobd.schema import OwnJob, Runnable, Submission

DEFAULTS = "softmax-mnist"
"""The built-in experiment that supplies the defaults."""

SETTINGS = tuple(field.name for field in fields(Submission))
"""Keys of `--set` for an own job."""

DYNAMIC = "spark.dynamicAllocation.enabled"
QUEUE = "spark.yarn.queue"
INSTANCES = "spark.executor.instances"
INITIAL = (INSTANCES, "spark.dynamicAllocation.initialExecutors", "spark.dynamicAllocation.minExecutors")
"""Settings whose largest value is the first number of executors under dynamic allocation."""

SPARK_SETTINGS = {
    "spark.executor.instances": "workers",
    "spark.executor.memory": "executor_memory_mb",
    "spark.executor.memoryOverhead": "executor_overhead_mb",
    "spark.submit.deployMode": "deploy_mode",
}
"""Setting of Spark -> setting of dlobd."""

ENTRY = "user.py"
"""File in jobs/ that spark-submit starts; it then runs the user's script."""

OVERHEAD = "spark.executor.memoryOverhead"
OVERHEAD_FACTOR, MIN_OVERHEAD = rivals(OVERHEAD)[:2]

PYTHONS = ("spark.pyspark.python", "spark.pyspark.driver.python")

_INCLUDED = re.compile(r"\s*(?:-r|-c|--requirements?|--constraints?)[ =]*([^\s:]+)\s*")

NOT_A_JOB = ("--kill", "--status", "--version", "--help", "-h", "--usage-error", "--remote")


def from_script(
    script: str,
    arguments: Sequence[str],
    overrides: Sequence[str] = (),
    note: Note = lambda line: None,
    chosen: Mapping[str, Any] = MappingProxyType({}),
    options: tuple[str, ...] = (),
) -> OwnJob:
    """Build the job of a script with its arguments and `key=value` overrides; the last override wins. `chosen`: fields
    from `fields_of`; `options`: --conf and --queue of spark-submit. Raises UsageError if the script is missing, or a
    key, type, range or name is wrong."""
    line = spark_options.parse(("spark-submit", *options, script))
    _refuse(line, line.given, chosen.get("python", ""))
    for key, given in line.given.items():
        if key in (*SPARK_SETTINGS, DYNAMIC):
            remedy = f"--set {SPARK_SETTINGS[key]}=VALUE" if key != DYNAMIC else "dlobd submit -- spark-submit ..."
            raise UsageError(f"--conf {given} cannot be used with --job.", remedy)
    user_logging.of_line(line.settings, in_cluster=False)
    for text in ignored_shell(os.environ, chosen.get("python", "")):
        note(text)
    _compile(script, chosen)
    return replace(_build(script, arguments, _overrides(overrides), note, options), **chosen)


def from_line(
    words: Sequence[str],
    overrides: Sequence[str] = (),
    note: Note = lambda line: None,
    chosen: Mapping[str, Any] = MappingProxyType({}),
    default_queue: str = "",
) -> OwnJob:
    """Build the job of a spark-submit line in this shell. Its options are kept; `overrides` may add other settings,
    `chosen` is from `fields_of`, `default_queue` is for a line without a queue. Raises UsageError if the line is
    not a spark-submit command, has no Python script, or cannot be recorded."""
    line = spark_options.parse(words)
    python: str = chosen.get("python", "")
    shell = shell_of(line, os.environ, python)
    line = replace(line, options=(*shell.options, *line.options))
    if default_queue and QUEUE not in line.settings:
        line = replace(line, options=(("--queue", default_queue), *line.options))
    if shell.sources:
        note(f"Settings of this command come also from {', '.join(shell.sources)}.")
    for text in shell.notes:
        note(text)
    given = line.given
    _refuse(line, given, python)
    user_logging.of_line(line.settings, in_cluster=False)
    for text in user_logging.replaced(line.settings):
        note(text)
    values = _overrides(overrides)
    if values.get("scheduler", "yarn") != "yarn":
        raise UsageError(f"--set scheduler={values['scheduler']}: submit commands run on YARN.", "use dlobd run --job")
    if _is_true(given.get(DYNAMIC)):
        named = [given[key] for key in INITIAL if key in given and given[key].value.isdecimal()]
        if first := max(named, key=lambda one: int(one.value), default=None):
            # Spark may start without executors; the job needs at least one
            given[INSTANCES] = Given(str(max(1, int(first.value))), first.name, first.where)
        elif "workers" in values:
            raise UsageError(f"--set workers: {given[DYNAMIC]} lets Spark choose.", f"--conf {INITIAL[1]}=2")
        else:
            given[INSTANCES] = Given("1", DYNAMIC)
    if OVERHEAD not in given and (derived := _derived_overhead(given, values)):
        given[OVERHEAD] = derived
    by_line = {}
    for key, name in SPARK_SETTINGS.items():
        if key not in given:
            continue
        by_line[name] = f"the spark-submit line's {given[key].name}"
        if name in values:
            raise UsageError(f"--set {name}: the spark-submit command also sets it, with {given[key]}.")
        number = spark_options.megabytes(given[key].value) if name.endswith("_mb") else None
        text = given[key].value if number is None else str(number)
        values[name] = settings.parse(name, text, settings.Source(f"spark-submit's {given[key].name}"))
    if values.get("deploy_mode") == "cluster":
        for key, value in FORCED.items():
            if key in given and given[key].value.lower() != value:
                note(f"dlobd overrides {given[key]}: its window ends when spark-submit exits.")
    _compile(line.script, chosen)
    job = _build(line.script, line.arguments, values, note, spark_options.words_of(line.options), by_line)
    return replace(job, **chosen)


def from_dict(values: Mapping[str, object], label: str = "configuration") -> Runnable:
    """Build the experiment or own job of a stored `configuration`. Raises UsageError if this version cannot run it."""
    if "script" not in values:
        return experiments.from_dict(values, label)
    try:
        return decoded(OwnJob, values)
    except TypeError as error:
        raise UsageError(f"{label}: not a job of this version: {error}.") from None


def daemon_conf(job: OwnJob) -> dict[str, str]:
    """Return the launcher's Spark settings, with the worker daemon that records."""
    conf: dict[str, str] = LAUNCHERS.get(job.launcher)().spark_conf()
    return {**conf, "spark.python.daemon.module": DAEMONS[job.launcher]}


def is_dynamic(job: Runnable) -> bool:
    """Return True if the options of a job let Spark change the number of its executors."""
    options = job.options if isinstance(job, OwnJob) else ()
    return _is_true(spark_options.parse(("spark-submit", *options, "script")).given.get(DYNAMIC))


def _is_true(given: Given | None) -> bool:
    return given is not None and given.value.strip().lower() == "true"


def _overrides(overrides: Sequence[str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for override in overrides:
        key, text, source = settings.split(override)
        if key in settings.SETTINGS and key not in SETTINGS:
            raise UsageError(
                f"--set {override}: {key} is a setting of dlobd's own training job; your script decides it.",
                f"settings for your own script: {', '.join(SETTINGS)}",
            )
        if key not in SETTINGS:
            raise UsageError(f"--set {override}: {unknown('setting', key, SETTINGS)}")
        values[key] = settings.parse(key, text, source)
    return values


def _build(
    script: str,
    arguments: Sequence[str],
    given: Mapping[str, Value],
    note: Note,
    options: tuple[str, ...] = (),
    by_line: Mapping[str, str] = MappingProxyType({}),
) -> OwnJob:
    """Build the job. `by_line`: setting -> its source in the spark-submit line."""
    if Path(script).suffix != ".py":
        raise UsageError(f"{script} is not a Python script: dlobd records only Python.", "name a .py file")
    try:
        sha256 = sha256_of(Path(script))
    except OSError as error:
        why = f"script {script} cannot be read: {error.strerror}."
        raise UsageError(why, "name a .py file on this machine") from None
    main = experiments.load(DEFAULTS)
    values = {name: getattr(main, name) for name in SETTINGS}
    values["name"] = re.sub(r"[^A-Za-z0-9._-]", "-", Path(script).stem).lstrip("-._") or "job"
    values |= given
    where = {name: f"--set {name}={value}" for name, value in given.items()} | dict(by_line)
    if values["scheduler"] == "none":
        raise UsageError("scheduler none runs only dlobd's trainers, and not your script.", "--set scheduler=yarn")
    if not values["executor_memory_mb"]:
        raise UsageError("executor_memory_mb 0: dlobd derives no script's memory.", "--set executor_memory_mb=1024")
    changed, lines = ways.implied(values, where)
    values |= changed
    if values["launcher"] not in DAEMONS:
        raise UsageError(
            f"launcher {values['launcher']} runs only dlobd's own trainers: it cannot record your script.",
            f"--set launcher={' or '.join(DAEMONS)}",
        )
    if values["deploy_mode"] == "cluster" and Path(script).name == ENTRY:
        raise UsageError(f"{script}: in cluster mode this name clashes with dlobd's {ENTRY}.", "rename the script")
    if values["deploy_mode"] == "cluster" and (wrong := re.search(r'[",$`\\\n]', Path(script).name)):
        raise UsageError(
            f"The name of script {script} contains the character {wrong[0]!r}, which Spark and YARN's launch "
            "scripts split or replace.",
            "rename the script, or --set deploy_mode=client",
        )
    for text in lines:
        note(text)
    return OwnJob(**values, script=script, script_sha256=sha256, arguments=tuple(arguments), options=options)


def _compile(script: str, chosen: Mapping[str, Any]) -> None:
    """Raise UsageError if the script has a syntax error. Another Python may have another syntax."""
    if chosen.get("python") or not Path(script).is_file():
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        where = f"{script}:{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else script
        why = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(f"{where}: {type(error).__name__}: {why}.", "correct the script") from None


def _derived_overhead(given: Mapping[str, Given], values: Mapping[str, Value]) -> Given | None:
    """Return an executor's overhead from the user's factor or minimum; None without both. Raises UsageError."""
    factor, minimum = given.get(OVERHEAD_FACTOR), given.get(MIN_OVERHEAD)
    users = factor or minimum
    if users is None:
        return None
    memory = given.get("spark.executor.memory")
    default_mb = values.get("executor_memory_mb", experiments.load(DEFAULTS).executor_memory_mb)
    memory_mb = spark_options.megabytes(memory.value if memory else str(default_mb))
    minimum_mb = spark_options.megabytes(minimum.value if minimum else "384m")
    try:
        if memory_mb is None or minimum_mb is None:
            raise ValueError
        overhead_mb = max(int(float(factor.value if factor else "0.1") * memory_mb), minimum_mb)
    except ValueError:
        raise UsageError(f"Spark cannot derive {OVERHEAD} from {users}.", f"--conf {OVERHEAD}=1280m") from None
    return Given(f"{overhead_mb}m", OVERHEAD, f" from {users.name}")


def _refuse(line: spark_options.Line, settings: Mapping[str, Given], python: str) -> None:
    """Raise UsageError for options that spark-submit accepts, but a recorded run does not support. `python`: the user's
    interpreter, if it is not that of dlobd."""
    given = {name for name, _ in line.options}
    for name in NOT_A_JOB:
        if name in given:
            raise UsageError(f"{name} does not submit a job to this cluster.", "omit it")
    if "--class" in given:
        raise UsageError(f"--class: {line.script} runs in the JVM, and dlobd records only Python.", "name a .py file")
    ours = (python,) if python else own_pythons()
    environments = ("spark.yarn.appMasterEnv", "spark.executorEnv")
    variables = [f"{one}.{name}" for one in environments for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")]
    for key, allowed, why in (
        ("spark.master", ("yarn",), "the job runs on YARN"),
        ("spark.remote", (), "the job runs on YARN, without a Spark Connect server"),
        ("spark.api.mode", ("classic",), "the job runs on YARN, without a Spark Connect server"),
        ("spark.yarn.unmanagedAM.enabled", ("false",), "recording needs the ApplicationMaster's container"),
        *((key, ours, "dlobd's option --python names the Python") for key in (*PYTHONS, *variables)),
        ("spark.python.daemon.module", (), "recording needs dlobd's worker daemon"),
        ("spark.python.use.daemon", ("true",), "recording needs dlobd's worker daemon"),
    ):
        if key in settings and not {settings[key].value, settings[key].value.lower()} & {*allowed}:
            remedy = f"--conf {key}={allowed[-1]}, or omit it" if allowed else "omit it"
            if allowed is ours:
                remedy = f"omit it, and use dlobd's option --python {settings[key].value}"
            raise UsageError(f"{settings[key]} is not supported: {why}.", remedy)


# ---- the Python of a script


def fields_of(
    python: str | None = None, packages: Sequence[str] = (), requirements: Path | None = None
) -> dict[str, str | tuple[str, ...]]:
    """Return the fields of OwnJob for these options. Raises UsageError if a file or program is missing, or if the
    content of a package may change."""
    texts = list(_texts(requirements)) if requirements else []
    return {
        "python": _interpreter(python) if python else "",
        "packages": tuple(map(_requirement, packages)),
        "requirements": str(requirements.absolute()) if requirements else "",
        "requirements_sha256": hashlib.sha256("\0".join(texts).encode()).hexdigest() if texts else "",
    }


def _interpreter(python: str) -> str:
    """Return the absolute path of an interpreter, without resolving links; empty for the Python of dlobd."""
    found = shutil.which(os.path.expanduser(python))
    if found is None:
        raise UsageError(f"--python {python}: there is no such program.", "--python /usr/bin/python3")
    path = os.path.abspath(found)
    return "" if path in own_pythons() else path


def _requirement(package: str) -> str:
    """Return a requirement; a wheel on this machine with the hash of its content."""
    path = Path(package)
    if package.startswith("-") or path.is_dir():
        why = "is an option" if package.startswith("-") else "is a directory, whose content may change"
        raise UsageError(f"--with {package} {why}.", "name a package or a wheel, or use --requirements FILE")
    if path.suffix != ".whl":
        return package
    try:
        return f"{path.name.partition('-')[0]} @ {path.resolve().as_uri()}#sha256={sha256_of(path)}"
    except OSError as error:
        raise UsageError(f"--with {package} cannot be read: {error.strerror}.", "name another wheel") from None


def _texts(path: Path, including: tuple[Path, ...] = ()) -> Iterator[str]:
    """Yield the text of a requirements file, and of the files that it includes."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"--requirements {path} cannot be read: {why}.", "name a requirements file") from None
    yield text
    for line in text.splitlines():
        if line.lstrip().startswith(("-e", "--editable")):
            raise UsageError(f"{path} has the editable install {line.strip()!r}.", "name a package or a wheel there")
        match = _INCLUDED.match(line)
        if match and (inner := path.parent / match[1]) not in including:
            yield from _texts(inner, (*including, inner))

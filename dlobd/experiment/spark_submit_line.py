"""Parses and merges spark-submit command lines, and adds the settings that a line takes from its shell.

`dlobd.run.submit_command` adds dlobd's options. dlobd starts spark-submit with its own configuration directory, so the
variables and the files of the user's directory become options of the line; all others are named.
"""

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlobd.errors import UsageError
from dlobd.job.user.spark_settings import CURRENT_NAMES, JOINED, REPLACEABLE, replaceable, rivals
from dlobd.paths import own_pythons, spark_home

KEYS = {
    "--master": "spark.master",
    "--deploy-mode": "spark.submit.deployMode",
    "--name": "spark.app.name",
    "--num-executors": "spark.executor.instances",
    "--executor-cores": "spark.executor.cores",
    "--executor-memory": "spark.executor.memory",
    "--driver-memory": "spark.driver.memory",
    "--driver-cores": "spark.driver.cores",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-class-path": "spark.driver.extraClassPath",
    "--driver-library-path": "spark.driver.extraLibraryPath",
    "--files": "spark.files",
    "--py-files": "spark.submit.pyFiles",
    "--archives": "spark.yarn.dist.archives",
    "--queue": "spark.yarn.queue",
}
"""Option -> equivalent setting."""

_WITH_VALUE = """--class --exclude-packages --jars --keytab --kill --packages --principal --properties-file --proxy-user
--remote --repositories --status --total-executor-cores"""
WITH_VALUE = {*KEYS, *_WITH_VALUE.split()}
_WITHOUT_VALUE = "--help -h --load-spark-defaults --supervise --usage-error --verbose -v --version"
WITHOUT_VALUE = _WITHOUT_VALUE.split()
CONF = ("--conf", "-c")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")

FORCED = {"spark.yarn.submit.waitAppCompletion": "true"}
"""Setting whose value of dlobd replaces the user's value -> value: the window ends when spark-submit exits."""

VARIABLES = {
    "MASTER": "spark.master",
    "DEPLOY_MODE": "spark.submit.deployMode",
    "SPARK_DRIVER_MEMORY": "spark.driver.memory",
    "SPARK_EXECUTOR_CORES": "spark.executor.cores",
    "SPARK_EXECUTOR_MEMORY": "spark.executor.memory",
    "SPARK_REMOTE": "spark.remote",
    "SPARK_YARN_APP_NAME": "spark.app.name",
}
"""Variable of spark-submit -> equivalent setting, which has the lowest priority."""

IGNORED = {
    "HADOOP_CONF_DIR": "--hadoop-conf names the cluster",
    "PYSPARK_DRIVER_PYTHON": "--python names the job's Python",
    "PYSPARK_PYTHON": "--python names the job's Python",
    "SPARK_HOME": "dlobd runs the Spark of its package pyspark",
    "SPARK_LOCAL_DIRS": "dlobd has its own temporary directory",
    "SPARK_LOCAL_IP": "dlobd advertises the address of the cluster's network",
    "YARN_CONF_DIR": "--hadoop-conf names the cluster",
}
"""Variable that dlobd replaces -> reason."""

OTHER_FILES = ("fairscheduler.xml", "hive-site.xml", "log4j2.properties", "metrics.properties", "spark-env.sh")
"""Files of the configuration directory that dlobd does not use."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value, the user's name of its setting, and the file that sets it, such as ` in FILE`; empty for the line."""

    value: str
    name: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value}{self.where}"


@dataclass(frozen=True, slots=True)
class Line:
    """A spark-submit line. An option is (name, value); the value is None for a flag."""

    program: str
    options: tuple[tuple[str, str | None], ...]
    script: str
    arguments: tuple[str, ...]

    @property
    def given(self) -> dict[str, Given]:
        """Values by current name of the setting, from options, --conf and properties file, which has the lowest
        priority. A deprecated name has no effect beside the current name."""
        values: dict[str, Given] = {}
        for name, value in self.options:
            if name == "--properties-file" and value:
                pairs = properties(value).items()
                values |= {key: Given(text, key, f" in {value}") for key, text in pairs if key.startswith("spark.")}
        for name, value in self.options:
            if name == "--conf" and value:
                key, _, text = value.partition("=")
                values[key.strip()] = Given(text.strip(), key.strip())
        values |= {KEYS[name]: Given(value or "", KEYS[name]) for name, value in self.options if name in KEYS}
        old = {CURRENT_NAMES[key]: given for key, given in values.items() if key in CURRENT_NAMES}
        return old | {key: given for key, given in values.items() if key not in CURRENT_NAMES}

    @property
    def settings(self) -> dict[str, str]:
        return {key: given.value for key, given in self.given.items()}


def parse(words: Sequence[str]) -> Line:
    """Parse a line. Raises UsageError if it is not spark-submit with options, a script and its arguments."""
    if not words or Path(words[0]).name not in ("spark-submit", "spark-submit.sh"):
        got = f"not {words[0]!r}" if words else "but there is none"
        raise UsageError(
            f"dlobd submit needs a spark-submit command, {got}.",
            "dlobd submit -- spark-submit [options] script.py [args]",
        )
    options: list[tuple[str, str | None]] = []
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name in WITHOUT_VALUE and not equals:
            options.append((name, None))
            continue
        if name not in WITH_VALUE and name not in CONF:
            raise UsageError(f"spark-submit has no option {name}.", "spark-submit --help")
        if not equals:
            if not rest:
                raise UsageError(f"{name} needs a value.", "spark-submit --help")
            value = rest.pop(0)
        if name in CONF:
            name = "--conf"
            if "=" not in value:
                raise UsageError(f"--conf {value}: expected KEY=VALUE.", "spark-submit --help")
        options.append((name, value))
    if not rest:
        raise UsageError("the spark-submit command has no script.", "put the script's path after the options")
    return Line(words[0], tuple(options), rest[0], tuple(rest[1:]))


def merged(ours: Sequence[str], theirs: Sequence[str]) -> tuple[str, ...]:
    """Merge the user's options into dlobd's line. The user's values replace dlobd's values, except for `JOINED` and
    `FORCED`. A value of dlobd that overrules another setting of the user is omitted."""
    line, users = parse(ours), parse(("spark-submit", *theirs, "script"))
    user_settings, own_settings = users.settings, line.settings
    both = [key for key in JOINED if key in user_settings and key in own_settings]
    forced = [key for key in FORCED if key in own_settings]
    taken = {key for key in own_settings if any(name in user_settings for name in (key, *rivals(key)))} - {*forced}
    options = [option for option in line.options if _key(*option) not in taken]
    options += [option for option in users.options if _key(*option) not in (*both, *forced)]
    if left := replaceable({key: value for key, value in own_settings.items() if key not in {*taken, *JOINED}}):
        options.append(("--conf", f"{REPLACEABLE}={left}"))
    names = {setting: option for option, setting in KEYS.items()}
    for key in both:
        value = f"{user_settings[key]}{JOINED[key]}{own_settings[key]}"
        options.append((names[key], value) if key in names else ("--conf", f"{key}={value}"))
    return (line.program, *words_of(options), line.script, *line.arguments)


def words_of(options: Iterable[tuple[str, str | None]]) -> tuple[str, ...]:
    """Return options as words of a command line."""
    return tuple(word for option in options for word in option if word is not None)


def megabytes(text: str) -> int | None:
    """Parse a size like Spark, with MiB as the default unit; return None for other text."""
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", text.lower())
    if match is None:
        return None
    return int(match[1]) * {"k": 1, "": 1 << 10, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30}[match[2]] >> 10


def _key(name: str, value: str | None) -> str:
    if name == "--conf" and value:
        key = value.partition("=")[0].strip()
        return CURRENT_NAMES.get(key, key)
    return KEYS.get(name, name)


def properties(path: str) -> dict[str, str]:
    """Read a properties file, with Java's continuation lines and escapes."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"--properties-file {path} cannot be read: {error.strerror}.") from None
    text = re.sub(r"(?m)^[ \t\f]*[#!].*$", "", text)
    text = re.sub(r"(?<!\\)((?:\\\\)*)\\\n\s*", r"\1", text)
    lines = re.findall(r"(?m)^[ \t\f]*((?:\\.|[^\\=:\s])+)[ \t\f]*[=:]?[ \t\f]*(.*)$", text)
    return {_ESCAPE.sub(_unescaped, key): _ESCAPE.sub(_unescaped, value).strip() for key, value in lines}


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(code, code)


# ---- the shell


@dataclass(frozen=True, slots=True)
class Shell:
    """Options that a shell adds to a line, the variables and files with these options, and messages."""

    options: tuple[tuple[str, str], ...]
    sources: tuple[str, ...]
    notes: tuple[str, ...]


def shell_of(line: Line, environment: Mapping[str, str], chosen: str = "") -> Shell:
    """Return the settings that the shell adds to a line. `chosen`: interpreter of --python, if it is not that of dlobd.
    Raises UsageError if they cannot be added."""
    options, sources, notes = [], [], []
    directory = _directory(line.program, environment)
    defaults = directory / "spark-defaults.conf"
    given = {name for name, _ in line.options}
    if defaults.is_file() and "--properties-file" not in given:
        options.append(("--properties-file", str(defaults)))
        sources.append(str(defaults))
    elif defaults.is_file() and "--load-spark-defaults" in given:
        why = f"--load-spark-defaults: dlobd reads --properties-file or {defaults}, not both."
        raise UsageError(why, "put all settings into one --properties-file")
    known = replace(line, options=(*line.options, *options)).settings
    for source, key, value in _from_variables(environment):
        if key not in known:
            options.append(("--conf", f"{key}={value}"))
            sources.append(source)
            known[key] = value
    pythons = (chosen,) if chosen else own_pythons()
    same = (*pythons, str(spark_home()), environment.get("DLOBD_HADOOP_CONF", ""))
    for name, why in IGNORED.items():
        value = environment.get(name, "")
        if value and value not in same and shutil.which(value) not in same:
            notes.append(f"dlobd ignores {name}={value}: {why}.")
    if others := [name for name in OTHER_FILES if (directory / name).is_file()]:
        notes.append(f"dlobd does not use these files of {directory}: {', '.join(others)}.")
    return Shell(tuple(options), tuple(dict.fromkeys(sources)), tuple(notes))


def ignored_shell(environment: Mapping[str, str], chosen: str = "") -> tuple[str, ...]:
    """Return messages about the settings of the shell, none of which `dlobd run` uses: its jobs are comparable."""
    shell = shell_of(Line("spark-submit", (), "", ()), environment, chosen)
    sources = ", ".join(shell.sources)
    return (
        *((f"dlobd run does not use {sources}: add --conf, or use dlobd submit.",) if sources else ()),
        *shell.notes,
    )


def _directory(program: str, environment: Mapping[str, str]) -> Path:
    """Return the configuration directory of a spark-submit, which need not exist."""
    if directory := environment.get("SPARK_CONF_DIR"):
        return Path(directory).absolute()
    if home := environment.get("SPARK_HOME"):
        return Path(home).absolute() / "conf"
    found = program if os.path.dirname(program) else shutil.which(program, path=environment.get("PATH")) or program
    return Path(found).resolve().parent.parent / "conf"


def _from_variables(environment: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return variable, key and value of each setting in the environment, highest priority first."""
    found = [(name, key, environment[name]) for name, key in VARIABLES.items() if environment.get(name)]
    options = re.findall(r"(?<!\S)-D(spark\.[^\s=]+)=(\S*)", environment.get("SPARK_SUBMIT_OPTS", ""))
    return [*found, *(("SPARK_SUBMIT_OPTS", key, value) for key, value in reversed(options))]

"""Settings that a spark-submit line takes from its shell: variables, and the files of Spark's configuration directory.

dlobd starts spark-submit with its own directory, so it adds the user's settings to the line. It names all others.
"""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dlobd.errors import UsageError
from dlobd.experiment.spark_submit_line import Line
from dlobd.paths import own_pythons, spark_home

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

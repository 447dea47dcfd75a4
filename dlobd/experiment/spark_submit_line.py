"""Parses and merges spark-submit command lines. Pure, except that it reads a properties file.

`dlobd.run.submit_command` adds dlobd's options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlobd.errors import UsageError

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

JOINED = {
    "spark.files": ",",
    "spark.submit.pyFiles": ",",
    "spark.yarn.dist.archives": ",",
    "spark.yarn.tags": ",",
    "spark.driver.extraJavaOptions": " ",
    "spark.executor.extraJavaOptions": " ",
    "spark.yarn.am.extraJavaOptions": " ",
}
"""Setting whose values, of the user and of dlobd, are concatenated -> separator."""


@dataclass(frozen=True, slots=True)
class Line:
    """A spark-submit line. An option is (name, value); the value is None for a flag."""

    program: str
    options: tuple[tuple[str, str | None], ...]
    script: str
    arguments: tuple[str, ...]

    @property
    def settings(self) -> dict[str, str]:
        """Values by setting, from options, --conf and properties file; the file has the lowest priority."""
        values: dict[str, str] = {}
        for name, value in self.options:
            if name == "--properties-file" and value:
                values |= properties(value)
        for name, value in self.options:
            if name == "--conf" and value:
                key, _, text = value.partition("=")
                values[key.strip()] = text.strip()
        return values | {KEYS[name]: value for name, value in self.options if name in KEYS and value is not None}


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
    """Merge the user's options into dlobd's line. The user's values replace dlobd's values, except for `JOINED`."""
    line, users = parse(ours), parse(("spark-submit", *theirs, "script"))
    user_settings, own_settings = users.settings, line.settings
    both = [key for key in JOINED if key in user_settings and key in own_settings]
    options = [option for option in line.options if _key(*option) not in user_settings]
    options += [option for option in users.options if _key(*option) not in both]
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
        return value.partition("=")[0].strip()
    return KEYS.get(name, name)


def properties(path: str) -> dict[str, str]:
    """Return the settings of a properties file: a pair per line, without continuation lines and escapes."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"--properties-file {path} cannot be read: {error.strerror}.") from None
    lines = (line.strip() for line in text.splitlines())
    parts = (re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if line and line[0] not in "#!")
    return {part[0]: part[1] if len(part) > 1 else "" for part in parts}

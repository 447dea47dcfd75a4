"""Merges a user's log4j2 configuration with dlobd's evidence, for each JVM of a spark-submit line.

log4j2 merges the files of a comma-separated list. dlobd's file is last, so the levels of its loggers hold. Their lines
go to the user's appenders only at the levels of the user's file.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from dlobd.errors import UsageError
from dlobd.experiment.spark_submit_line import properties

OPTIONS = {
    "driver": ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"),
    "master": ("spark.yarn.am.extraJavaOptions",),
    "executor": ("spark.executor.defaultJavaOptions", "spark.executor.extraJavaOptions"),
}
"""JVM -> settings with its options; in cluster mode the driver is the ApplicationMaster."""

_FILE = re.compile(r"-Dlog4j2?\.configurationFile=(.+)", re.DOTALL)
_LOG4J_1 = re.compile(r"-D(log4j\.configuration)=")
_REPLACES = re.compile(r"-D(log4j2?\.(?:configurationFactory|loggerContextFactory))=")
_DISCOVERED = re.compile(r"log4j2(?:-test)?\.(?:properties|xml|json|jsn|ya?ml)")
"""Names that log4j2 finds in a container's working directory, to which --files copies them."""

_LEVELS = ("all", "trace", "debug", "info", "warn", "error", "fatal", "off")


@dataclass(slots=True)
class Logger:
    """A logger of the user: its level, its appenders with their thresholds, and additivity."""

    level: str = ""
    appenders: dict[str, str] = field(default_factory=dict)
    additive: bool = True
    short: bool = False  # level and appenders are one value, which log4j2 ignores in a merge


@dataclass(frozen=True, slots=True)
class UserLogging:
    """The user's configuration of one JVM: log4j2's name of it, and its loggers by name, if the file is readable."""

    file: str
    loggers: Mapping[str, Logger]

    def appenders(self, name: str) -> list[tuple[str, str]]:
        """Return the appenders to which the user's file sends lines of the logger `name`, with their thresholds."""
        ancestors = [other for other in self.loggers if not other or f"{name}.".startswith(f"{other}.")]
        chain = [self.loggers[other] for other in sorted(ancestors, key=len, reverse=True)]
        threshold = next((logger.level for logger in chain if logger.level), "error")
        found: dict[str, str] = {}
        for logger in chain:
            for appender, own in logger.appenders.items():
                found.setdefault(appender, max(threshold, own or "all", key=_LEVELS.index))
            if not logger.additive:
                break
        return [*found.items()]

    def restated(self) -> str:
        """Return loggers in the short form as properties that log4j2 merges."""
        lines = []
        for number, (name, logger) in enumerate(self.loggers.items()):
            key = f"logger.user{number}" if name else "rootLogger"
            if logger.short:
                lines += [f"{key}.name={name}"] if name else []
                lines.append(f"{key}.level={logger.level or 'error'}")
                lines += [f"{key}.appenderRef.user{i}.ref={ref}" for i, ref in enumerate(logger.appenders)]
        return "".join(f"{line}\n" for line in lines)


def of_line(settings: Mapping[str, str], in_cluster: bool) -> dict[str, UserLogging]:
    """Return the user's configuration for each JVM that has one. Raises UsageError for an option that replaces log4j2's
    configuration, and cannot be merged."""
    copies = dict(_copies(settings))
    discovered = next((name for name in copies if _DISCOVERED.fullmatch(name)), None)
    found = {}
    for jvm, keys in OPTIONS.items():
        words = [word for key in keys for word in _words(settings.get(key, ""))]
        for word in words:
            if match := _REPLACES.match(word):
                raise UsageError(
                    f"-D{match[1]} replaces log4j2's configuration, from which dlobd gets its evidence.",
                    "use -Dlog4j2.configurationFile",
                )
        beside = jvm == "driver" and not in_cluster
        files = [match[1] for word in words if (match := _FILE.match(word))]
        if name := files[-1] if files else None if beside else discovered:
            path = _path(name)
            found[jvm] = UserLogging(name, _loggers(Path(path if beside else copies.get(path, path))))
    return found


def replaced(settings: Mapping[str, str]) -> list[str]:
    """Return a line for each option that names a file of log4j 1, which log4j2 cannot merge."""
    words = [(key, word) for keys in OPTIONS.values() for key in keys for word in _words(settings.get(key, ""))]
    return [
        f"{key}: log4j2 does not merge files of log4j 1, so dlobd's file replaces {word}"
        for key, word in words
        if _LOG4J_1.match(word)
    ]


def _path(name: str) -> str:
    """Return the path in a file URI, or in a name without a scheme."""
    return name.removeprefix("file://").removeprefix("file:")


def _words(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError:
        return options.split()


def _copies(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name in the containers and path of each local file that Spark copies there."""
    for entry in ",".join(settings.get(key, "") for key in ("spark.files", "spark.yarn.dist.files")).split(","):
        path, _, name = _path(entry.strip()).partition("#")
        if path:
            yield name or Path(path).name, path


def _loggers(path: Path) -> dict[str, Logger]:
    """Return the loggers in a properties or XML file; the root logger has an empty name. Empty for another file."""
    try:
        if path.suffix == ".xml":
            return _of_xml(ElementTree.parse(path).getroot())
        return _of_properties(properties(str(path))) if path.suffix == ".properties" else {}
    except (OSError, UsageError, ElementTree.ParseError):
        return {}


def _of_properties(values: Mapping[str, str]) -> dict[str, Logger]:
    loggers: dict[str, Logger] = {}
    prefixes = {
        key.rpartition(".name")[0]: name for key, name in values.items() if re.fullmatch(r"logger\.\w+\.name", key)
    }
    for prefix, name in {**prefixes, "rootLogger": ""}.items():
        level, *refs = (word.strip() for word in values.get(prefix, "").split(","))  # short form: level, appenders
        logger = loggers[name] = Logger(_level(values.get(f"{prefix}.level", level)), dict.fromkeys(refs, ""))
        logger.short = prefix in values
        logger.additive = values.get(f"{prefix}.additivity", "true") != "false"
        for key, value in values.items():
            if match := re.fullmatch(re.escape(prefix) + r"\.appenderRefs?\.(\w+)\.ref", key):
                logger.appenders[value] = _level(values.get(f"{prefix}.appenderRef.{match[1]}.level", ""))
    return loggers


def _of_xml(root: ElementTree.Element) -> dict[str, Logger]:
    loggers = {}
    for element in root.iter():
        kind = element.tag.rpartition("}")[2].lower()
        if kind in ("logger", "asynclogger", "root", "asyncroot"):
            refs = {
                ref.get("ref", ""): _level(ref.get("level", "")) for ref in element if ref.tag.endswith("AppenderRef")
            }
            name = "" if kind.endswith("root") else element.get("name", "")
            additive = element.get("additivity", "true") != "false"
            loggers[name] = Logger(_level(element.get("level", "")), refs, additive)
    return loggers


def _level(text: str) -> str:
    return text.lower() if text.lower() in _LEVELS else ""

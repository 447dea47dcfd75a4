"""Writes the log4j2 configuration of Spark's JVMs: lines for the user, and dlobd's evidence in a file of its own.

Each class in `yarn/base/log4j2-evidence.loggers` has a logger at level info. So the level of the root logger, which
`setLogLevel` and `spark.log.level` change, decides only about lines that the user sees.
"""

from collections.abc import Callable
from pathlib import Path

from dlobd.paths import make_writable, shipped

CONFIGURATION = "log4j2.properties"

Appenders = Callable[[str], list[tuple[str, str]]]
"""Function that returns the user's appenders of a logger, each with its threshold."""


def write(directory: Path) -> None:
    """Write the configuration of a job without a configuration of its user. Raises SetupError."""
    make_writable(directory)
    (directory / CONFIGURATION).write_text(f"{_part('spark.properties')}\n{evidence()}")


def evidence(appenders: Appenders | None = None) -> str:
    """Return the part with dlobd's evidence. `appenders` is for a merge with the user's configuration, whose levels
    would not apply to lines of these loggers; by default the lines also go to the root logger's appenders."""
    lines = [_part("evidence.properties")]
    for number, name in enumerate(evidence_loggers()):
        key = f"logger.dlobd{number}"
        lines += [f"{key}.name={name}", f"{key}.level=info", f"{key}.appenderRef.dlobd.ref=dlobd"]
        if appenders:
            lines.append(f"{key}.additivity=false")
            for index, (appender, level) in enumerate(appenders(name)):
                lines += [
                    f"{key}.appenderRef.user{index}.ref={appender}",
                    f"{key}.appenderRef.user{index}.level={level}",
                ]
    return "\n".join(lines) + "\n"


def evidence_loggers() -> list[str]:
    """Return the names of the classes whose lines dlobd reads."""
    return _part("evidence.loggers").split()


def _part(name: str) -> str:
    return (shipped("yarn") / "base" / f"log4j2-{name}").read_text()

"""Reads the user's configuration file: default values of options, for all commands.

    $XDG_CONFIG_HOME/dlobd/config.toml, else ~/.config/dlobd/config.toml

An option of the command line overrides a variable, and a variable overrides the file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlobd.errors import UsageError
from dlobd.experiment.settings import Source
from dlobd.paths import RUNS, config_file
from dlobd.registry import unknown


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the file: its meaning, and the range of a number; None for text."""

    about: str
    limits: tuple[float, float] | None = None

    @property
    def values(self) -> str:
        """The valid values, in words."""
        return f"a number from {self.limits[0]:g} to {self.limits[1]:g}" if self.limits else "text"

    def accepts(self, value: object) -> bool:
        """Return True for a valid value."""
        if self.limits is None:
            return isinstance(value, str) and bool(value)
        low, high = self.limits
        return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


KEYS: Mapping[str, Key] = {
    "out": Key("Directory for run bundles: `--out`."),
    "hadoop-conf": Key("Configuration directory of an external cluster: `--hadoop-conf`."),
    "queue": Key("Queue of YARN for jobs on an external cluster: `--queue`."),
    "price": Key("Price of the cluster per hour: `--price-per-hour`.", (0, 1e9)),
    "noise": Key(
        "Noise that findings assume for fewer than 6 earlier runs, as a fraction of the wall time.", (0.001, 1)
    ),
}
"""Keys of the file."""


@dataclass(frozen=True, slots=True)
class UserConfig:
    """Values of the file; empty or None if it has no such key."""

    out: Path | None = None
    hadoop_conf: Path | None = None
    queue: str = ""
    price: float | None = None
    noise: float | None = None


def read() -> UserConfig:
    """Read the file; it may be missing. Raises UsageError with its line if it is not TOML, or a key or value is
    wrong."""
    values = _values(config_file())
    out, conf = (Path(values[name]).expanduser() if name in values else None for name in ("out", "hadoop-conf"))
    return UserConfig(out, conf, values.get("queue", ""), values.get("price"), values.get("noise"))


def runs_dir() -> Path:
    """Return the default of --out: `$DLOBD_OUT`, else the value of the file, else `runs`. Raises UsageError."""
    return Path(os.environ["DLOBD_OUT"]) if os.environ.get("DLOBD_OUT") else read().out or RUNS


def _values(path: Path) -> dict[str, Any]:
    try:
        source = Source(str(path), path.read_text(encoding="utf-8"))
        values = tomllib.loads(source.text)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"configuration file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"configuration file {path} is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.", "write lines of the form key = value") from None
    for name, value in values.items():
        if name not in KEYS:
            raise UsageError(f"{source.at(name)}: {unknown('key', name, KEYS)}")
        if not KEYS[name].accepts(value):
            raise UsageError(f"{source.at(name)}: {name} must be {KEYS[name].values}, not {value!r}.")
    return values

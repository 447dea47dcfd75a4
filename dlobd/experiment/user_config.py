"""The user's configuration file: default values of options, for all commands.

    $XDG_CONFIG_HOME/dlobd/config.toml, else ~/.config/dlobd/config.toml

An option of the command line overrides a variable, and a variable overrides the file.
"""

import os
from pathlib import Path

from dlobd.errors import UsageError
from dlobd.experiment.settings import read_toml, settings_of
from dlobd.fields import described, setting
from dlobd.paths import RUNS, config_file
from dlobd.registry import unknown


@described()
class UserConfig:
    """Keys of the file."""

    out: str = setting("Directory for run bundles: `--out`.", default="")
    hadoop_conf: str = setting("Configuration directory of an external cluster: `--hadoop-conf`.", default="")
    queue: str = setting("Queue of YARN for jobs on an external cluster: `--queue`.", default="")
    price: float = setting("Price of the cluster per hour; 0: none: `--price-per-hour`.", (0, 1e9), default=0.0)
    noise: float = setting("Noise assumed for fewer than 6 earlier runs; 0: 0.1.", (0, 1), unit="share", default=0.0)


KEYS = settings_of(UserConfig)


def read() -> UserConfig:
    """Read the file, if it exists. Raises UsageError with its line if it is not TOML, or a key or value is wrong."""
    if not (path := config_file()).exists():
        return UserConfig()
    values, source = read_toml(path, "configuration")
    checked = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in KEYS:
            raise UsageError(f"{source.at(key)}: {unknown('key', key, KEYS)}")
        checked[name] = KEYS[name].check(value, source.at(key))
    return UserConfig(**checked)  # type: ignore[arg-type]  # `check` compares the types


def runs_dir() -> Path:
    """Return the default of --out: `$DLOBD_OUT`, else the value of the file, else `runs`. Raises UsageError."""
    return Path(os.environ.get("DLOBD_OUT") or read().out or RUNS).expanduser()

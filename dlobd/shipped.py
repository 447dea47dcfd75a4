"""Where the files that come with dlobd lie: job scripts, Hadoop and Spark configuration, data sets.

A checkout has them at its top (`jobs/`, `yarn/`, `data/`); a wheel carries the same folders under `dlobd/_shipped`.
"""

from __future__ import annotations

from pathlib import Path

from dlobd.errors import SetupError


def shipped(name: str) -> Path:
    """The folder or file `name`, such as `yarn` or `data/mnist`.

    Raises:
        SetupError: this installation does not hold it.
    """
    package = Path(__file__).resolve().parent
    for top in (package / "_shipped", package.parent):
        path = top / name
        if path.exists():
            return path
    raise SetupError(f"{name!r} is not part of this installation of dlobd in {package}.", "install dlobd again")

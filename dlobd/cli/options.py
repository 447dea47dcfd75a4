"""Options that several commands share, and what stands for a run's status."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlobd.errors import Interrupted, RunFailed, RunInvalid, UsageError

RUNS = Path("runs")

Out = Annotated[Path, typer.Option("--out", help="Directory for run bundles.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and the spark-submit command; start nothing.")]
RunRef = Annotated[str, typer.Argument(metavar="[RUN]", help="Bundle path, run id, or latest.")]
HadoopConf = Annotated[
    Path | None,
    typer.Option(
        "--hadoop-conf",
        metavar="DIR",
        envvar="DLOBD_HADOOP_CONF",
        help="Use an external cluster, given its HADOOP_CONF_DIR.",
    ),
]
Archive = Annotated[
    Path | None,
    typer.Option("--archive", help="With --hadoop-conf: conda-pack or venv-pack archive with the Python environment."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="KIND",
        help="Compare although this differs: machine, versions, code, recording, page-cache, order; or keep the runs "
        "of a busy machine: busy. Repeatable.",
    ),
]

EXIT_CODES = {
    "ok": 0,
    "failed": RunFailed.exit_code,
    "invalid": RunInvalid.exit_code,
    "interrupted": Interrupted.exit_code,
}
"""Status of a run to the exit code of `dlobd run`."""


def allowed(kinds: list[str] | None) -> list[str]:
    """What `--allow` names.

    Raises:
        UsageError: there is no such kind.
    """
    from dlobd.compare.compatibility import KINDS
    from dlobd.registry import unknown

    for kind in kinds or ():
        if kind not in KINDS:
            raise UsageError(unknown("kind", kind, KINDS), "dlobd compare --help")
    return kinds or []


def share(text: str) -> float:
    """`5%` or `0.05` as a share of 1, as an option's parser.

    Raises:
        BadParameter: it is no number between 0 and 1.
    """
    number, percent, rest = text.strip().partition("%")
    try:
        found = float(number) / (100 if percent else 1)
    except ValueError:
        found = -1.0
    if rest or not 0 < found < 1:
        raise typer.BadParameter(f"{text!r} is no share. Write it as 5% or 0.05")
    return found

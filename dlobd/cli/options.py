"""Options that several commands share, and what stands for a run's status."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlobd.errors import Interrupted, RunFailed, RunInvalid

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

EXIT_CODES = {
    "ok": 0,
    "failed": RunFailed.exit_code,
    "invalid": RunInvalid.exit_code,
    "interrupted": Interrupted.exit_code,
}
"""Status of a run to the exit code of `dlobd run`."""

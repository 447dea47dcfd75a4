"""dlobd submit"""

from __future__ import annotations

from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Archive, DryRun, HadoopConf, Out
from dlobd.cli.printing import print_note
from dlobd.cli.run import external_cluster, run_one


def submit(
    line: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- spark-submit [OPTIONS] SCRIPT.py [ARGUMENTS]", help="Your command."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Settings that spark-submit has no option for, such as timeout_s."
        ),
    ] = None,
    out: Out = RUNS,
    dry_run: DryRun = False,
    hadoop_conf: HadoopConf = None,
    archive: Archive = None,
) -> int:
    """Run your own spark-submit command; show where its time went.

    It runs unchanged except for the recording: on the embedded cluster, or on an external one with --hadoop-conf."""
    from dlobd.experiment import own_job

    return run_one(
        own_job.from_line(line or [], settings or [], print_note), out, dry_run, external_cluster(hadoop_conf, archive)
    )

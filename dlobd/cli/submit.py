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
            "--set",
            metavar="KEY=VALUE",
            help="Setting without an option of spark-submit, such as timeout_s; repeatable.",
        ),
    ] = None,
    out: Out = RUNS,
    dry_run: DryRun = False,
    hadoop_conf: HadoopConf = None,
    archive: Archive = None,
) -> int:
    """Run your own spark-submit command; show where its time went.

    The command runs with recording added, on the embedded cluster or, with --hadoop-conf, on an external one."""
    from dlobd.experiment import own_job

    return run_one(
        own_job.from_line(line or [], settings or [], print_note), out, dry_run, external_cluster(hadoop_conf, archive)
    )

"""`dlobd submit`: runs the user's spark-submit command with recording."""

from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Archive, DryRun, HadoopConf, JobPython, Out, Requirements, With
from dlobd.cli.printing import print_note
from dlobd.cli.run import external_cluster, run_one, spark_options


def submit(
    line: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- spark-submit [OPTIONS] SCRIPT.py [ARGUMENTS]", help="Your spark-submit command."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Setting that is not an option of spark-submit, such as timeout_s; repeatable.",
        ),
    ] = None,
    out: Out = RUNS,
    dry_run: DryRun = False,
    hadoop_conf: HadoopConf = None,
    archive: Archive = None,
    packages: With = None,
    requirements: Requirements = None,
    python: JobPython = None,
) -> int:
    """Run your own spark-submit command with recording, and show its wall time by layer.

    The command runs on the embedded cluster or, with --hadoop-conf, on an external cluster."""
    from dlobd.experiment import own_job

    chosen = own_job.fields_of(python, packages or (), requirements)
    queue = spark_options(None, "", hadoop_conf).default_queue
    job = own_job.from_line(line or [], settings or [], print_note, chosen, queue)
    return run_one(job, out, dry_run, external_cluster(hadoop_conf, archive, job.python))

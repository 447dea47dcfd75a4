"""`dlobd collect`: collects the evidence of a run that the user submitted by hand."""

import os
from pathlib import Path
from typing import Annotated

import typer

from dlobd.cli.options import RUNS, HadoopConf, Out
from dlobd.cli.printing import print_result
from dlobd.errors import UsageError


def collect(
    ref: Annotated[
        str,
        typer.Argument(metavar="[RUN]", help="Run ID, application ID, or latest: the last uncollected run."),
    ] = "latest",
    hadoop_conf: HadoopConf = None,
    out: Out = RUNS,
) -> int:
    """Collect a run that you submitted by hand, and show its wall time by layer.

    Without --hadoop-conf and DLOBD_HADOOP_CONF, HADOOP_CONF_DIR is used.
    """
    from dlobd.bundle.store import Bundle
    from dlobd.run.manual_submission import collect_application
    from dlobd.run.place.external import ExternalCluster
    from dlobd.run.progress import Progress

    if hadoop_conf is None and os.environ.get("HADOOP_CONF_DIR"):
        hadoop_conf = Path(os.environ["HADOOP_CONF_DIR"])
    if hadoop_conf is None:
        raise UsageError(
            "collect needs an external cluster.", "add --hadoop-conf DIR, or set DLOBD_HADOOP_CONF or HADOOP_CONF_DIR"
        )
    with Progress() as progress:
        path = collect_application(ref, ExternalCluster(hadoop_conf), out, progress)
    return print_result(Bundle(path))

"""dlobd export"""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Out, RunRef
from dlobd.cli.output import Force, check_free, write


class Format(StrEnum):
    """What a run can be exported as."""

    MLPERF_LOG = "mlperf-log"


def export(
    run: RunRef = "latest",
    form: Annotated[Format, typer.Option("--format", help="mlperf-log: MLPerf-style.")] = Format.MLPERF_LOG,
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file.")] = Path("mlperf.log"),
    out: Out = RUNS,
    force: Force = False,
) -> None:
    """Write a run's epochs and accuracies as an MLPerf-style log."""
    from dlobd.attribution.importers.evidence import Evidence
    from dlobd.bundle import store
    from dlobd.report.mlperf_log import RULES, mlperf_log

    assert form is Format.MLPERF_LOG  # there is no other yet; what is unknown, the command line has refused
    bundle = store.find(run, out)
    check_free(output, force)
    # one anchor: the log's times are in order, whatever happened to the wall clock meanwhile
    write(output, mlperf_log(bundle.read(), Evidence(bundle.path).anchors[0]))
    rules, log = shlex.quote(str(RULES)), shlex.quote(str(output))
    print(f"check: python -m mlperf_logging.compliance_checker --config {rules} {log}")

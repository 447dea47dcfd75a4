"""`dlobd trace`: writes a run's timeline for Perfetto."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Out, RunRef
from dlobd.cli.output import Force, check_free, write


def trace(
    run: RunRef = "latest",
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file.")] = Path("trace.json"),
    out: Out = RUNS,
    force: Force = False,
) -> None:
    """Write a run's timeline as a trace for Perfetto."""
    from dlobd.bundle import store

    bundle = store.find(run, out)
    check_free(output, force)
    from dlobd.evidence.evidence import Evidence
    from dlobd.report.export.perfetto import trace_events
    from dlobd.timeline.assemble import assemble

    evidence = Evidence(bundle.path)
    events = trace_events(assemble(evidence), evidence.resources)
    write(output, json.dumps(events, separators=(",", ":")) + "\n")

"""`dlobd trace`: writes a run's timeline for Perfetto."""

from __future__ import annotations

import json

from dlobd.cli.options import RUNS, Out, RunRef
from dlobd.cli.output import STDOUT, Force, Output, checked, write
from dlobd.cli.series import find_run


def trace(
    run: RunRef = "latest",
    output: Output = None,
    out: Out = RUNS,
    force: Force = False,
) -> None:
    """Write a run's timeline as a trace for Perfetto."""
    bundle = find_run(run, out)
    file = checked(output, bundle.path / "trace.json", (".json",), force)
    from dlobd.evidence.evidence import Evidence
    from dlobd.report.export.perfetto import trace_events
    from dlobd.timeline.assemble import assemble

    evidence = Evidence(bundle.path)
    events = trace_events(assemble(evidence), evidence.resources)
    write(file, json.dumps(events, separators=(",", ":")) + "\n")
    if file != STDOUT:
        print("open: load the file in https://ui.perfetto.dev")

"""dlobd trace"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Out, RunRef
from dlobd.errors import UsageError


def trace(
    run: RunRef = "latest",
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file.")] = Path("trace.json"),
    out: Out = RUNS,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a run's timeline as a trace for Perfetto."""
    from dlobd.bundle import store

    bundle = store.find(run, out)
    if output.exists() and not force:
        raise UsageError(f"{output} already exists.", "add --force, or choose another -o FILE")
    from dlobd.attribution.lanes.assemble import assemble
    from dlobd.report.perfetto import trace_events

    events = trace_events(assemble(bundle.path))
    try:
        output.write_text(json.dumps(events, separators=(",", ":")) + "\n")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from error
    print(f"Wrote {output}")

"""`dlobd trace`: writes a run's timeline for Perfetto."""

import json
from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Out, RunRef
from dlobd.cli.output import STDOUT, Force, Output, checked, opened, writing
from dlobd.cli.printing import find_run
from dlobd.errors import UsageError

GROWTH = 2.5
"""Size of a whole trace, divided by the size of the span files."""


def trace(
    run: RunRef = "latest",
    output: Output = None,
    from_s: Annotated[
        float, typer.Option("--from", metavar="SECONDS", min=0, help="Start, in seconds from the start of the window.")
    ] = 0.0,
    to_s: Annotated[
        float | None, typer.Option("--to", metavar="SECONDS", min=0, help="End, in seconds. Default: the whole window.")
    ] = None,
    lanes: Annotated[
        str | None, typer.Option("--lanes", metavar="LANES", help="Only these lanes, such as driver,rank-*.")
    ] = None,
    out: Out = RUNS,
    force: Force = False,
) -> None:
    """Write a run's timeline as a trace for Perfetto."""
    if to_s is not None and to_s <= from_s:
        raise UsageError(f"--to {to_s:g} is not after --from {from_s:g}.", "name a later end")
    bundle = find_run(run, out)
    from dlobd.evidence import recorder
    from dlobd.report.export.perfetto import Selection, events, members
    from dlobd.timeline.assemble import read

    whole = not from_s and to_s is None and lanes is None
    size_bytes = GROWTH * recorder.size_bytes(bundle.spans) if whole else 0
    file = checked(output, bundle.path / "trace.json", (".json",), force, size_bytes)
    found, sampled = read(bundle.path)
    selection = Selection(int(from_s * 1e9), None if to_s is None else int(to_s * 1e9), (lanes or "*").split(","))
    if not any(map(selection.has, found.lanes)):
        raise UsageError(f"--lanes {lanes}: the run has no such lane.", f"choose from {', '.join(found.lanes)}")
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with writing(file) as temporary, opened(temporary) as stream:
        stream.write('{"traceEvents":[')
        for number, event in enumerate(events(found, sampled, selection)):
            stream.write(f"{',' if number else ''}\n{encode(event)}")
        stream.write(f"],{encode(members(found))[1:]}\n")
    if file != STDOUT:
        print("open: load the file in https://ui.perfetto.dev")

"""`dlobd export`: writes a run in the format of another tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from dlobd.cli.options import RUNS, Out, RunRef
from dlobd.cli.output import Force, Output, checked, opened, write, writing
from dlobd.cli.printing import find_run
from dlobd.errors import BundleError, UsageError

if TYPE_CHECKING:
    from dlobd.bundle.store import Bundle
    from dlobd.schema import ClockAnchor


class Format(NamedTuple):
    """Export format."""

    title: str
    types: tuple[str, ...]  # suffixes of the file types; the first is the default
    write: Callable[[Bundle, Path], None]
    growth: float = 0  # size of the file, divided by the size of the span files


def _mlperf_log(bundle: Bundle, output: Path) -> None:
    from dlobd.evidence.evidence import Evidence
    from dlobd.report.export.mlperf_log import mlperf_log

    write(output, mlperf_log(bundle.read(), _anchor(Evidence(bundle.path).own_anchors, bundle)))


def _otlp(bundle: Bundle, output: Path) -> None:
    from dlobd.report.export.otlp import otlp
    from dlobd.timeline.assemble import read

    trace, _ = read(bundle.path)
    request = otlp(trace, bundle.read().run_id, _anchor(trace.anchors, bundle))
    with writing(output) as beside, opened(beside) as stream:
        stream.writelines(request)


def _anchor(anchors: Sequence[ClockAnchor], bundle: Bundle) -> ClockAnchor:
    """Return the clock anchor to convert all times: a single one keeps their order if the wall clock was adjusted.
    Raises BundleError if there is no anchor."""
    if not anchors:
        raise BundleError(f"{bundle.path} does not record the wall-clock time of its window.", "export another run")
    return anchors[0]


def _table(name: str) -> Callable[[Bundle, Path], None]:
    """Return a function that writes a data frame of `RunBundle`: as Parquet for .parquet, else as CSV."""

    def written(bundle: Bundle, output: Path) -> None:
        from dlobd.measures.frames import RunBundle
        from dlobd.report.export import frame_file

        run = RunBundle(bundle.path)
        parts = run.span_parts() if name == "spans" else [getattr(run, name)()]
        with writing(output) as beside:
            if output.suffix == ".parquet":
                frame_file.write_parquet(parts, beside)
            else:
                with opened(beside) as stream:
                    frame_file.write_csv(parts, stream)

    return written


_TABLES = (".csv", ".parquet")

FORMATS: Mapping[str, Format] = {
    "mlperf-log": Format("epochs and accuracies as an MLPerf-style log", (".log", ".txt"), _mlperf_log),
    "otlp": Format("the timeline as OTLP JSON, for OpenTelemetry's tools", (".json",), _otlp, 7),
    "layers": Format("one row per layer of the wall time", _TABLES, _table("attribution")),
    "spans": Format("one row per span", _TABLES, _table("spans"), 1.7),
    "steps": Format("one row per training step and rank", _TABLES, _table("steps")),
    "epochs": Format("one row per epoch", _TABLES, _table("epochs")),
}
"""Formats of `dlobd export`, by their names."""

_TITLES = "; ".join(f"{name}: {form.title}" for name, form in FORMATS.items())


def export(
    run: RunRef = "latest",
    name: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help=f"Required. {_TITLES}.", show_default=False)
    ] = None,
    output: Output = None,
    out: Out = RUNS,
    force: Force = False,
) -> None:
    """Export a run to a format of other tools.

    Tables are written as CSV, or as Parquet if the output file ends in .parquet.
    """
    from dlobd.evidence import recorder
    from dlobd.registry import unknown

    if name is None:
        raise UsageError(f"--format is missing; it is one of: {', '.join(FORMATS)}.", "dlobd export --format spans")
    if name not in FORMATS:
        raise UsageError(unknown("format", name, FORMATS), "dlobd export --help")
    form = FORMATS[name]
    bundle = find_run(run, out)
    growth = 0.1 if output and output.suffix == ".parquet" else form.growth
    size_bytes = growth * recorder.size_bytes(bundle.spans)
    form.write(bundle, checked(output, bundle.path / f"{name}{form.types[0]}", form.types, force, size_bytes))

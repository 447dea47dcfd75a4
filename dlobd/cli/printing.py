"""Selection and output of runs that several commands share: `latest`, JSON documents, results of runs and series."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlobd.bundle import files
from dlobd.cli.options import EXIT_CODES
from dlobd.cli.output import shown
from dlobd.errors import BundleError, UsageError
from dlobd.fields import plain

if TYPE_CHECKING:
    from rich.console import Console

    from dlobd.bundle.store import Bundle
    from dlobd.experiment.series import Cell, Series
    from dlobd.record.run import Run


def find_run(ref: str, out: Path) -> Bundle:
    """Return the bundle of a run, see `store.find`; print a note if `latest` skips a run that has not finished.
    Raises UsageError if `out` is the name of a file."""
    from dlobd.bundle import store

    if out.suffix and not out.is_dir():
        raise UsageError(f"--out {out}: there is no such directory of runs.", f"name an output file with -o {out}")
    bundle = store.find(ref, out)
    if ref == store.LATEST and (newest := store.bundles(out)[-1]) != bundle:
        print(f"dlobd: run {newest.run_id} has not finished; latest is {bundle.run_id}", file=sys.stderr)
    return bundle


def print_note(line: str) -> None:
    """Print a note before the run starts, as a progress line at 0.0 s."""
    print(f"[{0:6.1f} s] {line}", file=sys.stderr)


def print_json(value: object) -> None:
    """Print one JSON document; dataclasses become objects."""
    json.dump(plain(value), sys.stdout, indent=1, default=str)
    print()


def console(width: int | None = None) -> Console:
    """Return a console for text that rich must not highlight."""
    from rich.console import Console

    return Console(highlight=False, width=width)


def print_run(bundle: Bundle, run: Run, views: Sequence[str] = (), full: bool = False) -> None:
    """Print the named views of a run. If none is named, print the overview and the next commands; with `full`, all.

    Raises UsageError if there is no such view.
    """
    from dlobd.axes import VIEWS

    first, *others = VIEWS.names()
    if not views and not full:
        reference = _reference(bundle.path)
        VIEWS.get(first)(run, console(), reference)
        print(f"\nMore: dlobd show {reference} --full")
        print(f"HTML: dlobd report {reference}")
        print(f"Trace: dlobd trace {reference}")
        print(f"Words: dlobd show {reference} --view words")
        return
    for view in [VIEWS.get(name) for name in views or others]:
        view(run, console())


def warn_if_changed(bundle: Bundle, run: Run) -> None:
    """Print one warning if run.json or the list of files of a finished run differs from the bundle's hashes."""
    if run.status == "running":
        return
    try:
        problems = bundle.verify(files.RUN)
    except BundleError as error:
        print(f"dlobd: warning: {error.line}", file=sys.stderr)
        return
    if problems:
        more = f", and {len(problems) - 1} more differences" if len(problems) > 1 else ""
        what = f"{bundle.path} differs from its hashes: {problems[0]}{more}."
        print(f"dlobd: warning: {what} Next: dlobd verify {_reference(bundle.path)}", file=sys.stderr)


def print_bundle(bundle: Bundle, run: Run) -> None:
    """Print the file with the output of the user's script, the bundle's hash, for later verification, and its path in
    the last line, for scripts."""
    if run.own and (output := bundle.output(run.configuration.deploy_mode)):
        with output.open("rb") as file:
            count = sum(1 for _ in file)
        print(f"output: {output} ({count} {'line' if count == 1 else 'lines'})")
    if bundle.digest:
        print(f"hash: {bundle.digest}")
    print(f"bundle: {bundle.path}")


def print_result(bundle: Bundle) -> int:
    """Print a run, the reason for its failure, and its bundle's path; return the exit code."""
    run = bundle.read()
    print_run(bundle, run)
    if run.reason:
        print(f"dlobd: run {run.status}: {run.reason}", file=sys.stderr)
    print_bundle(bundle, run)
    return EXIT_CODES[run.status]


def print_series(series: Series, bundles: dict[Cell, Bundle]) -> int:
    """Print the tables of a series, the comparison of its points, and the bundles; return the highest exit code."""
    from dlobd.compare.comparison import compare
    from dlobd.compare.runset import of_series
    from dlobd.report import repeats as tables
    from dlobd.report.comparison import show

    points = of_series(series, bundles).points()
    found = {label: point.runs for label, point in points.items()}
    terminal = console(tables.WIDTH if series.scaling else None)
    (tables.sweep_table if series.scaling else tables.table)(found, terminal)
    baseline, *others = points.values()
    if others and not series.scaling:
        terminal.print()
        try:
            show(compare([(baseline, other) for other in others]), terminal)
        except UsageError as error:
            terminal.print(f"Not compared: {error.line}", soft_wrap=True)
    for cell, bundle in bundles.items():
        print(f"{cell.point}, repeat {cell.repeat}: {bundle.path}")
    print(f"series: {series.path}")
    return max(EXIT_CODES[run.status] for runs in found.values() for run in runs)


def _reference(path: Path) -> str:
    return shlex.quote(str(shown(path)))

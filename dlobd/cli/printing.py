"""Output that several commands share: JSON documents, and the result of a run."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlobd.cli.options import EXIT_CODES

if TYPE_CHECKING:
    from dlobd.bundle.store import Bundle
    from dlobd.record.run import Run


def print_note(line: str) -> None:
    """Print a note before the run starts, as a progress line at 0.0 s."""
    print(f"[{0:6.1f} s] {line}", file=sys.stderr)


def print_json(value: object) -> None:
    """Print one JSON document."""
    json.dump(value, sys.stdout, indent=1, default=str)
    print()


def print_run(bundle: Bundle, run: Run, views: Sequence[str] = (), full: bool = False) -> None:
    """Print the named views of a run. If none is named, print the overview and the next commands; with `full`, all
    other views.

    Raises UsageError if there is no such view.
    """
    from rich.console import Console

    from dlobd.axes import VIEWS

    console = Console(highlight=False)
    first, *others = VIEWS.names()
    if not views and not full:
        VIEWS.get(first)(run, console, _reference(bundle.path))
        _print_next(bundle.path)
        return
    for view in [VIEWS.get(name) for name in views or others]:
        view(run, console)


def print_several(runs: Sequence[Run]) -> None:
    """Print the first screens of several runs with their differences."""
    from rich.console import Console

    from dlobd.report.terminal.several import several

    several(runs, Console(highlight=False))


def print_bundle(bundle: Bundle) -> None:
    """Print a bundle's hash, for later verification, and its path in the last line, for scripts."""
    if bundle.digest:
        print(f"hash: {bundle.digest}")
    print(f"bundle: {bundle.path}")


def print_result(bundle: Bundle) -> int:
    """Print a run, the reason for its failure, and its bundle's path; return the exit code."""
    run = bundle.read()
    print_run(bundle, run)
    if run.reason:
        print(f"dlobd: run {run.status}: {run.reason}", file=sys.stderr)
    print_bundle(bundle)
    return EXIT_CODES[run.status]


def _reference(path: Path) -> str:
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


def _print_next(path: Path) -> None:
    bundle = _reference(path)
    print(f"\nMore: dlobd show {bundle} --full")
    print(f"HTML: dlobd report {bundle} -o report.html")
    print(f"Trace: dlobd trace {bundle} -o trace.json")
    print(f"Words: dlobd show {bundle} --view words")

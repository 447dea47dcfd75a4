"""Output that several commands share: JSON documents, and the result of a run."""

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
from dlobd.errors import BundleError
from dlobd.fields import plain

if TYPE_CHECKING:
    from rich.console import Console

    from dlobd.bundle.store import Bundle
    from dlobd.record.run import Run


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
        VIEWS.get(first)(run, console(), _reference(bundle.path))
        _print_next(bundle.path)
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


def _reference(path: Path) -> str:
    return shlex.quote(str(shown(path)))


def _print_next(path: Path) -> None:
    bundle = _reference(path)
    print(f"\nMore: dlobd show {bundle} --full")
    print(f"HTML: dlobd report {bundle}")
    print(f"Trace: dlobd trace {bundle}")
    print(f"Words: dlobd show {bundle} --view words")

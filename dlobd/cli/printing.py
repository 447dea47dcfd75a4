"""What commands print: JSON documents, and the result of a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dlobd.cli.options import EXIT_CODES

if TYPE_CHECKING:
    from dlobd.bundle.store import Bundle
    from dlobd.record.run import Run


def print_note(line: str) -> None:
    """What is known before anything begins, as the first line of the progress."""
    print(f"[{0:6.1f} s] {line}", file=sys.stderr)


def print_json(value: Any) -> None:
    """One document."""
    json.dump(value, sys.stdout, indent=1, default=str)
    print()


def print_run(run: Run, views: Sequence[str] = (), full: bool = False) -> None:
    """These views of a run; without a choice its screen, or in full all but that.

    Raises:
        UsageError: there is no such view.
    """
    from rich.console import Console

    from dlobd.axes import VIEWS

    console = Console(highlight=False)
    first, *others = VIEWS.names()
    for view in [VIEWS.get(name) for name in views or (others if full else [first])]:
        view(run, console)


def print_cost(run: Run, per_hour: float) -> None:
    """What a run cost at a price per hour."""
    from rich.console import Console

    from dlobd.report import tables
    from dlobd.report.terminal.render import show

    show(tables.cost(run, per_hour), Console(highlight=False))


def print_bundle(bundle: Bundle) -> None:
    """A bundle's hash, to be noted elsewhere, and where it is: the last line, which scripts read."""
    if bundle.digest:
        print(f"hash: {bundle.digest}")
    print(f"bundle: {bundle.path}")


def print_result(bundle: Bundle) -> int:
    """The run, why it did not end well, and where it is; returns the exit code."""
    run = bundle.read()
    print_run(run)
    if run.reason:
        print(f"dlobd: run {run.status}: {run.reason}", file=sys.stderr)
    print(f"trace: dlobd trace {bundle.run_id} -o trace.json")
    print_bundle(bundle)
    return EXIT_CODES[run.status]

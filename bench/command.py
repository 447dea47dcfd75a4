"""Common parts of the commands: options, check for an idle machine, Ctrl-C, one-line failures."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dlobd.compare.compatibility import BUSY_PERCENT
from dlobd.errors import Busy, DlobdError, SetupError
from dlobd.micro.results import Results
from dlobd.paths import replace_file
from dlobd.run import series_runner
from dlobd.run.progress import Progress

T = TypeVar("T")

Measure = Callable[[argparse.Namespace, Progress], list[Path]]
"""Function that executes missing runs, writes the pages, and returns the paths of the pages."""


def parser(name: str, described: str | None, repeats: int | None = None) -> argparse.ArgumentParser:
    """Build the parser with the common options; `repeats` is the default of --repeats."""
    made = argparse.ArgumentParser(
        prog=name, description=described, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if repeats:
        made.add_argument("--repeats", type=int, default=repeats)
    made.add_argument("--out", type=Path, default=Path("runs") / name)
    made.add_argument("--docs", type=Path, default=Path("docs"))
    made.add_argument(
        "--loaded", action="store_true", help="also measure on a busy machine, and add a warning to the page"
    )
    return made


def run(asked: argparse.Namespace, name: str, measure: Measure) -> int:
    """Measure and return the exit code; print an expected failure as one line."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: started processes are stopped
    try:
        if (busy := series_runner.busy_percent(3.0)) > BUSY_PERCENT and not asked.loaded:
            raise Busy(
                f"The machine's cores are {busy:.0f} % busy.", f"end other programs, or run make {name} LOADED=1"
            )
        with Progress() as progress:
            written = measure(asked, progress)
    except DlobdError as error:
        print(f"{name}: {error.line}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{name}: interrupted. Next: rerun the command to resume", file=sys.stderr)
        return 130
    print(f"Wrote {' and '.join(map(str, written))}")
    return 0


def completed(found: Results) -> Results:
    """Return results of micro-benchmarks. Raises SetupError: a launch failed."""
    for launch in found.launches:
        if launch.failed:
            raise SetupError(f"{launch.route.label} failed: {launch.failed}.", "dlobd doctor")
    return found


def repeated(path: Path, repeats: int, measure: Callable[[int], T]) -> list[T]:
    """Read the measurements of a JSON file after adding missing measurements; `measure(n)` makes measurement n."""
    kept: list[T] = json.loads(path.read_text()) if path.exists() else []
    while len(kept) < repeats:
        kept.append(measure(len(kept)))
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(kept).encode())
    return kept[:repeats]

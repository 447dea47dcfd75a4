"""Command line of the studies: arguments, output, pictures, one-line errors."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from analysis.studies import pictures
from analysis.studies.runs import check_same_work, experiment, launch_label, load
from dlobd.compare import compatibility
from dlobd.compare.runset import RunSet
from dlobd.errors import DlobdError, UsageError

Shown = tuple[Iterable[str], Figure | None]
"""Texts to print, and the picture or None."""


def main(doc: str, studies: Mapping[str, str]) -> int:
    """Run the study named by the first word of the command line; return the exit code.

    Args:
        doc: help of the command.
        studies: mapping of modules in `analysis.studies` to descriptions. A module has `report(asked)`, and
            `add_arguments(parser)` if its arguments are not series and bundles.
    """
    listed = "".join(f"  {name:<20}{what}\n" for name, what in studies.items())
    parser = ArgumentParser("analysis", description=doc, epilog=listed, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=studies, metavar="STUDY")
    name = parser.parse_args(sys.argv[1:2]).study
    study: Any = import_module(f"analysis.studies.{name}")
    parser = ArgumentParser(f"analysis {name}", description=study.__doc__, formatter_class=RawDescriptionHelpFormatter)
    getattr(study, "add_arguments", add_runs)(parser)
    parser.add_argument("-o", "--out", type=Path, default=Path("."), metavar="DIR", help="directory of the pictures")
    asked = parser.parse_args(sys.argv[2:])
    try:
        pieces, figure = study.report(asked)
        for piece in pieces:
            print(piece)
        if figure:
            _make(asked.out)
            for suffix in pictures.SUFFIXES:
                pictures.write(figure, path := asked.out / f"{name.replace('_', '-')}{suffix}")
                print(path, flush=True)
    except DlobdError as error:
        print(f"{name}: {error.line}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # the reader of the pipe, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # prevents Python's error at exit
    return 0


def add_runs(parser: ArgumentParser, disturbed: bool = False) -> None:
    """Add the argument for series and bundles; with `disturbed`, also the option to keep runs on a busy machine."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="SERIES|RUN", help="a series-KEY.json or a bundle")
    if disturbed:
        parser.add_argument("--allow", choices=["busy"], help="also compare runs on a busy machine")


def usable(paths: Iterable[Path]) -> RunSet:
    """Return the runs with status ok, including runs on a busy machine; print one line for each excluded run.

    Raises:
        UsageError: no run is ok.
    """
    runs, left_out = load(paths).usable(keep_busy=True)
    if not runs.members:
        raise UsageError("None of the runs is ok.", "name other runs")
    for line in left_out:
        print(f"left out: {line}")
    return runs


def checked(runs: RunSet, keep_busy: bool, also: Collection[str] = ()) -> tuple[dict[str, RunSet], list[str]]:
    """Group the usable runs by launcher and input; return them with warnings about the comparison.

    Args:
        keep_busy: keep runs on a busy machine.
        also: fields of experiments that may differ although they change the work.

    Raises:
        UsageError: the runs did different work, or no run is usable.
    """
    check_same_work(runs.runs, also)
    usable, left_out = runs.usable(keep_busy)
    if not usable.members:
        raise UsageError(f"None of the runs is usable: {'; '.join(left_out)}.", "name other runs")
    disturbed = [line for line in runs.usable()[1] if line not in left_out]
    lines = [f"Left out: {len(left_out)} of {len(runs.members)} runs: {'; '.join(left_out)}."] if left_out else []
    lines += [f"Included despite disturbance: {'; '.join(disturbed)}."] if disturbed else []
    groups = usable.grouped(lambda run: launch_label(experiment(run)))
    first, *others = groups.values()
    differences = compatibility.differences(usable.runs)
    orders = (compatibility.order(first.runs, other.runs) for other in others)
    differences += next(filter(None, orders), [])
    states = {experiment(run).page_cache for run in usable.runs}
    if len(states) > 1:
        differences.append(compatibility.Difference("page-cache", f"requested as {' and '.join(sorted(states))}"))
    lines += [f"Different environments, {difference.line}." for difference in differences]
    if any(not member.repeat.series for member in usable.members):
        lines.append("Runs without a series are paired in the order of their start.")
    return groups, lines


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory} cannot be used: {error.strerror}.", "choose another -o") from error

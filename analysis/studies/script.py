"""Command line of the scripts of analysis/: arguments, output, pictures, errors of one line."""

from __future__ import annotations

import argparse
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from analysis.studies import pictures
from dlobd.compare import compatibility
from dlobd.compare.runset import RunSet, load
from dlobd.errors import DlobdError, UsageError

Shown = tuple[Iterable[str], Figure | None]
"""Pieces of text to print, and the picture if there is one."""


def main(name: str, doc: str | None, study: Callable[[RunSet], Shown], arguments: Sequence[str] | None = None) -> int:
    """Run a script that studies all given runs with status ok; see `run`."""

    def shown(asked: Namespace) -> Shown:
        # a busy machine is no reason to refuse: such runs are a study's data as well
        runs, left_out = load(asked.runs).usable(keep_busy=True)
        if not runs.members:
            raise UsageError("None of the runs is ok.", "name other runs")
        pieces, figure = study(runs)
        return (*(f"left out: {line}" for line in left_out), *pieces), figure

    return run(name, parser(doc), shown, arguments)


def parser(doc: str | None, disturbed: bool = False) -> argparse.ArgumentParser:
    """Return the parser of a script that takes series and bundles; `doc` is its help.

    Args:
        disturbed: add the option to keep runs on a busy machine, which the study leaves out by default.
    """
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("runs", nargs="+", type=Path, metavar="SERIES|RUN", help="a series-KEY.json or a bundle")
    if disturbed:
        made.add_argument("--keep-disturbed", action="store_true", help="compare runs on a busy machine too")
    return made


def run(
    name: str,
    parser: argparse.ArgumentParser,
    shown: Callable[[Namespace], Shown],
    arguments: Sequence[str] | None = None,
) -> int:
    """Print the text of a study, write its picture as NAME.png and NAME.svg, and return the exit code.

    Args:
        name: of the pictures; the name of the script has `_` instead of `-`.
        parser: gets the option for the directory of the pictures.
        arguments: replace those of the command line.
    """
    parser.add_argument("-o", "--out", type=Path, default=Path("."), metavar="DIR", help="directory of the pictures")
    asked = parser.parse_args(arguments)
    try:
        pieces, figure = shown(asked)
        for piece in pieces:
            print(piece)
        _make(asked.out)
        if figure:
            for suffix in pictures.SUFFIXES:
                path = asked.out / f"{name}{suffix}"
                pictures.write(figure, path)
                print(path, flush=True)
    except DlobdError as error:
        print(f"{name.replace('-', '_')}: {error.line}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # the reader of the output, such as `head`, ended early
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain at exit
    return 0


def checked(runs: RunSet, keep_busy: bool, also: Collection[str] = ()) -> tuple[dict[str, RunSet], list[str]]:
    """Return the usable runs by launcher and input, and warnings about the comparison.

    Args:
        keep_busy: keep runs on a busy machine.
        also: fields of experiments that may differ although they change the work.

    Raises:
        UsageError: the runs did different work, or none is usable.
    """
    compatibility.check_same_work(runs.runs, also)
    usable, left_out = runs.usable(keep_busy)
    if not usable.members:
        raise UsageError(f"None of the runs is usable: {'; '.join(left_out)}.", "name other runs")
    disturbed = [line for line in runs.usable()[1] if line not in left_out]
    lines = [f"Left out: {len(left_out)} of {len(runs.members)} runs: {'; '.join(left_out)}."] if left_out else []
    lines += [f"Kept although disturbed: {'; '.join(disturbed)}."] if disturbed else []
    groups = usable.grouped(lambda run: compatibility.launch_label(compatibility.experiment(run)))
    first, *others = groups.values()
    differences = compatibility.differences(usable.runs)
    orders = (compatibility.order(first.runs, other.runs) for other in others)
    differences += next(filter(None, orders), [])
    states = {compatibility.experiment(run).page_cache for run in usable.runs}
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

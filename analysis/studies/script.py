"""What the scripts of analysis/ share: arguments, output, pictures, and errors of one line."""

from __future__ import annotations

import argparse
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from analysis.studies import pictures
from dlobd.errors import DlobdError, UsageError
from dlobd.report.chosen import Chosen, read

Shown = tuple[Iterable[str], Figure | None]
"""What is printed, in pieces, and the picture if there is one to be drawn."""


def main(name: str, doc: str | None, made: Callable[[Chosen], Shown], arguments: Sequence[str] | None = None) -> int:
    """A script that compares runs which are chosen by what sets them apart. See `run`."""

    def shown(asked: Namespace) -> Shown:
        chosen = read(asked.runs)
        pieces, figure = made(chosen)
        return (*chosen.left_out, *pieces), figure

    return run(name, parser(doc), shown, arguments)


def parser(doc: str | None, disturbed: bool = False) -> argparse.ArgumentParser:
    """Of a script that takes series and bundles; `doc` is its docstring, its help.

    Args:
        disturbed: whether it leaves disturbed runs out unless it is told to keep them.
    """
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("runs", nargs="+", type=Path, metavar="SERIES|RUN", help="a series-KEY.json, or a run's bundle")
    if disturbed:
        made.add_argument("--keep-disturbed", action="store_true", help="compare runs on a busy machine too")
    return made


def run(
    name: str,
    parser: argparse.ArgumentParser,
    shown: Callable[[Namespace], Shown],
    arguments: Sequence[str] | None = None,
) -> int:
    """Prints what `shown` gives, and writes its picture as NAME.png and NAME.svg; returns the exit code.

    Args:
        name: of the pictures; the script has the same with `_` instead of `-`.
        parser: gets the option of where pictures go.
        arguments: in place of the command line's.
    """
    parser.add_argument("-o", "--out", type=Path, default=Path("."), metavar="DIR", help="where the pictures go")
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
        # the reader of the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain at exit
    return 0


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory} cannot be used: {error.strerror}.", "choose another -o") from error

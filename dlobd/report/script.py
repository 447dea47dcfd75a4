"""What the scripts of analysis/ share that compare runs: arguments, output, pictures, and errors of one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from dlobd.errors import DlobdError, UsageError
from dlobd.report import pictures
from dlobd.report.chosen import Chosen, read

Made = Callable[[Chosen], tuple[Iterable[str], Figure]]
"""From runs to what is printed, in pieces, and the picture."""


def main(name: str, doc: str | None, made: Made, arguments: Sequence[str] | None = None) -> int:
    """Prints what `made` gives, and writes its picture as NAME.png and NAME.svg; returns the exit code.

    Args:
        name: of the pictures; the script has the same with `_` instead of `-`.
        doc: the script's docstring, its help.
        arguments: in place of the command line's.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="SERIES|RUN", help="a series-KEY.json, or a run's bundle")
    parser.add_argument("-o", "--out", type=Path, default=Path("."), metavar="DIR", help="where the pictures go")
    asked = parser.parse_args(arguments)
    try:
        chosen = read(asked.runs)
        pieces, figure = made(chosen)
        for piece in (*chosen.left_out, *pieces):
            print(piece)
        _make(asked.out)
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

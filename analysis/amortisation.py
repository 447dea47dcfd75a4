"""Fixed cost and cost an epoch of each launcher and input, and how the stack's overhead shrinks with epochs.

    python analysis/amortisation.py SERIES|RUN... [--epochs N...] [-o DIR]

From runs of 1, 2 and 3 epochs; longer ones check what is predicted. At least six repeats are recommended.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dlobd.errors import DlobdError
from dlobd.report import blocks, charts, pictures
from dlobd.report.amortisation import amortisation, check_table, prediction_table, table


def main(arguments: list[str] | None = None) -> int:
    """Prints the tables and writes amortisation.png and .svg; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="SERIES|RUN")
    parser.add_argument("--epochs", type=int, nargs="+", default=[8, 50], metavar="N", help="what is predicted")
    parser.add_argument("-o", "--out", type=Path, default=Path("."), metavar="DIR", help="where the pictures go")
    asked = parser.parse_args(arguments)
    try:
        found = amortisation(blocks.taken(asked.runs))
        for words in found.warnings:
            print(f"warning: {words}")
        print("Seconds, with 95 % intervals; never: the overhead does not fall below 5 %")
        for made in (table(found), prediction_table(found, asked.epochs), check_table(found)):
            if len(made):
                print(made.to_string(index=False), end="\n\n")
        asked.out.mkdir(parents=True, exist_ok=True)
        for suffix in pictures.SUFFIXES if found.against else ():
            path = asked.out / f"amortisation{suffix}"
            pictures.write(charts.amortisation(found), path)
            print(path)
    except DlobdError as error:
        print(f"amortisation: {error.line}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"amortisation: {asked.out} cannot be used: {error.strerror}.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

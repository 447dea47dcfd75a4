"""Native against in-stack: the walls of one job by launcher and input, split by layer, and what the stack adds.

    python analysis/stack_overhead.py SERIES|RUN... [-o DIR]

SERIES is a series' file, RUN a bundle's directory. The runs must have done the same work, one way of them natively.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dlobd.errors import DlobdError
from dlobd.report import blocks, charts, pictures
from dlobd.report.stack_overhead import PUBLISHED, layer_table, stack_overhead, table


def main(arguments: list[str] | None = None) -> int:
    """Prints both tables and writes stack-overhead.png and .svg; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="SERIES|RUN")
    parser.add_argument("-o", "--out", type=Path, default=Path("."), metavar="DIR", help="where the pictures go")
    asked = parser.parse_args(arguments)
    try:
        found = stack_overhead(blocks.taken(asked.runs))
        for words in found.warnings:
            print(f"warning: {words}")
        print("Wall and what the stack adds to native, mean seconds with 95 % intervals")
        print(table(found).to_string(index=False))
        print("\nBy layer")
        print(layer_table(found).to_string(index=False))
        print(f"\n{PUBLISHED}")
        asked.out.mkdir(parents=True, exist_ok=True)
        for suffix in pictures.SUFFIXES:
            path = asked.out / f"stack-overhead{suffix}"
            pictures.write(charts.stack_overhead(found), path)
            print(path)
    except DlobdError as error:
        print(f"stack_overhead: {error.line}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"stack_overhead: {asked.out} cannot be used: {error.strerror}.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

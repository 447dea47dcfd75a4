"""The overhead table a layer, and its picture as PNG and SVG, from run bundles alone.

    python analysis/layer_breakdown.py RUN... [-o DIR]

RUN is a bundle's directory. Several runs of one experiment become one table of means and standard deviations.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import dlobd
from dlobd.errors import DlobdError
from dlobd.report.summary import summary
from dlobd.report.tables import overhead_table, picture

COLUMNS = ["title", "n", "seconds", "seconds_sd", "percent", "percent_sd", "lo_s", "hi_s", "unexplained_s"]


def main(arguments: list[str] | None = None) -> int:
    """Prints the table and writes layer-breakdown.png and .svg; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's bundle")
    parser.add_argument("-o", "--out", type=Path, default=Path("."), metavar="DIR", help="where the pictures go")
    asked = parser.parse_args(arguments)
    try:
        runs = [dlobd.load(run).run for run in asked.runs]
        table = overhead_table(runs)
        print(f"{runs[0].experiment}, {len(runs)} run(s), window {summary(runs[0]).window}")
        for run in runs:  # one alone: several that are not all ok were refused
            if run.status != "ok":
                print(f"run {run.run_id} is {run.status}: {run.reason}")
        print(table[COLUMNS].to_string(index=False, float_format="%.3f", na_rep="-"))
        asked.out.mkdir(parents=True, exist_ok=True)
        for suffix in (".png", ".svg"):
            path = asked.out / f"layer-breakdown{suffix}"
            picture(table, path)
            print(path)
    except DlobdError as error:
        print(f"layer_breakdown: {error.line}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"layer_breakdown: {asked.out} cannot be used: {error.strerror}.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

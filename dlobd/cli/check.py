"""`dlobd check`: compares a series with its baseline, and fails on a regression."""

import shlex
from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Allow, Json, Out, allowed, share
from dlobd.cli.printing import console, print_json
from dlobd.errors import Regression, Undecided


def check(
    series: Annotated[str, typer.Argument(metavar="SERIES", help="Candidate: a series file, or one of its points.")],
    against: Annotated[
        str, typer.Option("--against", metavar="BASELINE", help="Baseline, in the same form as SERIES.")
    ],
    max_regression: Annotated[
        float,
        typer.Option(
            "--max-regression", parser=share, metavar="SHARE", help="Largest slowdown allowed, relative to BASELINE."
        ),
    ] = "5%",  # type: ignore[assignment]  # typer parses defaults too
    allow: Allow = None,
    out: Out = RUNS,
    as_json: Json = False,
) -> int:
    """Check that a series is not slower than its baseline; for CI.

    Exit code 0: the wall time is within --max-regression. 9: wall time or a layer is significantly slower. 10: too few
    runs to decide; the message suggests a number of runs. 2: the environments differ.
    """
    from dlobd.compare import comparison
    from dlobd.compare.compatibility import ORDER
    from dlobd.compare.gate import gate
    from dlobd.compare.runset import pairs
    from dlobd.report.comparison import gate_document, judged_line, reasons, show

    # ORDER is allowed, because a baseline is always older than its candidate
    found = comparison.compare(pairs(against, series, out), max_regression, [*allowed(allow), ORDER])
    decided = gate(found)
    why = "; ".join(reasons(decided))
    if as_json:
        print_json({**gate_document(decided), "comparison": found})
    else:
        show(found, console())
        for open_layer in decided.open_layers:
            print(f"not decided: {judged_line(open_layer)}")
    if decided.outcome == "regression":
        raise Regression(
            f"{series} is slower than {against} by more than {100 * max_regression:.1f} %: {why}.",
            f"dlobd compare {shlex.join((against, series))}",
        )
    if decided.outcome == "inconclusive":
        raise Undecided(
            f"{series} may be slower than {against} by more than {100 * max_regression:.1f} %; undecided: {why}.",
            f"run each series {decided.runs_needed} times" if decided.runs_needed else "run each series more often",
        )
    return 0

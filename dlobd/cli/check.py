"""dlobd check"""

from __future__ import annotations

from typing import Annotated

import typer

from dlobd.cli.options import RUNS, Allow, Json, Out, allowed, share
from dlobd.cli.printing import print_json
from dlobd.errors import Regression, Undecided


def check(
    series: Annotated[
        str, typer.Argument(metavar="SERIES", help="What is checked: a series file, or one of its points.")
    ],
    against: Annotated[str, typer.Option("--against", metavar="BASELINE", help="What it is compared with, as SERIES.")],
    max_regression: Annotated[
        float,
        typer.Option("--max-regression", parser=share, metavar="SHARE", help="So much slower it may be than BASELINE."),
    ] = "5%",  # type: ignore[assignment]  # typer parses defaults too
    allow: Allow = None,
    out: Out = RUNS,
    as_json: Json = False,
) -> int:
    """Check that a series is not slower than its baseline; for CI.

    Exit code 0: the wall is surely within --max-regression. 9: it, or a layer, surely is not. 10: too few runs to tell;
    the message says how many may be enough. 2: the environments differ. See docs/comparing.md.
    """
    import dataclasses

    from dlobd.report.comparison import comparison, document
    from dlobd.report.environment import ORDER
    from dlobd.report.gate import gate
    from dlobd.report.sides import pairs

    # a baseline is older than what is checked
    found = comparison(pairs(against, series, out), max_regression, [*allowed(allow), ORDER])
    decided = gate(found)
    if as_json:
        print_json({**dataclasses.asdict(decided), "comparison": document(found)})
    else:
        from rich.console import Console

        from dlobd.report.comparison_view import show

        show(found, Console(highlight=False))
        for line in decided.open:
            print(f"not decided: {line}")
    if decided.outcome == "regression":
        raise Regression(
            f"{series} is slower than {against} by more than {max_regression:.1%}: {'; '.join(decided.reasons)}.",
            f"dlobd compare {against} {series}",
        )
    if decided.outcome == "inconclusive":
        raise Undecided(
            f"{series} may or may not be slower than {against} by more than {max_regression:.1%}: "
            f"{'; '.join(decided.reasons)}.",
            f"run {decided.runs_needed} of each side" if decided.runs_needed else "run more of each side",
        )
    return 0

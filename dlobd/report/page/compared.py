"""Several runs side by side: what they have in common, once; then what sets each apart; then what `compare` says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlobd.errors import UsageError
from dlobd.record.run import Run
from dlobd.report.comparison import Comparison, common, comparison
from dlobd.report.comparison_view import counts, not_compared, sentence
from dlobd.report.page.tables import table
from dlobd.report.sides import Member, Side, settings
from dlobd.report.summary import title

MARGIN = 0.05
"""A smaller difference does not matter; the default of `dlobd compare`."""


def common_settings(runs: Sequence[Run]) -> dict[str, Any]:
    """Settings that all runs have alike."""
    return common([settings(run) for run in runs])


def own_settings(run: Run, shared: dict[str, Any]) -> dict[str, Any]:
    """Those that set a run apart."""
    return {name: value for name, value in settings(run).items() if name not in shared}


def compared(runs: Sequence[Run]) -> dict[str, Any]:
    """Verdicts of each side with the first one, or the words of why there is none."""
    sides = _sides(runs)
    if len(sides) < 2:
        return {"pairs": [], "refused": "All runs have the same settings: repeats of one side, nothing to compare."}
    try:
        found = comparison([(sides[0], other) for other in sides[1:]], MARGIN)
    except UsageError as error:
        return {"pairs": [], "refused": error.line}
    return {"pairs": [_pair(found, place) for place in range(len(found.pairs))], "refused": ""}


def _sides(runs: Sequence[Run]) -> list[Side]:
    """Runs of equal settings are one side, in the order in which they were given."""
    shared = common_settings(runs)
    groups: dict[str, list[Run]] = {}
    for run in runs:
        apart = own_settings(run, shared)
        label = " ".join(f"{name}={value}" for name, value in apart.items()) or run.experiment
        groups.setdefault(label, []).append(run)
    return [Side(label, tuple(map(Member, members))) for label, members in groups.items()]


def _pair(found: Comparison, place: int) -> dict[str, Any]:
    pair = found.pairs[place]
    columns = (("part", "text"), ("first, s", "s"), ("second, s", "s"), ("difference, s", "s"),
               ("difference, %", "share"), ("lowest, s", "s"), ("highest, s", "s"), ("verdict", "text"))  # fmt: skip
    rows = [
        (title(name), one.first_ns, one.second_ns, one.difference_ns, one.difference_share,
         one.difference.low if one.difference else None, one.difference.high if one.difference else None, one.verdict)
        for name, one in pair.quantities.items()
    ]  # fmt: skip
    return {
        "first": pair.first,
        "second": pair.second,
        "sentence": sentence("wall", pair.wall),
        "notes": [
            f"first: {pair.first}; second: {pair.second}",
            f"{counts(pair)}; the margin is {found.margin:.0%}",
            f"a difference of the wall can be significant from {found.fewest_wall} runs a side on",
            *(f"left out: {line}" for line in pair.left_out),
            *([not_compared(pair)] if pair.unknown else ()),
        ],
        "table": table("Verdicts", columns, rows, "Lowest and highest: the interval of the difference, where known."),
    }

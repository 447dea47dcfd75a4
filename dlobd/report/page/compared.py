"""Comparison of several runs: common settings, differing settings, and the verdicts of `dlobd compare`."""

from __future__ import annotations

from collections.abc import Sequence

from dlobd.compare.comparison import Comparison, Pair, common, compare
from dlobd.compare.compatibility import settings
from dlobd.compare.figures import WALL
from dlobd.compare.runset import without_series
from dlobd.errors import UsageError
from dlobd.layers import title
from dlobd.record.run import Run
from dlobd.report import text
from dlobd.report.comparison import counts, not_compared, sentence
from dlobd.report.tables import Table


def common_settings(runs: Sequence[Run]) -> dict[str, object]:
    """Return the settings with equal values in all runs."""
    return common([settings(run) for run in runs])


def own_settings(run: Run, shared: dict[str, object]) -> dict[str, object]:
    """Return a run's settings that differ between the runs."""
    return {name: value for name, value in settings(run).items() if name not in shared}


def compared(runs: Sequence[Run]) -> dict[str, object]:
    """Return the verdict of each candidate against the first group, or the reason for a missing comparison."""
    shared = common_settings(runs)

    def label(run: Run) -> str:
        return " ".join(f"{name}={value}" for name, value in own_settings(run, shared).items()) or run.experiment

    baseline, *candidates = without_series("", runs).grouped(label).values()
    if not candidates:
        return {"pairs": [], "refused": "All runs have the same settings: there is nothing to compare."}
    try:
        found = compare([(baseline, candidate) for candidate in candidates])
    except UsageError as error:
        return {"pairs": [], "refused": error.line}
    return {"pairs": [_pair(found, pair) for pair in found.pairs], "refused": ""}


def _pair(found: Comparison, pair: Pair) -> dict[str, object]:
    heads = (
        "part | baseline, s:s | candidate, s:s | difference, s:s | difference, %:share | lowest, s:s | highest, s:s "
        "| verdict"
    )
    rows = []
    for name, one in pair.quantities.items():
        bounds = (one.difference.low, one.difference.high) if one.difference else (None, None)
        effect = one.baseline_ns, one.candidate_ns, one.difference_ns, one.difference_share
        rows.append((title(name), *effect, *bounds, one.verdict))
    return {
        "baseline": pair.baseline,
        "candidate": pair.candidate,
        "sentence": sentence(WALL, pair.wall),
        "notes": [
            f"baseline: {pair.baseline}; candidate: {pair.candidate}",
            f"{counts(pair)}; the margin is {text.percentage(found.margin)}",
            f"a significant difference of the wall time needs at least {found.fewest_wall} runs of each side",
            *(f"left out: {line}" for line in pair.left_out),
            *([not_compared(pair)] if pair.unknown else ()),
        ],
        "table": Table(
            "Verdicts", heads, rows, "Lowest and highest: bounds of the confidence interval of the difference."
        ).to_json(),
    }

"""Several runs for the terminal and the page: their labels, differing settings, and the verdicts of `dlobd compare`."""

from collections.abc import Sequence
from string import ascii_uppercase

from dlobd.compare.comparison import common, compare
from dlobd.compare.compatibility import settings
from dlobd.compare.figures import PARTS, WALL, layer_or_zero_s, wall_s
from dlobd.compare.runset import without_series
from dlobd.errors import UsageError
from dlobd.layers import title
from dlobd.record.run import Run
from dlobd.report.comparison import heading, notes, sentence, verdicts
from dlobd.report.tables import Table

LEAST_S = 0.05
"""Shorter layers have no row in the table of differences, which has tenths of a second."""


def labelled(runs: Sequence[Run]) -> tuple[dict[str, int], list[str]]:
    """Return the places of the different runs by label A, B, and so on, and a note for each run given twice."""
    ids = [run.run_id for run in runs]
    kept = [place for place, run_id in enumerate(ids) if run_id not in ids[:place]]
    labels = {ascii_uppercase[at] if at < 26 else str(at + 1): place for at, place in enumerate(kept)}
    again = dict.fromkeys(run_id for place, run_id in enumerate(ids) if place not in kept)
    return labels, [f"Run {run_id} was given more than once; it is shown once." for run_id in again]


def common_settings(runs: Sequence[Run]) -> dict[str, object]:
    """Return the settings with equal values in all runs."""
    return common([settings(run) for run in runs])


def own_settings(run: Run, shared: dict[str, object]) -> dict[str, object]:
    """Return a run's settings that differ between the runs."""
    return {name: value for name, value in settings(run).items() if name not in shared}


def compared(runs: Sequence[Run], labels: Sequence[str]) -> dict[str, object]:
    """Return the differences by layer, and each candidate's verdict against the first group, or why it is missing."""
    shared = common_settings(runs)
    found: dict[str, object] = {
        "heading": _heading(runs, labels),
        "differences": _differences(runs, labels),
        "pairs": [],
    }

    def label(run: Run) -> str:
        return (
            " ".join(f"{name}={value or 'none'}" for name, value in own_settings(run, shared).items()) or run.experiment
        )

    baseline, *candidates = without_series("", runs).grouped(label).values()
    if not candidates:
        return found | {"refused": "All runs have the same settings: there is nothing to compare."}
    try:
        comparison = compare([(baseline, candidate) for candidate in candidates])
    except UsageError as error:
        return found | {"refused": error.line}
    pairs = [
        {
            "heading": heading(pair),
            "sentence": sentence(WALL, pair.wall),
            "notes": notes(comparison, pair),
            "tables": verdicts(comparison, pair),
        }
        for pair in comparison.pairs
    ]
    return found | {"pairs": pairs, "refused": ""}


def _differences(runs: Sequence[Run], labels: Sequence[str]) -> Table:
    """Build the table of layers by run, with differences from the first run; the largest difference is first."""
    lengths = {layer: [layer_or_zero_s(run, layer) for run in runs] for layer in PARTS}
    known = {layer: row for layer, row in lengths.items() if any((s or 0) >= LEAST_S for s in row)}
    largest = sorted(known, key=lambda layer: -max(abs((s or 0) - (known[layer][0] or 0)) for s in known[layer]))
    rows = [_row("wall time", [wall_s(run) for run in runs])]
    rows += [_row(title(layer), known[layer]) for layer in largest]
    seconds = "".join(f"| {label}, s:s " for label in labels)
    heads = f"layer {seconds}" + "".join(f"| {label} - {labels[0]}, s:s " for label in labels[1:])
    return Table("Differences by layer", heads, rows)


def _row(name: str, lengths: Sequence[float | None]) -> list[str | None]:
    first = lengths[0]
    plain = [None if s is None else f"{s:.1f}" for s in lengths]
    return [name, *plain, *(None if s is None or first is None else f"{s - first:+.1f}" for s in lengths[1:])]


def _heading(runs: Sequence[Run], labels: Sequence[str]) -> str:
    """Compare the wall times of two successful runs in one sentence; count the runs otherwise."""
    walls = [run.wall_ns / 1e9 for run in runs if run.wall_ns and run.status == "ok"]
    if len(runs) != 2 or len(walls) != 2:
        return f"{len(runs)} runs side by side"
    difference = walls[1] - walls[0]
    word = "longer" if difference >= 0 else "shorter"
    return (
        f"{labels[1]} took {abs(difference):.1f} s {word} than {labels[0]}: {walls[1]:.1f} s against {walls[0]:.1f} s"
    )

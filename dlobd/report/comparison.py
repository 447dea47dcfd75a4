"""Text of a comparison and of the gate for terminal and page, and the view of several runs side by side.

The terminal shows differing environments, then the verdicts of each pair, then settings; the text fits 80 columns.
Seconds come before percent; brackets hold confidence intervals.
"""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase

from rich.console import Console

from dlobd.compare.comparison import Comparison, Pair, common, compare
from dlobd.compare.compatibility import settings
from dlobd.compare.figures import PARTS, WALL, layer_or_zero_s, wall_s
from dlobd.compare.gate import Gate, Judged
from dlobd.compare.permutation import ALPHA, DRAWN
from dlobd.compare.power import MOST_RUNS, POWER
from dlobd.compare.runset import without_series
from dlobd.compare.verdicts import Bounds, Compared
from dlobd.errors import UsageError
from dlobd.layers import title
from dlobd.record.run import Run
from dlobd.report import text
from dlobd.report.tables import Table
from dlobd.report.terminal.render import show as print_table
from dlobd.schema import DEFAULTS

MACHINE = ("host", "processor", "cores", "distribution", "kernel")
"""Members of `platform` that the terminal shows."""

LEAST_S = 0.05
"""Shorter layers have no row in the table of differences, which has tenths of a second."""


def show(comparison: Comparison, console: Console) -> None:
    """Print a comparison."""
    for difference in comparison.environment:
        text.line(console, f"DIFFERENT ENVIRONMENTS, {difference.line}", "bold yellow")
    for pair in comparison.pairs:
        _pair(comparison, pair, console)
    if any(map(_has_intervals, comparison.pairs)):
        _explain(comparison, console)
    _settings(comparison, console)


def sentence(name: str, compared: Compared) -> str:
    """Format verdict and difference of a quantity as one line."""
    seconds = f"{_signed(compared.difference_ns, 1e9, 3)} s {_between(compared.difference, 1e9, 3)}".strip()
    if compared.difference_share is None:
        return f"{name}: {compared.verdict}, {seconds}"
    percent = f"{100 * compared.difference_share:+.1f} % {_between(compared.share, 0.01, 1)}".strip()
    return f"{name}: {compared.verdict}, {seconds}, {percent}"


def heading(pair: Pair) -> str:
    """Format the names of both sides and the number of compared runs."""
    baseline, candidate = map(len, pair.runs)
    repeats = f"{baseline} repeats, each with one run of both sides"
    runs = f"{candidate} {'run' if candidate == 1 else 'runs'} against {baseline}"
    return f"{pair.candidate} against {pair.baseline}: {repeats if pair.paired else runs}"


def notes(comparison: Comparison, pair: Pair) -> list[str]:
    """Return the differing settings, the runs and layers that are not compared, and limits of the verdict."""
    lines = [f"{name}: {baseline} -> {candidate}" for name, (baseline, candidate) in pair.differing.items()]
    lines += [f"left out: {line}" for line in pair.left_out]
    if not pair.paired:
        lines.append("The sides ran in different repeats, so a drift of the machine can hide a difference.")
    if pair.unknown:
        lines.append(f"Not compared, because some runs did not measure it: {', '.join(map(title, pair.unknown))}")
    if not _has_intervals(pair):
        runs = "repeats" if pair.paired else "runs of each side"
        lines.append(f"Too few runs for a verdict: it needs at least {comparison.fewest_wall} {runs} (--repeats).")
    return lines


def verdicts(comparison: Comparison, pair: Pair) -> list[Table]:
    """Build the table of mean times and differences; with enough runs, also with confidence intervals and verdicts, and
    the table of the differences that this number of runs detects."""
    heads = "layer | baseline, s:s | candidate, s:s | change, s:s | change, %:share"
    effects, detects = [], []
    for name, one in pair.quantities.items():
        means = round(one.baseline_ns), round(one.candidate_ns), _signed(one.difference_ns, 1e9, 3)
        effects.append((title(name), *means, _signed(one.difference_share, 0.01, 1), *_bounds(one.difference, 1e9, 3)))
        smallest_ns = None if one.smallest_ns is None else round(one.smallest_ns)
        share = one.smallest_ns / one.baseline_ns if one.smallest_ns is not None and one.baseline_ns else None
        detects.append((title(name), smallest_ns, share, *_bounds(one.share, 0.01, 1), _needed(one)))
    if not _has_intervals(pair):
        return [Table("Mean times", heads, effects)]
    judged = [(*row, one.verdict) for row, one in zip(effects, pair.quantities.values(), strict=True)]
    needed = f"runs for {text.percentage(comparison.margin)}:number"
    return [
        Table("Mean times and verdicts", f"{heads} | lowest, s:s | highest, s:s | verdict", judged),
        Table(
            "Detectable differences",
            f"layer | detects, s:s | detects, %:share | lowest, %:share | highest, %:share | {needed}",
            detects,
            "Lowest and highest, here and above: bounds of the confidence interval of the change.",
        ),
    ]


def reasons(gate: Gate) -> list[str]:
    """Return one line per quantity with a regression; without a regression, one line per undecided wall time."""
    return [judged_line(one) + _mostly(one, gate) for one in gate.grown or gate.open_walls]


def judged_line(judged: Judged) -> str:
    """Format the verdict of a quantity, with the candidate's name."""
    return f"{judged.pair.candidate}: {sentence(title(judged.name), judged.compared)}"


def gate_document(gate: Gate) -> dict[str, object]:
    """Convert the gate's outcome to a dict for JSON."""
    return {
        "outcome": gate.outcome,
        "grown": [(one.pair.candidate, one.name) for one in gate.grown],
        "reasons": reasons(gate),
        "open": [judged_line(one) for one in gate.open_layers],
        "runs_needed": gate.runs_needed,
    }


def _mostly(judged: Judged, gate: Gate) -> str:
    """Name the layer with the largest growth if the wall time grew but no layer grew significantly."""
    layers = judged.pair.layers
    if not gate.grown or not layers or any(one.pair is judged.pair and one.name != WALL for one in gate.grown):
        return ""
    largest = max(layers, key=lambda layer: layers[layer].difference_ns)
    return f"; mostly in {title(largest)}, {layers[largest].difference_ns / 1e9:+.3f} s, which is not significant"


def _settings(comparison: Comparison, console: Console) -> None:
    shown = {
        name: value for name, value in comparison.common.items() if name not in DEFAULTS or value != DEFAULTS[name]
    }
    text.heading(console, "What is equal on both sides")
    text.line(console, f"Common settings: {_listed(shown)}")
    machine = {name: comparison.machine[name] for name in MACHINE if comparison.machine.get(name)}
    text.line(console, f"Machine: {_listed(machine)}")
    text.line(console, f"Versions: {_listed({name: value for name, value in comparison.versions.items() if value})}")


def _pair(comparison: Comparison, pair: Pair, console: Console) -> None:
    text.heading(console, heading(pair))
    text.line(console, sentence(WALL, pair.wall), "bold")
    for line in notes(comparison, pair):
        text.line(console, line)
    for table in verdicts(comparison, pair):
        print_table(table, console)


def _has_intervals(pair: Pair) -> bool:
    return any(one.difference for one in pair.quantities.values())


def _explain(comparison: Comparison, console: Console) -> None:
    quantities = [one for pair in comparison.pairs for one in pair.quantities.values()]
    runs = "repeats" if all(pair.paired for pair in comparison.pairs) else "runs of each side"
    levels = sorted({one.confidence for one in quantities if one.confidence})
    exact = all(one.exact for one in quantities)
    test = "Exact permutation test" if exact else f"Permutation test ({DRAWN:,} relabellings, drawn; seed 0)"
    confidence = f" ({' or '.join(text.percentage(level, 1) for level in levels)} each)"
    margin = text.percentage(comparison.margin)
    text.heading(console, "How to read it")
    text.line(
        console,
        f"{test} of means. False differences occur in at most {text.percentage(ALPHA)} of comparisons (Holm), for wall "
        f"times and for layers separately. Significance needs at least {comparison.fewest_wall} {runs} for the wall "
        f"time, {comparison.fewest_layers} for layers.",
    )
    text.line(
        console,
        f"Brackets hold confidence intervals{confidence if levels else ': none, too few runs'}. Equivalent: the "
        f"interval lies within {margin} of the baseline, for a layer also within {comparison.least_ns / 1e9:.3f} s. "
        f"Detects: smallest difference that this many runs detect with {text.percentage(POWER)} probability. Runs: "
        f"runs of each side that detect a difference of {margin}.",
    )


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _signed(value: float | None, unit: float, digits: int) -> str | None:
    return None if value is None else f"{value / unit:+.{digits}f}"


def _bounds(bounds: Bounds | None, unit: float, digits: int) -> tuple[str | None, str | None]:
    return (_signed(bounds.low, unit, digits), _signed(bounds.high, unit, digits)) if bounds else (None, None)


def _between(bounds: Bounds | None, unit: float, digits: int) -> str:
    return "({} to {})".format(*_bounds(bounds, unit, digits)) if bounds else ""


def _needed(one: Compared) -> str | None:
    if one.verdict != "inconclusive":
        return ""
    return str(one.runs_needed) if one.runs_needed else (f"> {MOST_RUNS}" if one.smallest_ns is not None else None)


# ---- several runs side by side


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
        "heading": _beside(runs, labels),
        "differences": _differences(runs, labels),
        "pairs": [],
    }

    def label(run: Run) -> str:
        own = own_settings(run, shared)
        return " ".join(f"{name}={value or 'none'}" for name, value in own.items()) or run.experiment

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


def _beside(runs: Sequence[Run], labels: Sequence[str]) -> str:
    """Compare the wall times of two successful runs in one sentence; count the runs otherwise."""
    walls = [run.wall_ns / 1e9 for run in runs if run.wall_ns and run.status == "ok"]
    if len(runs) != 2 or len(walls) != 2:
        return f"{len(runs)} runs side by side"
    difference = walls[1] - walls[0]
    word = "longer" if difference >= 0 else "shorter"
    return (
        f"{labels[1]} took {abs(difference):.1f} s {word} than {labels[0]}: {walls[1]:.1f} s against {walls[0]:.1f} s"
    )

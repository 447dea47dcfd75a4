"""Count false alarms and detected planted differences, and write both into docs/results.md.

    python -m bench.comparisons [--short FILE] [--pool SERIES] [--docs DIR]

FILE has short runs of `python -m bench.short_runs FILE`. SERIES has many runs of one experiment:
`dlobd run softmax-mnist-quick --set page_cache=warm --repeats 20`. Equal files give an equal page.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import false_alarms, publish, short_runs
from bench.false_alarms import ORDERS, Alarms, Count
from bench.tables import markdown
from dlobd.compare.figures import layer_s
from dlobd.compare.runset import read
from dlobd.layers import title
from dlobd.record.run import Run

NAME = "comparisons"
SHORT = Path("docs/short-runs.csv.gz")

SIZES = (6, 8, 12)
"""Numbers of runs per side of A/A pairs; 6 is the smallest number with which pairs can be significant."""

LARGE = 0.08
"""Minimum fraction of the wall time for a layer that gets a planted difference."""

PLANTED_WALL, PLANTED_LAYER = 0.1, 0.2
TRIALS_WALL, TRIALS, RESAMPLED = 40, 40, 500

GATES = {20: 200, 100: 100, 1000: 40}
"""Number of checks without a planted difference, by runs per side."""

SCATTER = 0.06
"""Relative standard deviation of a layer in simulated runs, as for wall times on an idle machine (docs/bench.json)."""

SIMULATED_GATES = {8: 200, 12: 200, 20: 200}


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", type=Path, default=SHORT)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    asked = parser.parse_args()
    runs = read(asked.pool, Path("runs")).runs
    pool = [run for run in runs if run.status == "ok" and run.wall_ns]
    publish.of_runs(asked.docs, NAME, pool, [], [*_short(short_runs.read(asked.short)), *_stack(pool)])
    kept = [{"run": run.run_id, "wall_ns": run.wall_ns, **{row.layer: row.ns for row in run.layers}} for run in pool]
    publish.store(asked.docs, NAME, {"pool": kept})
    return 0


def _short(runs: Sequence[false_alarms.Values]) -> list[str]:
    walls = [run["wall_ns"] for run in runs]
    says = (
        f"**A/A, independent.** {len(runs):,} consecutive runs of a short recorded process, median wall time "
        f"{statistics.median(walls) / 1e6:.0f} ms, standard deviation {statistics.stdev(walls) / 1e6:.0f} ms. Each run "
        "is in one pair. A false alarm is a verdict faster or slower; at most: the one-sided 95 % limit."
    )
    alarms = [false_alarms.short_alarms(runs, order, size) for order in ORDERS for size in SIZES]
    found, asked = false_alarms.short_power(runs, 6, PLANTED_WALL, TRIALS_WALL)
    planted = (
        f"**{PLANTED_WALL:+.0%} planted.** A pilot of 6 repeats of these runs, with `--margin {PLANTED_WALL:.0%}`, "
        f"proposes a number of repeats in {len(asked)} of {TRIALS_WALL} trials: {min(asked)} to {max(asked)}, median "
        f"{statistics.median(asked):.0f}. With these fresh repeats, one side {PLANTED_WALL:+.0%}, the verdict is "
        f"`slower` in {_of(found)} trials, at least {found.at_least:.1%}; each trial draws its own repeats."
    )
    return [says, _table(alarms), planted]


def _stack(pool: Sequence[Run]) -> list[str]:
    walls = [(run.wall_ns or 0) / 1e9 for run in pool]
    says = (
        f"**A/A, resampled.** Whole runs of the stack, drawn {RESAMPLED:,} times from a pool of {len(pool)} "
        f"consecutive runs of `{pool[0].experiment}` with wall times of {min(walls):.1f} to {max(walls):.1f} s. "
        "These comparisons share runs, so no confidence limit is given."
    )
    alarms = [
        false_alarms.stack_alarms(pool, paired, size, RESAMPLED)
        for paired in (True, False)
        for size in (6, 8)
        if 2 * size <= len(pool)
    ]
    mean_s = {row.layer: statistics.fmean(layer_s(run, row.layer) or 0 for run in pool) for row in pool[0].layers}
    layers = [layer for layer, seconds in mean_s.items() if seconds > LARGE * statistics.fmean(walls)]
    like = false_alarms.simulated(pool[0], SCATTER, 200)
    rows = [
        *_gates("recorded", pool, layers, GATES),
        *_gates(f"simulated, {SCATTER:.0%}", like, layers, SIMULATED_GATES),
    ]
    needed = [false_alarms.runs_needed(pool, layer) for layer in layers]
    asks = ", ".join(f"{title(layer)} {runs or '> 1000'}" for layer, runs in zip(layers, needed, strict=True))
    names = ", ".join(map(title, layers))
    gate = (
        "**The gate, resampled.** `dlobd check` on runs drawn from the same pool with replacement, "
        f"{PLANTED_LAYER:+.0%} planted into one layer of one side, in turn {names}. Named: the message names the "
        "planted layer first. False: a failure without a planted difference. Runs of each side that detect 5 % of a "
        f"layer: {asks}. Simulated: copies of the pool's first run, with {SCATTER:.0%} standard deviation per layer."
    )
    heads = ["", "runs of each side", "named", "", "false", "at most"]
    return [says, _table(alarms, bound=False), gate, markdown(heads, rows)]


def _gates(label: str, pool: Sequence[Run], layers: Sequence[str], sizes: Mapping[int, int]) -> list[list[str]]:
    rows = []
    for size, trials in sizes.items():
        named = false_alarms.gates(pool, size, TRIALS, PLANTED_LAYER, layers)
        false = false_alarms.gates(pool, size, trials)
        rows.append([label, str(size), _of(named), f"{named.share:.1%}", _of(false), f"{false.at_most:.1%}"])
    return rows


def _table(alarms: Sequence[Alarms], bound: bool = True) -> str:
    rows = []
    for one in alarms:
        wall, layers = (_cells(count, bound) for count in (one.wall, one.layers))
        rows.append([one.order, str(one.size), f"{one.wall.of:,}", *wall, *layers])
    limits = ["at most"] if bound else []
    return markdown(["", "runs of each side", "pairs", "wall", *limits, "any layer", *limits], rows)


def _cells(count: Count, bound: bool) -> list[str]:
    return [f"{count.share:.1%}", *([f"{count.at_most:.1%}"] if bound else [])]


def _of(count: Count) -> str:
    return f"{count.found} of {count.of}"


if __name__ == "__main__":
    sys.exit(main())
